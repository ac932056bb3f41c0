"""Conversations over several turns: an answer's own ids go back into the next prompt."""
import json
import re

import grpc
import pytest

from conftest import run, RELAY

QUESTIONS = ["What is the capital of France?", "And of Italy?", "Tell me a joke about numbers: 123 456."]


@pytest.fixture
def api(services, stubs):
    from relay.v1 import generation_pb2, generation_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
    with grpc.insecure_channel(services[1].address) as channel:
        yield (generation_pb2, generation_pb2_grpc.GenerationServiceStub(channel), tokenizer_pb2, tokenizer_pb2_grpc.TokenizerServiceStub(channel))


def render(api, messages):
    answer = api[3].RenderChat(api[2].RenderChatRequest(chat={"messages": messages}), timeout=60)
    return list(answer.encoding.token_ids)


def test_each_prompt_begins_with_the_one_before_and_its_answer(api):
    generation, client = api[0], api[1]
    messages, before, changed = [], [], 0
    for seed, question in enumerate(QUESTIONS * 2):
        messages.append({"role": "user", "content": question})
        prompt = render(api, messages)
        assert prompt[:len(before)] == before
        # Hot, so that words come out in unusual pieces.
        request = generation.GenerateRequest(chat={"messages": messages}, sampling={"temperature": 1.7, "seed": seed}, stop={"max_new_tokens": 40},
                                             output={"return_token_ids": True})
        text, ids, started = "", [], None
        for message in client.Generate(request, timeout=60):
            started = message.started if message.HasField("started") else started
            text += message.text
            ids += [t.token_id for t in message.tokens]
        assert started.prompt_tokens == len(prompt)
        # All whole blocks of what is the same, but for the last id, which was never fed.
        assert started.cached_tokens >= (len(before) - 1) // 16 * 16, (started.cached_tokens, len(before))
        kept = ids[:-1] if ids[-1] == 2 else ids  # <|im_end|>, which the template writes
        before = prompt + kept
        messages.append({"role": "assistant", "content": text, "token_ids": ids})
        again = list(api[3].Tokenize(api[2].TokenizeRequest(text=text), timeout=60).encoding.token_ids)
        changed += again != kept
    assert changed > 0  # else the test has seen nothing: text alone would have given the same ids


def count(services, text):
    line = json.dumps({"text": text, "parse_special_tokens": True}) + "\n"
    return len(json.loads(run(RELAY, "tokenize", "--jsonl", "--server", services[1].address, input=line).stdout)["ids"])


def test_chat_keeps_the_ids(services):
    err = run(RELAY, "chat", "--server", services[1].address, "--temperature", "1.7", "--seed", "5", "--max-new-tokens", "60",
              input="".join(q + "\n" for q in QUESTIONS)).stderr
    turns = re.findall(r"prompt_tokens=(\d+) .* tokens=(\d+) finish_reason=(\w+)", err)
    assert len(turns) == len(QUESTIONS)
    # A turn's prompt is the one before, its answer as it was generated, and what the template and the question add: with
    # the answer's text instead it would be shorter, as words come in unusual pieces.
    for i in range(1, len(turns)):
        kept = int(turns[i - 1][1]) - (turns[i - 1][2] == "STOP_TOKEN")
        added = count(services, "<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n" % QUESTIONS[i])
        assert int(turns[i][0]) == int(turns[i - 1][0]) + kept + added, (i, turns)
