"""Structured output through both services: whatever the sampler, what comes out is what the constraint says."""
import json
import re

import grpc
import pytest

from conftest import RELAY, run

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
