"""What relay-model keeps in memory, over many requests."""
import concurrent.futures
import os
import re
import urllib.request

import grpc
import pytest

from conftest import ROOT, SMOLLM2, start_model, wait_serving

STORIES = ROOT / "tests/data/stories260K.gguf"
MIB = 1 << 20
# Ten times as many with ./test --all.
REQUESTS = 10000 if os.environ.get("RELAY_TEST_ALL") else 1000


def metric(service, name):
    with urllib.request.urlopen("http://%s/metrics" % service.admin, timeout=10) as answer:
        return float(re.search(r"^%s(?:\{.*\})? (\S+)$" % name, answer.read().decode(), re.M).group(1))


def generate(pb, stub, n):
    """A request of a shape that depends on n; some are cancelled half-way."""
    request = pb.GenerateTokensRequest(prompt_token_ids=[1 + (n * 7 + i) % 500 for i in range(1 + n % 60)],
                                       stop={"max_new_tokens": 1 + n % 20, "ignore_eos": True},
                                       sampling={"temperature": 1, "seed": n, "repetition_penalty": 1.1})
    call = stub.GenerateTokens(request, timeout=60)
    for k, _ in enumerate(call):
        if n % 10 == 0 and k == 2:
            call.cancel()
            return


def test_no_growth_over_many_requests(stubs):
    from relay.v1 import model_pb2, model_pb2_grpc
    model = start_model(STORIES, "--kv-memory", "4MiB", "--max-running", "16")
    wait_serving(model)

    def some(first, count):
        with grpc.insecure_channel(model.address) as channel, concurrent.futures.ThreadPoolExecutor(16) as pool:
            stub = model_pb2_grpc.ModelServiceStub(channel)
            futures = [pool.submit(generate, model_pb2, stub, n) for n in range(first, first + count)]
            for f in futures:
                try:
                    f.result()
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.CANCELLED, error
    some(0, 500)
    before = metric(model, "process_resident_memory_bytes")
    some(500, REQUESTS)
    after = metric(model, "process_resident_memory_bytes")
    print("resident: %.1f MiB before, %.1f MiB after %d requests" % (before / MIB, after / MIB, REQUESTS))
    assert after - before < 4 * MIB
    assert metric(model, "relay_requests_running") == 0 and metric(model, "relay_kv_cache_used_blocks") == 0
    assert model.stop() == 0


@pytest.mark.parametrize("kv_type", ["f16", "f32", "int4"])
def test_resident_size_is_weights_and_touched_blocks_and_little_else(stubs, kv_type):
    from relay.v1 import model_pb2, model_pb2_grpc
    model = start_model(SMOLLM2, "--kv-type", kv_type)
    wait_serving(model)

    def check():
        resident = metric(model, "process_resident_memory_bytes")
        weights, touched = metric(model, "relay_model_weight_bytes"), metric(model, "relay_kv_cache_touched_bytes")
        print("resident %.1f MiB, weights %.1f MiB, KV touched %.1f MiB" % (resident / MIB, weights / MIB, touched / MIB))
        assert resident <= weights + touched + 100 * MIB
        return touched
    idle = check()
    with grpc.insecure_channel(model.address) as channel:
        stub = model_pb2_grpc.ModelServiceStub(channel)
        for _ in stub.GenerateTokens(model_pb2.GenerateTokensRequest(
                prompt_token_ids=[5 + i % 1000 for i in range(1200)], stop={"max_new_tokens": 3}), timeout=120):
            pass
    assert check() > idle
    assert model.stop() == 0
