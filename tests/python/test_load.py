"""Both services under 64 callers at once that ask, cancel, err and leave; run once more with the sanitizers' builds."""
import concurrent.futures
import os
import random

import grpc
import pytest

CALLERS = 64
# A sanitizer's build is some ten times slower.
CALLS_EACH = 1 if os.environ.get("RELAY_BIN") else 3


@pytest.fixture(scope="module")
def protocol(stubs):
    from relay.v1 import generation_pb2, generation_pb2_grpc, model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
    return generation_pb2, generation_pb2_grpc, model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc


def test_sixty_four_callers(services, protocol):
    generation, generation_grpc, model, model_grpc, tokenizer, tokenizer_grpc = protocol
    model_service, text_service = services

    def generate(r, text, ids):
        request = generation.GenerateRequest(
            prompt="Once upon a time " * r.randrange(1, 4), sampling={"temperature": 1, "seed": r.randrange(1000), "top_k": 40, "top_p": 0.9},
            stop={"max_new_tokens": r.randrange(1, 8), "stop_strings": ["zzz", "the"]}, output={"top_logprobs": 2})
        call = generation_grpc.GenerationServiceStub(text).Generate(request, timeout=900)
        if r.random() < 0.3:
            next(call)
            call.cancel()
            return
        answers = list(call)
        assert answers[-1].finished.output_tokens >= 1

    def generate_ids(r, text, ids):
        request = model.GenerateTokensRequest(prompt_token_ids=[r.randrange(1, 1000) for _ in range(r.randrange(1, 40))],
                                              stop={"max_new_tokens": 4, "ignore_eos": True})
        call = model_grpc.ModelServiceStub(ids).GenerateTokens(request, timeout=900)
        if r.random() < 0.3:
            call.cancel()
            return
        assert sum(len(a.token_ids) for a in call) == 4

    def tokenize(r, text, ids):
        stub = tokenizer_grpc.TokenizerServiceStub(text)
        words = " ".join(r.choice(["wörld", "語", "😀", "hello", "\n"]) for _ in range(200))
        encoding = stub.Tokenize(tokenizer.TokenizeRequest(text=words), timeout=900).encoding
        assert stub.Detokenize(tokenizer.DetokenizeRequest(token_ids=encoding.token_ids), timeout=900).text == words

    def err(r, text, ids):
        with pytest.raises(grpc.RpcError) as error:
            list(generation_grpc.GenerationServiceStub(text).Generate(
                generation.GenerateRequest(prompt="x", sampling={"top_p": 2.0}), timeout=900))
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    def time_out(r, text, ids):
        with pytest.raises(grpc.RpcError) as error:
            list(generation_grpc.GenerationServiceStub(text).Generate(
                generation.GenerateRequest(prompt="x", stop={"ignore_eos": True}), timeout=0.3))
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED

    def look(r, text, ids):
        assert model_grpc.ModelServiceStub(ids).GetLoad(model.GetLoadRequest(), timeout=900).load.total_blocks > 0

    def caller(seed):
        r = random.Random(seed)
        with grpc.insecure_channel(text_service.address) as text, grpc.insecure_channel(model_service.address) as ids:
            for _ in range(CALLS_EACH):
                try:
                    r.choice([generate, generate, generate_ids, tokenize, err, time_out, look])(r, text, ids)
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.CANCELLED, error
    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        for done in [pool.submit(caller, seed) for seed in range(CALLERS)]:
            done.result()
    for service in services:
        assert "Sanitizer" not in service.log(), service.log()
