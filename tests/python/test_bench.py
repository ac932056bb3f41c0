"""relay bench: what it says is of the right shape. Times are asserted nowhere."""
import json
import signal
import subprocess

import pytest

from conftest import RELAY, ROOT, SMOLLM2, run, start_model, wait_free, wait_serving


def test_bench_names_its_benchmarks():
    assert "tokenize" in run(RELAY, "bench", "--help").stdout
    for args in (["bench"], ["bench", "nonsense"], ["bench", "tokenize", "--rate", "0"], ["bench", "tokenize", "--rate", "100000", "--seconds", "3600"]):
        done = run(RELAY, *args, check=False)
        assert done.returncode == 2 and done.stderr != "" and done.stdout == "", args


def test_bench_tokenize_calls_at_its_rate(services):
    flags = ["--server", services[1].address, "--rate", "100", "--seconds", "1", "--bytes", "300", "--large-rate", "3", "--large-bytes", "200KiB"]
    figures = json.loads(run(RELAY, "bench", "tokenize", *flags, "--json").stdout)
    assert figures["failed"] == 0
    for name, calls, size in (("small", 100, 300), ("large", 3, 200 << 10)):
        f = figures[name]
        assert f["calls"] == f["answered"] == calls and f["bytes"] == size
        times = list(f["milliseconds"].values())
        assert list(f["milliseconds"]) == ["p50", "p90", "p99", "p99.9", "max"] and times == sorted(times) and times[0] > 0
    text = run(RELAY, "bench", "tokenize", *flags).stdout.splitlines()
    assert len(text) == 2 and "100 made, 100 answered" in text[0] and "p99" in text[0]


def test_bench_tokenize_tells_failures(services):
    done = run(RELAY, "bench", "tokenize", "--server", services[1].address, "--rate", "5", "--seconds", "1", "--bytes", "5MiB", "--json", check=False)
    assert done.returncode == 2 and json.loads(done.stdout)["failed"] == 5 and "text has" in done.stderr
    assert run(RELAY, "bench", "tokenize", "--server", "127.0.0.1:1", "--seconds", "1", check=False).returncode == 3


def test_bench_tokenizer_tells_cold_and_warm_speed(tmp_path):
    text = tmp_path / "text"
    text.write_text("It was a bright cold day in April, and the clocks were striking thirteen. \U0001f600 \u4e2d\u6587\n" * 200)
    flags = ["bench", "tokenizer", "--tokenizer", SMOLLM2, "--text", text, "--document-bytes", "1000", "--rounds", "2"]
    figures = json.loads(run(RELAY, *flags, "--json").stdout)
    assert figures["cold_megabytes_per_second"] > 0 and figures["warm_megabytes_per_second"] > 0
    assert figures["bytes"] == text.stat().st_size and 0 < figures["tokens"] < figures["bytes"]
    assert "cold" in run(RELAY, *flags).stdout


