"""Structured output through both services: whatever the sampler, what comes out is what the constraint says."""
import concurrent.futures
import json
import re
import urllib.request

import grpc
import pytest

from conftest import RELAY, SMOLLM2, run, start_model, wait_serving

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2},
    },
    "required": ["name", "age"],
}
EXPR = 'root ::= num ("+" num){1,3}\nnum ::= [1-9] [0-9]{0,2}'


def is_person(text):
    value = json.loads(text)
    assert set(value) <= set(SCHEMA["properties"]) and {"name", "age"} <= set(value)
    assert isinstance(value["age"], int) and 18 <= value["age"] <= 99
    assert 1 <= len(value["name"]) <= 12 and len(value.get("tags", [])) <= 2
    assert all(tag in ("red", "green") for tag in value.get("tags", []))
    return True


CONSTRAINTS = {
    "json_schema": ({"json_schema": json.dumps(SCHEMA)}, is_person),
    "regex": ({"regex": r"(Mon|Tues|Wednes)day, [0-9]{1,2}:[0-5][0-9]"},
              lambda t: re.fullmatch(r"(Mon|Tues|Wednes)day, [0-9]{1,2}:[0-5][0-9]", t)),
    "choices": ({"choices": {"choice": ["yes", "no", "no idea"]}}, lambda t: t in ("yes", "no", "no idea")),
    "grammar": ({"grammar": EXPR}, lambda t: re.fullmatch(r"[1-9][0-9]{0,2}(\+[1-9][0-9]{0,2}){1,3}", t)),
}
SAMPLERS = {
    "greedy": {"temperature": 0},
    "hot": {"temperature": 1.8},
    "truncated": {"temperature": 1, "top_k": 5, "top_p": 0.8, "min_p": 0.05},
    "penalized": {"temperature": 0.7, "repetition_penalty": 1.3, "frequency_penalty": 1, "presence_penalty": 1},
}


@pytest.fixture
def generate(services, stubs):
    from relay.v1 import generation_pb2, generation_pb2_grpc
    with grpc.insecure_channel(services[1].address) as channel:
        client = generation_pb2_grpc.GenerationServiceStub(channel)

        def call(constraint, sampling=None, prompt="Say something: ", **stop):
            request = generation_pb2.GenerateRequest(prompt=prompt, sampling=dict(sampling or {}, constraint=constraint),
                                                     stop=dict({"max_new_tokens": 200}, **stop))
            text, finished = "", None
            for message in client.Generate(request, timeout=120):
                text += message.text
                finished = message.finished if message.HasField("finished") else finished
            return text, finished

        yield call


def reason(finished):
    from relay.v1 import sampling_pb2
    return sampling_pb2.FinishReason.Name(finished.reason)[len("FINISH_REASON_"):]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_every_output_is_what_was_asked_for(generate, kind, sampler):
    constraint, check = CONSTRAINTS[kind]
    for seed in range(3):
        text, finished = generate(constraint, dict(SAMPLERS[sampler], seed=seed))
        assert check(text), text
        assert reason(finished) in ("EOS", "CONSTRAINT_DONE"), (text, finished)


def test_any_json_is_json_or_was_cut(generate):
    for seed in range(4):
        text, finished = generate({"any_json": True}, {"temperature": 1, "seed": seed}, prompt="A JSON object: ")
        if reason(finished) != "MAX_NEW_TOKENS":
            json.loads(text)


def test_what_cannot_go_on_ends_at_once(generate):
    text, finished = generate({"regex": "abc"}, {"temperature": 0})
    assert text == "abc" and reason(finished) == "CONSTRAINT_DONE"


def test_min_new_tokens_and_ignore_eos_do_not_run_into_nothing(generate):
    text, finished = generate({"regex": "abc"}, min_new_tokens=50)
    assert text == "abc" and reason(finished) == "CONSTRAINT_DONE"
    text, finished = generate({"regex": "a{3,5}"}, ignore_eos=True)
    assert text == "aaaaa" and reason(finished) == "CONSTRAINT_DONE"


def test_nothing_is_constrained_before_start_after(generate):
    text, finished = generate({"choices": {"choice": ["<yes>", "<no>"]}, "start_after": "."}, {"temperature": 0.8, "seed": 1},
                              prompt="The weather is fine today. I like ")
    before, after = text.split(".", 1)
    assert len(before) > 0 and after in ("<yes>", "<no>"), text
    assert reason(finished) == "CONSTRAINT_DONE"


@pytest.mark.parametrize("constraint, wants", [
    ({"json_schema": '{"type":"object","properties":{"a":{"not":{}}}}'}, ['sampling.constraint.json_schema', '"/properties/a"', '"not"']),
    ({"json_schema": "{"}, ["sampling.constraint.json_schema", "byte 1"]),
    ({"json_schema": '{"$ref":"#"}'}, ["matches no text"]),
    ({"json_schema": '{"anyOf":[{"$ref":"#"},{"type":"null"}]}'}, ["left recursion"]),
    ({"json_schema": "false"}, ["matches no text"]),
    ({"regex": r"(a)\1"}, ["sampling.constraint.regex", "byte 3", "backreferences"]),
    ({"regex": "((a{1000}){1000}){1000}"}, ["sampling.constraint.regex", "too complex"]),
    ({"grammar": 'root ::= root "a" | "b"'}, ["sampling.constraint.grammar", "root", "left recursion"]),
    ({"grammar": "root ::= x"}, ["sampling.constraint.grammar", "line 1", "x is not defined"]),
    ({"choices": {"choice": []}}, ["sampling.constraint.choices is empty"]),
    ({"any_json": False}, ["sampling.constraint.any_json is false"]),
    ({"start_after": "x"}, ["sampling.constraint has none of"]),
])
def test_what_is_wrong_is_said(generate, constraint, wants):
    for _ in range(2):  # compiled, and remembered
        with pytest.raises(grpc.RpcError) as error:
            generate(constraint)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert all(want in error.value.details() for want in wants), error.value.details()


