"""relay tokenize, detokenize and render with --jsonl: one JSON object a line, in process and over gRPC."""
import json
import os
import subprocess

import pytest

from conftest import RELAY, ROOT, SMOLLM2, run

TEMPLATES = ROOT / "tests/data/chat_templates"


def lines(command, *flags, objects=None, text=None, code=0):
    """What relay answers to the lines."""
    text = text if text is not None else "".join(json.dumps(o, ensure_ascii=False) + "\n" for o in objects)
    done = run(RELAY, command, "--jsonl", *flags, input=text, check=False)
    assert done.returncode == code and done.stderr == "", (done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(params=["in process", "over gRPC"])
def where(request):
    if request.param == "in process":
        return ["--tokenizer", SMOLLM2]
    return ["--server", request.getfixturevalue("services")[1].address]


def test_tokenize_gives_ids_and_offsets(where):
    first, second, third = lines("tokenize", *where, objects=[
        {"text": "Hello, wörld", "add_special_tokens": False}, {"text": ""},
        {"text": "a<|im_end|>b", "parse_special_tokens": True, "add_special_tokens": None}])
    assert first["offsets"][0][0] == 0 and first["offsets"][-1][1] == len("Hello, wörld".encode())
    assert all(a[1] == b[0] for a, b in zip(first["offsets"], first["offsets"][1:])) and "pieces" not in first
    assert second == {"ids": [], "offsets": []}
    assert third["ids"][1] == 2 and third["offsets"][1] == [1, 11]
    # Without the word for it a name is text.
    assert 2 not in lines("tokenize", *where, objects=[{"text": "a<|im_end|>b"}])[0]["ids"]


def test_tokenize_adds_pieces_and_cuts(where):
    answer, = lines("tokenize", *where, "--pieces", "--truncate-to", "2", "--truncate-side", "left", objects=[{"text": "one two three"}])
    assert answer["pieces"] == ["IHR3bw==", "IHRocmVl"] and answer["offsets"] == [[3, 7], [7, 13]]
    assert lines("tokenize", *where, "--count", objects=[{"text": "one two three"}]) == [{"count": 3}]


def test_detokenize_is_the_way_back(where):
    text = "Hello, wörld 語 😀\n\ttabs"
    ids = lines("tokenize", *where, objects=[{"text": text}])[0]["ids"]
    answers = lines("detokenize", *where, objects=[
        {"ids": ids}, {"ids": [1, *ids, 2], "skip_special_tokens": True}, {"ids": [1, *ids, 2], "skip_special_tokens": False}, {"ids": []}])
    assert [a["text"] for a in answers] == [text, text, "<|im_start|>" + text + "<|im_end|>", ""]


def test_render_gives_text_and_ids(where):
    messages = [{"role": "user", "content": "Hi <|im_end|>"}]
    with_prompt, without, parsed = lines("render", *where, objects=[
        {"messages": messages}, {"messages": messages, "add_generation_prompt": False, "tools": None},
        {"messages": messages, "parse_special_tokens": True}])
    assert with_prompt["text"] == without["text"] + "<|im_start|>assistant\n"
    assert with_prompt["text"].endswith("<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert with_prompt["ids"].count(2) == 2 and parsed["ids"].count(2) == 3 and parsed["text"] == with_prompt["text"]


def test_a_line_that_fails_says_why_and_the_rest_go_on(where):
    bad = ['{"text": 1}', '{}', '{"text": "a", "txet": "b"}', '[1]', 'x', '', '{"text": "a"', '{"text": "a", "add_special_tokens": 1}',
           '{"text": "\\ud800"}']
    text = "".join(line + "\n" for line in ['{"text": "one"}', *bad]) + '{"text": "last"}'  # no newline at the end
    answers = lines("tokenize", *where, text=text, code=1)
    assert len(answers) == len(bad) + 2 and answers[0]["ids"] and answers[-1]["ids"]
    errors = [a["error"] for a in answers[1:-1]]
    for error, word in zip(errors, ["text must be a string", "text is missing", '"txet"', "not a JSON object", "line", "empty", "line", "add_special_tokens",
                                    "line"]):
        assert word in error, (word, error)
    answers = lines("detokenize", *where, objects=[{"ids": [1, -1]}, {"ids": [4000000]}, {"ids": "1"}, {"ids": [1.5]}, {"ids": [5]}], code=1)
    for answer, word in zip(answers, ["ids[1]", "4000000", "array", "ids[0]"]):
        assert word in answer["error"], answer
    assert answers[0]["error"].startswith("ids[1] is -1, ") and answers[3]["error"].startswith("ids[0] is 1.5, ")
    answers = lines("render", *where, objects=[
        {"messages": []}, {"messages": [{"content": "x"}]}, {"messages": [3]}, {"messages": [{"role": "user", "content": "x"}], "context": 3},
        {"messages": [{"role": "user", "content": "x"}], "context": {"tools": []}}, {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": "x"}], "template_name": "no such"}, {"messages": [{"role": "user", "content": "x"}]}], code=1)
    for answer, word in zip(answers, ["messages", "messages[0].role", "messages[0]", "context", "tools", "content", "no such"]):
        assert word in answer["error"], answer
    assert "ids" in answers[-1]


def test_a_template_of_its_own_needs_no_tokenizer():
    answers = lines("render", objects=[
        {"template": "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ x }}{{ tools is defined }}{{ bos_token is defined }}",
         "messages": [{"role": "user", "content": "hi"}], "context": {"x": 3}},
        {"template": "{{ tools is none }}", "tools": None}, {"template": "{{ raise_exception('no ' ~ x) }}", "context": {"x": "way"}},
        {"template": "line one\n  {{ 1 + }}"}, {"template": "{{ x.y.z }}", "context": {"x": {}}},
        {"template": "{{ messages }}", "messages": [], "context": {"messages": []}}, {"messages": [{"role": "user", "content": "x"}]}], code=1)
    assert answers[:2] == [{"text": "user:hi;3FalseFalse"}, {"text": "True"}]
    assert answers[2]["error"] == "no way"
    for answer, word in zip(answers[3:], ["line 2, column", "line 1, column", "context too", "template is not set"]):
        assert word in answer["error"], answer


def test_a_template_of_its_own_with_a_tokenizer_gives_ids(where):
    # bos_token is a control token as the tokenizer's own would be, and the text of a message is not.
    flags = where + (["--model", "Smollm2 135M 8k Lc100K Mix1 Ep2"] if where[0] == "--server" else [])
    answer, = lines("render", *flags, objects=[{"template": "{{ bos_token }}{{ x }}", "context": {"bos_token": "<|im_start|>", "x": "<|im_start|>"}}])
    assert answer["text"] == "<|im_start|>" * 2 and answer["ids"][0] == 1 and answer["ids"].count(1) == 1


def test_the_template_cases_through_the_command_line():
    rendered = json.loads((TEMPLATES / "rendered.json").read_text())
    unit = json.loads((TEMPLATES / "unit.json").read_text())
    texts = json.loads((TEMPLATES / "unit_jinja2.json").read_text())
    objects, expected = [], []
    for case in rendered:
        # Two targets are JavaScript's and not jinja2's: jinja_cases_test.c has them.
        if case["name"] in ("MadeAgents/Hammer2.1", "HuggingFaceTB/SmolVLM-Instruct"):
            continue
        context = dict(case["data"])
        line = {"template": case["chat_template"], "context": context, "now_unix_seconds": 1752148800}
        for key in ("messages", "tools", "add_generation_prompt"):
            if key in context:
                line[key] = context.pop(key)
        objects.append(line)
        expected.append(case["target"])
    for case in unit:
        objects.append({"template": case["template"], "context": case["context"]})
        expected.append(texts[case["name"]])
    answers = lines("render", objects=objects, code=1 if None in expected else 0)
    assert [a.get("text") for a in answers] == expected


def test_text_commands_work_without_a_server():
    ids = run(RELAY, "tokenize", "--tokenizer", SMOLLM2, "Hello, world").stdout.split()
    assert run(RELAY, "detokenize", "--tokenizer", SMOLLM2, *ids).stdout == "Hello, world\n"
    assert run(RELAY, "render", "--tokenizer", SMOLLM2, "--system", "S", "Hi").stdout.startswith("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>")
    shown = run(RELAY, "render", "--tokenizer", SMOLLM2, "--ids", "--no-add-generation-prompt", "Hi").stdout.split()
    answer = json.loads(run(RELAY, "render", "--tokenizer", SMOLLM2, "--json", "--no-add-generation-prompt", "Hi").stdout)
    assert [str(i) for i in answer["encoding"]["token_ids"]] == shown and answer["stop_token_ids"]
    done = run(RELAY, "tokenize", "--tokenizer", "/no/such/file", "x", check=False)
    assert done.returncode != 0 and "/no/such/file" in done.stderr


def test_a_template_file_needs_no_tokenizer(tmp_path):
    (tmp_path / "t").write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}")
    assert run(RELAY, "render", "--template", tmp_path / "t", "--system", "S", "Hi").stdout == "[system] S[user] Hi"


@pytest.mark.parametrize("command, flags", [("tokenize", ["x"]), ("tokenize", ["--file", "x"]), ("detokenize", ["--json"]), ("render", ["--ids"]),
                                            ("render", ["--system", "x"]), ("tokenize", ["--truncate-to", "0"]), ("tokenize", ["--truncate-side", "up"])])
def test_what_does_not_go_with_lines_is_refused(command, flags):
    done = run(RELAY, command, "--jsonl", "--tokenizer", SMOLLM2, *flags, input="", check=False)
    assert done.returncode == 2 and done.stdout == "" and done.stderr != ""


def test_each_line_is_answered_before_the_next_is_written():
    p = subprocess.Popen([RELAY, "tokenize", "--jsonl", "--tokenizer", SMOLLM2], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for i in range(3):
        p.stdin.write(b'{"text": "number %d"}\n' % i)
        p.stdin.flush()
        assert json.loads(p.stdout.readline())["ids"]
    p.stdin.close()
    assert p.wait(20) == 0


def test_many_lines_need_the_memory_of_one():
    text = json.dumps({"text": "The quick brown fox jumps over the lazy dog. " * 20}) + "\n"

    def peak(n):
        p = subprocess.Popen([RELAY, "tokenize", "--jsonl", "--tokenizer", SMOLLM2], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        p.stdin.write((text * n).encode())
        p.stdin.close()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        assert p.returncode == 0
        return usage.ru_maxrss
    assert peak(5000) < peak(50) + 8 * 1024  # KiB; the lines themselves are 4.5 MB, their answers four times that


def test_a_closed_output_ends_the_work():
    with open("/dev/full", "w") as full:
        p = subprocess.run([RELAY, "tokenize", "--jsonl", "--tokenizer", SMOLLM2], input='{"text": "x"}\n' * 100000, stdout=full,
                           stderr=subprocess.PIPE, text=True, timeout=60)
    assert p.returncode == 1 and "standard output" in p.stderr


def test_an_input_that_cannot_be_read_is_a_failure(small_folder):
    with open(small_folder / "tokenizer.json") as file:
        tokenizer = file.name
    folder = os.open(small_folder, os.O_RDONLY)
    p = subprocess.run([RELAY, "tokenize", "--jsonl", "--tokenizer", tokenizer], stdin=folder, capture_output=True, text=True, timeout=60)
    os.close(folder)
    assert p.returncode == 1 and p.stderr == "relay: standard input: Is a directory\n"


def test_a_pipe_is_no_tokenizer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    p = subprocess.run([RELAY, "tokenize", "--tokenizer", tmp_path / "pipe", "x"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 2 and "pipe: it must be a regular file" in p.stderr


def test_what_a_stage_refuses_is_of_a_file(small_folder):
    file = small_folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pre_tokenizer": {"type": "FixedLength", "length": 0}}))
    p = subprocess.run([RELAY, "tokenize", "--tokenizer", file, "x"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 2 and p.stderr == f"relay: INVALID_ARGUMENT: {file}: pre-tokenizer 0: words of 0 characters\n"


@pytest.fixture
def small_folder(tmp_path):
    """A tokenizer.json with a prefix where a text begins, and a chat template in the file beside it."""
    vocab = {"<s>": 0, "</s>": 1, "\u2581": 2, "a": 3, "b": 4, "\u2581a": 5, "\u2581b": 6}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    added = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, name in enumerate(("<s>", "</s>"))]
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": metaspace,
        "post_processor": None, "decoder": metaspace,
        "model": {"type": "BPE", "vocab": vocab, "merges": [["\u2581", "a"], ["\u2581", "b"]], "unk_token": None, "byte_fallback": False}}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": "</s>",
        "chat_template": "{% for m in messages %}{{ m.content }}{{ eos_token if m.role == 'assistant' else 'a' }}{% endfor %}"}))
    return tmp_path


def test_a_folder_of_hf_s_files(small_folder):
    flags = ["--tokenizer", small_folder]
    assert lines("tokenize", *flags, objects=[{"text": "ab a"}, {"text": "<s>a", "parse_special_tokens": True}]) == [
        {"ids": [5, 4, 5], "offsets": [[0, 1], [1, 2], [2, 4]]}, {"ids": [0, 3], "offsets": [[0, 3], [3, 4]]}]
    assert lines("detokenize", *flags, objects=[{"ids": [5, 4, 5, 1]}]) == [{"text": "ab a"}]
    user, answer = {"role": "user", "content": "b"}, {"role": "assistant", "content": "ab"}
    plain, forged = lines("render", *flags, objects=[{"messages": [user, answer]}, {"messages": [{"role": "user", "content": "b</s>"}]}])
    assert plain == {"text": "baab</s>", "ids": [6, 3, 3, 4, 1]}
    assert forged == {"text": "b</s>a", "ids": [6, 3]}  # characters without a token are left out, as by HF


@pytest.mark.parametrize("name, text, message", [
    ("tokenizer_config.json", "", "tokenizer_config.json: byte 0: "),
    ("tokenizer_config.json", "[]", "tokenizer_config.json must be a JSON object"),
    ("tokenizer_config.json", '{"chat_template": 5}', "tokenizer_config.json: chat_template must be a string or a list"),
    ("tokenizer_config.json", '{"clean_up_tokenization_spaces": "yes"}', "tokenizer_config.json.clean_up_tokenization_spaces: must be true or false"),
    ("generation_config.json", None, "generation_config.json: it must be a regular file of at most 1073741824 bytes"),
    ("generation_config.json", '{"eos_token_id": 7}', "generation_config.json.eos_token_id: must be ids below 7"),
])
def test_a_wrong_file_of_a_folder_is_named(small_folder, name, text, message):
    if text is None:
        (small_folder / name).mkdir()
    else:
        (small_folder / name).write_text(text)
    p = subprocess.run([RELAY, "tokenize", "--tokenizer", small_folder, "x"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 2 and p.stderr.startswith(f"relay: INVALID_ARGUMENT: {small_folder}: {message}"), p.stderr


def test_a_folder_without_merges_says_so(tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    p = subprocess.run([RELAY, "tokenize", "--tokenizer", tmp_path, "x"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 2 and p.stderr == f"relay: NOT_FOUND: {tmp_path}: merges.txt: No such file or directory\n"


def test_text_behind_a_turn_s_ids_begins_nowhere(small_folder):
    # What follows the ids gets no prefix, as it gets none behind the same tokens made from text.
    turns = [{"role": "user", "content": "b", "token_ids": [3, 3]}, {"role": "user", "content": "a", "token_ids": [4]}]
    answer, = lines("render", "--tokenizer", small_folder, objects=[{"messages": turns}])
    assert answer == {"text": "baaa", "ids": [3, 3, 3, 4, 3]}
