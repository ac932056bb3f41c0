"""Start, stop and the admin port of both services, as an operator meets them."""
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import BIN, GO_BIN, RELAY, ROOT, SMOLLM2, Service, load, run, start_model, start_tokenizer, wait_running, wait_serving


def get(address, path):
    try:
        with urllib.request.urlopen("http://%s%s" % (address, path), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def begin_to_drain(service):
    service.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 20
    # Two signals at once may come as one.
    while "draining" not in service.log():
        assert time.monotonic() < deadline, service.log()
        time.sleep(0.01)


def generating(tokenizer, tokens, temperature=0):
    return subprocess.Popen([RELAY, "generate", "--server", tokenizer.address, "--ignore-eos", "--max-new-tokens", str(tokens),
                             "--temperature", str(temperature), "--json", "Once upon a time"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_metrics_are_prometheus_text(services):
    run(RELAY, "generate", "--server", services[1].address, "--max-new-tokens", "3", "x")
    for service, names in zip(services, (
            ["relay_requests_waiting", "relay_requests_running", "relay_kv_cache_usage_ratio", "relay_time_to_first_token_seconds_bucket",
             "relay_decode_tokens_total", "relay_prefill_tokens_total", "process_resident_memory_bytes", "jemalloc_allocated_bytes"],
            ["relay_rpc_requests_total", "process_resident_memory_bytes", "jemalloc_allocated_bytes"])):
        status, text = get(service.admin, "/metrics")
        assert status == 200
        for name in names:
            assert re.search("^%s[ {]" % name, text, re.M), (name, text)
        for line in text.splitlines():
            assert line.startswith("#") or re.fullmatch(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})? (-?[0-9.e+-]+|NaN|[+-]Inf)', line), line


def test_admin_port_health(services):
    for service in services:
        assert get(service.admin, "/healthz")[0] == 200
        assert get(service.admin, "/readyz")[0] == 200
        assert get(service.admin, "/nothing")[0] == 404


def test_sigterm_lets_running_answers_finish():
    model = start_model()
    tokenizer = start_tokenizer(model)
    wait_serving(model, tokenizer)
    answer = generating(tokenizer, 300)
    wait_running(model)
    model.process.send_signal(signal.SIGTERM)
    # Not ready at once, while the answer goes on.
    deadline = time.monotonic() + 5
    while run(GO_BIN / "grpc-health-probe", "-addr", model.address, check=False).returncode == 0 and model.process.poll() is None:
        assert time.monotonic() < deadline
    out, err = answer.communicate(timeout=90)
    last = json.loads(out.splitlines()[-1])
    assert answer.returncode == 0 and last["finished"]["output_tokens"] == 300, err
    assert model.process.wait(30) == 0
    assert tokenizer.stop() == 0


def test_sigterm_twice_ends_at_once():
    model = start_model()
    tokenizer = start_tokenizer(model)
    wait_serving(model, tokenizer)
    answer = generating(tokenizer, 6000)
    wait_running(model)
    begin_to_drain(model)
    time.sleep(0.3)
    assert model.process.poll() is None
    model.process.send_signal(signal.SIGTERM)
    assert model.process.wait(10) == 0
    answer.communicate(timeout=30)
    # Told, not left hanging: a cut answer, or UNAVAILABLE.
    assert answer.returncode in (0, 3)
    assert tokenizer.stop() == 0


def test_sigterm_twice_ends_a_tokenizer_whose_workers_are_busy():
    tokenizer = Service(BIN / "tokenizer_svc/relay-tokenizer", "--tokenizer", SMOLLM2, "--threads", "2")
    wait_serving(tokenizer)
    template = "{% set s = 'a b' * 100000 %}{% for i in range(9999) %}{% if s | wordcount == 5 %}{% endif %}{% endfor %}"
    request = json.dumps({"chat": {"messages": [{"role": "user", "content": "x"}]}, "template": template})
    # With descriptors, so that no call of reflection is counted among them.
    calls = [subprocess.Popen([GO_BIN / "grpcurl", "-plaintext", "-protoset", BIN / "proto/descriptors.pb", "-d", request,
                               tokenizer.address, "relay.v1.TokenizerService/RenderChat"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(3)]
    deadline = time.monotonic() + 20
    while float(re.search(r"^relay_rpc_active (\S+)$", get(tokenizer.admin, "/metrics")[1], re.M).group(1)) < len(calls):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    begin_to_drain(tokenizer)
    tokenizer.process.send_signal(signal.SIGTERM)
    assert tokenizer.process.wait(2) == 0
    for call in calls:
        assert call.wait(10) != 0


def test_tokenizer_drains_its_own_answers():
    model = start_model()
    tokenizer = start_tokenizer(model)
    wait_serving(model, tokenizer)
    answer = generating(tokenizer, 200)
    wait_running(model)
    tokenizer.process.send_signal(signal.SIGTERM)
    out, err = answer.communicate(timeout=90)
    assert answer.returncode == 0 and json.loads(out.splitlines()[-1])["finished"]["output_tokens"] == 200, err
    assert tokenizer.process.wait(30) == 0
    assert model.stop() == 0


def test_tokenizer_outlives_its_model_and_finds_the_next():
    model = start_model()
    port = model.address.rsplit(":", 1)[1]
    tokenizer = start_tokenizer(model)
    wait_serving(model, tokenizer)
    assert model.stop() == 0
    done = run(RELAY, "generate", "--server", tokenizer.address, "--max-new-tokens", "2", "x", check=False)
    assert done.returncode == 3, done.stderr
    # Text needs no model.
    assert run(RELAY, "tokenize", "--server", tokenizer.address, "x").stdout.strip().isdigit()
    again = start_model(SMOLLM2, "--listen", "127.0.0.1:" + port)
    wait_serving(again, tokenizer)
    assert run(RELAY, "generate", "--server", tokenizer.address, "--max-new-tokens", "2", "x").returncode == 0
    assert tokenizer.stop() == 0 and again.stop() == 0


def test_another_vocabulary_is_refused():
    stories = ROOT / "tests/data/stories260K.gguf"
    model = start_model(stories)
    tokenizer = start_tokenizer(model)
    wait_serving(model)
    done = run(RELAY, "generate", "--server", tokenizer.address, "x", check=False)
    assert done.returncode == 1 and "FAILED_PRECONDITION" in done.stderr and "fingerprint" in done.stderr, done.stderr
    assert tokenizer.stop() == 0 and model.stop() == 0


@pytest.mark.parametrize("flags, status, words", [
    (["--model", "/no/such/file"], 1, ["/no/such/file"]),
    (["--model", ROOT / "README.md"], 1, ["magic"]),
    (["--model", SMOLLM2, "--kv-type", "q3"], 2, ["--kv-type", "q3", "f16"]),
    (["--model", SMOLLM2, "--threads", "-1"], 2, ["--threads", "-1"]),
    (["--model", SMOLLM2, "--nonsense", "1"], 2, ["--nonsense"]),
    (["--model", SMOLLM2, "--listen", "127.0.0.1:99999"], 2, ["--listen", "99999"]),
    (["--model", SMOLLM2, "--listen", "nonsense"], 2, ["--listen", "nonsense", "HOST:PORT"]),
    (["--model", SMOLLM2, "--listen", ""], 2, ["--listen"]),
    (["--model", SMOLLM2, "--admin-listen", "::1:80"], 2, ["--admin-listen", "::1:80"]),
    (["--model", SMOLLM2, "--kernels", "abacus"], 2, ["--kernels", "abacus", "ref"]),
    (["--model", SMOLLM2, "--max-context", "1"], 2, ["--max-context is 1"]),
    (["--model", SMOLLM2, "--max-context", "100000"], 2, ["--max-context is 100000", "8192"]),
    (["--model", SMOLLM2, "--max-queued-requests", "65537"], 2, ["--max-queued-requests", "65537", "65536"]),
    (["--model", SMOLLM2, "--kv-memory", "1"], 2, ["--kv-memory is 1 bytes", "16 positions"]),
    (["--model", SMOLLM2, "--kv-memory", "900000GiB"], 2, ["--kv-memory is 966367641600000 bytes", "bytes of memory"]),
])
def test_a_wrong_start_says_why(flags, status, words):
    done = run(BIN / "model_svc/relay-model", "--listen", "127.0.0.1:0", *flags, check=False, timeout=30)
    assert done.returncode == status, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("flags, words", [
    (["--listen", "nonsense"], ["--listen", "nonsense"]),
    (["--model-server", "nonsense"], ["--model-server", "nonsense", "HOST:PORT"]),
    (["--model-server", ","], ["--model-server"]),
    (["--model-server", "a:1,b"], ["--model-server", '"b"']),
    (["--model-server", "a:0"], ["--model-server", "a:0"]),
    (["--model-server", ":50052"], ["--model-server", ":50052"]),
    (["--model-server", "dns:///a"], ["--model-server", "a"]),
    (["--model-server", "dns://a:1"], ["--model-server", "dns://a:1"]),
])
def test_a_wrong_start_of_the_tokenizer_says_why(flags, words):
    done = run(BIN / "tokenizer_svc/relay-tokenizer", "--tokenizer", SMOLLM2, *flags, check=False, timeout=30)
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_every_form_of_a_model_server_is_taken():
    """They get past the flags: what ends this start is the file."""
    servers = "localhost:1,[::1]:1,dns:a:1,dns:///a:1,dns://1.1.1.1/a:65535,ipv4:127.0.0.1:1,ipv6:[::1]:1"
    done = run(BIN / "tokenizer_svc/relay-tokenizer", "--tokenizer", "/no/such/file", "--model-server", servers, check=False, timeout=30)
    assert done.returncode == 1 and "/no/such/file" in done.stderr, done.stderr


def test_more_threads_than_processors_are_warned_of():
    done = run(BIN / "model_svc/relay-model", "--listen", "127.0.0.1:0", "--model", "/no/such/file", "--threads", "1000", check=False,
               timeout=30)
    assert "more threads than processors" in done.stderr and "threads=1000" in done.stderr, done.stderr


def test_the_processors_counted_are_those_that_the_process_may_use():
    one = str(min(os.sched_getaffinity(0)))
    done = run("taskset", "-c", one, BIN / "model_svc/relay-model", "--listen", "127.0.0.1:0", "--model", "/no/such/file", "--threads",
               "2", check=False, timeout=30)
    assert "more threads than processors" in done.stderr and "threads=2 processors=1" in done.stderr, done.stderr


def test_the_log_tells_a_deadline_from_a_cancel():
    model = start_model()
    tokenizer = start_tokenizer(model)
    wait_serving(model, tokenizer)
    late = run(RELAY, "generate", "--server", tokenizer.address, "--ignore-eos", "--max-new-tokens", "4000", "--timeout", "2", "x",
               check=False)
    assert late.returncode != 0 and "DEADLINE_EXCEEDED" in late.stderr, late.stderr
    cancelled = generating(tokenizer, 4000)
    cancelled.stdout.readline()
    cancelled.kill()
    cancelled.communicate()
    until = time.monotonic() + 20
    while tokenizer.log().count("request finished") < 2 and time.monotonic() < until:
        time.sleep(0.02)
    ends = re.findall(r"finish=(\S+)", tokenizer.log())
    assert ends == ["DEADLINE_EXCEEDED", "CANCELLED"], tokenizer.log()
    assert tokenizer.stop() == 0 and model.stop() == 0


def test_the_load_has_the_time_of_its_snapshot():
    model = start_model(ROOT / "tests/data/stories260K.gguf")
    wait_serving(model)
    time.sleep(0.2)
    first, asked = load(model), time.time()
    time.sleep(0.1)
    again = load(model)
    assert first["snapshotUnixMs"] == again["snapshotUnixMs"]
    assert int(first["snapshotUnixMs"]) < asked * 1000 - 100
    assert model.stop() == 0


def test_the_smallest_parameters_give_an_answer(services):
    out = run(RELAY, "generate", "--server", services[1].address, "--temperature", "1e-38", "--repetition-penalty", "1e-38",
              "--max-new-tokens", "5", "--ignore-eos", "--json", "The sea").stdout
    assert json.loads(out.splitlines()[-1])["finished"]["output_tokens"] == 5


def test_many_clients_get_what_each_gets_alone(services):
    """Sixteen clients at once, each with its own seed, get what each gets alone."""
    def answer(seed):
        out = run(RELAY, "generate", "--server", services[1].address, "--json", "--return-token-ids", "--temperature", "1", "--seed",
                  str(seed), "--max-new-tokens", "24", "The sea").stdout
        return [t["token_id"] for line in out.splitlines() for t in json.loads(line).get("tokens", [])]
    alone = [answer(seed) for seed in range(4)]
    together = {}
    threads = [threading.Thread(target=lambda s=s: together.__setitem__(s, answer(s % 4))) for s in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(alone[0]) == 24
    for s in range(16):
        assert together[s] == alone[s % 4]