def test_the_command_line_has_each_kind(services, tmp_path):
    server = ["--server", services[1].address, "--temperature", 0, "--max-new-tokens", 60]
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text(EXPR)

    def answer(*flags):
        return run(RELAY, "generate", *server, *flags, "Say something: ").stdout.rstrip("\n")

    assert is_person(answer("--json-schema", schema))
    assert is_person(answer("--json-schema", json.dumps(SCHEMA)))
    assert re.fullmatch("[ab]{3}", answer("--regex", "[ab]{3}"))
    assert answer("--choices", "yes", "--choices", "no") in ("yes", "no")
    assert CONSTRAINTS["grammar"][1](answer("--grammar", grammar))
    done = run(RELAY, "generate", *server, "--regex", "a", "--any-json", "x", check=False)
    assert done.returncode == 2 and "regex" in done.stderr and "any-json" in done.stderr


@pytest.fixture
def model(services, stubs):
    """Answers of the model service alone, by ids: a function from a constraint to (ids, finished) of each answer."""
    from relay.v1 import model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
    with grpc.insecure_channel(services[0].address) as channel, grpc.insecure_channel(services[1].address) as text_channel:
        client = model_pb2_grpc.ModelServiceStub(channel)
        text_client = tokenizer_pb2_grpc.TokenizerServiceStub(text_channel)
        prompt = list(text_client.Tokenize(tokenizer_pb2.TokenizeRequest(text="Say something: "), timeout=60).encoding.token_ids)

        def call(sampling, stop=None, client=client, **fields):
            request = model_pb2.GenerateTokensRequest(prompt_token_ids=prompt, sampling=sampling, stop=dict({"max_new_tokens": 150}, **(stop or {})), **fields)
            answers = {}
            for message in client.GenerateTokens(request, timeout=120):
                ids, finished = answers.get(message.index, ([], None))
                answers[message.index] = (ids + list(message.token_ids), message.finished if message.HasField("finished") else finished)
            return [answers[i] for i in sorted(answers)]

        call.stub = model_pb2_grpc.ModelServiceStub
        call.text = lambda ids: text_client.Detokenize(tokenizer_pb2.DetokenizeRequest(token_ids=ids, skip_special_tokens=True), timeout=60).text
        yield call


HOT = {"temperature": 1.2, "seed": 5, "constraint": CONSTRAINTS["json_schema"][0]}


def test_an_answer_resumed_anywhere_is_the_same(model):
    [(ids, finished)] = model(HOT)
    assert is_person(model.text(ids)) and len(ids) > 8
    for n in (1, len(ids) // 2, len(ids) - 1):
        [(rest, again)] = model(HOT, resume={"generated_token_ids": ids[:n]})
        assert rest == ids[n:] and again.reason == finished.reason, n


def test_several_answers_each_keep_to_it(model):
    answers = model(HOT, num_sequences=4)
    assert len(answers) == 4 and len({tuple(ids) for ids, _ in answers}) > 1
    for ids, finished in answers:
        assert is_person(model.text(ids)), ids
        assert reason(finished) in ("EOS", "CONSTRAINT_DONE")


def test_preempted_answers_are_the_same(model, services):
    wanted = {seed: model(dict(HOT, seed=seed))[0][0] for seed in range(6)}
    # Blocks for three and a bit: the youngest lose theirs again and again.
    small = start_model(SMOLLM2, "--kv-memory", "3MiB", "--max-context", "256")
    try:
        wait_serving(small)
        with grpc.insecure_channel(small.address) as channel, concurrent.futures.ThreadPoolExecutor(6) as pool:
            calls = {seed: pool.submit(model, dict(HOT, seed=seed), client=model.stub(channel)) for seed in wanted}
            for seed, call in calls.items():
                assert call.result()[0][0] == wanted[seed]
        metrics = urllib.request.urlopen("http://%s/metrics" % small.admin, timeout=60).read().decode()
        assert int(re.search(r"^relay_preemptions_total (\d+)", metrics, re.M).group(1)) > 0
    finally:
        assert small.stop() == 0


def test_what_is_resumed_must_be_what_is_allowed(model):
    with pytest.raises(grpc.RpcError) as error:
        model({"constraint": {"regex": "[0-9]+"}}, resume={"generated_token_ids": [30, 314, 42]})
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "resume.generated_token_ids[" in error.value.details() and "sampling.constraint" in error.value.details()


def test_stop_ids_come_where_the_answer_is_complete(model):
    # Whatever the ids write: they are no text here.
    [(ids, finished)] = model({"temperature": 0, "constraint": {"regex": "(yes|no)+"}}, stop={"stop_token_ids": [30, 31], "ignore_eos": True, "max_new_tokens": 400})
    assert re.fullmatch("(yes|no)+", model.text(ids[:-1] if reason(finished) == "STOP_TOKEN" else ids)), ids


def test_nothing_left_to_draw_is_said(model):
    with pytest.raises(grpc.RpcError) as error:
        model({"constraint": {"regex": "[0-9]{3}"}, "allowed_token_ids": [1, 2, 3]})
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "no id is left" in error.value.details() and "sampling.constraint" in error.value.details()
