"""relay bench: what it says is of the right shape. Times are asserted nowhere."""
import json

import pytest

from conftest import RELAY, SMOLLM2, run


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