def test_bench_tokenizer_says_what_is_wrong(tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("")
    invalid = tmp_path / "invalid"
    invalid.write_bytes(b"a\xff")
    for flags, why in (([], "are needed"), (["--tokenizer", SMOLLM2, "--text", empty], "empty"), (["--tokenizer", empty, "--text", empty], ""),
                       (["--tokenizer", SMOLLM2, "--text", tmp_path / "none"], "none"), (["--tokenizer", SMOLLM2, "--text", invalid], "UTF-8")):
        done = run(RELAY, "bench", "tokenizer", *flags, check=False)
        assert done.returncode == 2 and why in done.stderr and done.stdout == "", flags


@pytest.fixture(scope="module")
def small_model():
    """A relay-model with a model of 260,000 parameters."""
    model = start_model(ROOT / "tests/data/stories260K.gguf")
    wait_serving(model)
    yield model
    assert model.stop() == 0, model.log()


def bench_serve(model, *flags, code=0):
    done = run(RELAY, "bench", "serve", "--model-server", model.address, *flags, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def expect_quantiles(times):
    assert list(times) == ["p50", "p90", "p99", "max"] and 0 <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"]


@pytest.mark.parametrize("load", [["--in-flight", "3"], ["--in-flight", "3", "--static-batches"], ["--rate", "50"]])
def test_bench_serve_counts_what_it_asked_for(small_model, load):
    figures, _ = bench_serve(small_model, "--requests", "7", "--prompt", "20", "--output", "5", *load)
    assert (figures["requests"], figures["failed"], figures["output_tokens"]) == (7, 0, 35)
    assert figures["seconds"] > 0 and figures["output_tokens_per_second"] > 0
    (turn,) = figures["turns"]
    assert (turn["answered"], turn["prompt_tokens"], turn["cached_tokens"]) == (7, 140, 0)
    for times in (figures["time_to_first_token_ms"], figures["gap_ms"], turn["time_to_first_token_ms"]):
        expect_quantiles(times)
    wait_free(small_model)


def test_bench_serve_goes_on_with_conversations(small_model):
    figures, _ = bench_serve(small_model, "--requests", "2", "--in-flight", "2", "--prompt", "64", "--output", "6", "--turns", "3", "--turn-prompt", "10")
    assert figures["requests"] == 6 and [t["answered"] for t in figures["turns"]] == [2, 2, 2]
    assert [t["prompt_tokens"] for t in figures["turns"]] == [2 * 64, 2 * 80, 2 * 96]
    cached = [t["cached_tokens"] for t in figures["turns"]]
    assert cached[0] == 0 and cached[1] >= 2 * 64 and cached[2] >= 2 * 80


@pytest.mark.parametrize("lines", ["# a comment\n40 8\n\n24 4\n1000 1000\n", "0,40,8\n500,24,4\n501,1,1"])
@pytest.mark.parametrize("load", [["--in-flight", "2"], ["--rate", "20"]])
def test_bench_serve_takes_lengths_from_a_trace(small_model, tmp_path, lines, load):
    trace = tmp_path / "trace"
    trace.write_text(lines)
    figures, _ = bench_serve(small_model, "--trace", trace, "--scale", "0.5", "--requests", "2", *load)
    assert figures["requests"] == 2 and figures["output_tokens"] == 6 and figures["turns"][0]["prompt_tokens"] == 32


def test_bench_serve_tells_failures(small_model, tmp_path):
    figures, why = bench_serve(small_model, "--requests", "3", "--prompt", "100000", code=2)
    assert figures["failed"] == figures["requests"] == 3 and figures["gap_ms"] == {} and "prompt_token_ids" in why
    bad = tmp_path / "bad"
    bad.write_text("1 2\n3 4 5\n")
    backwards = tmp_path / "backwards"
    backwards.write_text("5 1 1\n4 1 1\n")
    for flags, why in ((["--trace", bad], "line 2"), (["--trace", backwards], "earlier"), (["--trace", bad, "--requests", "9"], "line 2"),
                       (["--trace", backwards, "--prompt", "3"], "--prompt"), (["--rate", "1", "--in-flight", "2"], "--in-flight"),
                       (["--rate", "1", "--static-batches"], "--static-batches"), (["--turn-prompt", "4"], "--turns"), (["--trace", tmp_path / "none"], "none")):
        done = run(RELAY, "bench", "serve", "--model-server", small_model.address, *flags, check=False)
        assert done.returncode == 2 and why in done.stderr and done.stdout == "", flags
    assert run(RELAY, "bench", "serve", "--model-server", "127.0.0.1:1", check=False).returncode == 3


def test_bench_serve_tells_what_it_had_when_it_is_interrupted(small_model):
    command = [RELAY, "bench", "serve", "--model-server", small_model.address, "--requests", "100000", "--in-flight", "4"]
    bench = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        bench.wait(1.5)
    bench.send_signal(signal.SIGINT)
    out, err = bench.communicate(timeout=60)
    figures = json.loads(out)
    assert bench.returncode == 130 and err == "" and figures["failed"] == 0 and 0 < figures["requests"] < 100000
    wait_free(small_model)
