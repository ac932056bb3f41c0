"""relay, the command line tool: what a person and a script see."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from conftest import RELAY, SMOLLM2, run

ASK = "What is the capital of France?"


def relay(services, *args, check=True, **kwargs):
    return run(RELAY, args[0], "--server", services[1].address, *args[1:], check=check, **kwargs)


@pytest.mark.parametrize("command", ["chat", "generate", "tokenize", "detokenize", "render", "score", "info", "bench tokenize"])
def test_help_of_each_command(command):
    done = run(RELAY, *command.split(), "--help")
    assert done.stdout.startswith("usage: relay %s" % command) and "--server" in done.stdout and done.stderr == ""


def test_help_names_the_commands_and_exit_codes():
    out = run(RELAY, "--help").stdout
    for word in ("chat", "generate", "tokenize", "detokenize", "info", "Exit codes"):
        assert word in out


def test_unknown_command_and_flag_are_usage_errors():
    for args in ([], ["nonsense"], ["generate", "--no-such-flag", "x"], ["generate", "--top-k"], ["generate", "--top-k", "many", "x"]):
        done = run(RELAY, *args, check=False)
        assert done.returncode == 2 and done.stderr != "" and done.stdout == "", args


def test_no_server_is_exit_code_3():
    done = run(RELAY, "generate", "--server", "127.0.0.1:1", "x", check=False)
    assert done.returncode == 3 and "127.0.0.1:1" in done.stderr


def test_generate_answers_and_gives_figures(services):
    done = relay(services, "generate", "--chat", "--stats", "--temperature", "0", "--max-new-tokens", "60", ASK)
    assert "Paris" in done.stdout
    assert re.fullmatch(r"prompt_tokens=\d+ time_to_first_token=[\d.]+ms time_per_output_token=[\d.]+ms tokens=\d+ finish_reason=\w+\n",
                        done.stderr), done.stderr


def test_prompt_from_argument_file_and_standard_input_is_one(services, tmp_path):
    path = tmp_path / "prompt"
    path.write_text("Once upon a time")
    flags = ["--temperature", "0", "--max-new-tokens", "12"]
    answers = {relay(services, "generate", *flags, "Once", "upon", "a", "time").stdout, relay(services, "generate", *flags, "--file", path).stdout,
               relay(services, "generate", *flags, input="Once upon a time").stdout}
    assert len(answers) == 1 and len(answers.pop()) > 4


def test_json_is_one_object_a_message(services):
    out = relay(services, "generate", "--json", "--temperature", "0", "--max-new-tokens", "5", "--top-logprobs", "2", "Once upon a time").stdout
    messages = [json.loads(line) for line in out.splitlines()]
    assert messages[0]["started"]["prompt_tokens"] > 0
    assert messages[-1]["finished"]["reason"] == "FINISH_REASON_MAX_NEW_TOKENS" and messages[-1]["finished"]["output_tokens"] == 5
    tokens = [t for m in messages for t in m.get("tokens", [])]
    assert len(tokens) == 5
    for token in tokens:
        assert token["logprob"] == pytest.approx(token["top"]["logprobs"][0]) and len(token["top"]["token_ids"]) == 2


def test_seed_gives_the_same_answer_and_another_seed_another(services):
    def answer(seed):
        return relay(services, "generate", "--temperature", "1.5", "--max-new-tokens", "24", "--seed", str(seed), "The").stdout
    assert answer(1) == answer(1) and answer(1) != answer(2)


def test_stop_string_ends_the_answer(services):
    flags = ["--chat", "--temperature", "0", "--max-new-tokens", "40"]
    whole = relay(services, "generate", *flags, ASK).stdout
    assert "Paris" in whole
    assert relay(services, "generate", *flags, "--stop", "zzz", "--stop", "Paris", ASK).stdout.rstrip("\n") == whole.split("Paris")[0]
    assert relay(services, "generate", *flags, "--stop", "Paris", "--include-stop-string", ASK).stdout.rstrip("\n").endswith("Paris")


@pytest.mark.parametrize("flags, field", [
    (["--temperature", "3"], "temperature"), (["--top-p", "0"], "top_p"), (["--min-p", "2"], "min_p"),
    (["--repetition-penalty", "0"], "repetition_penalty"), (["--frequency-penalty", "5"], "frequency_penalty"),
    (["--presence-penalty", "-9"], "presence_penalty"), (["--top-logprobs", "21"], "top_logprobs"),
    (["--stop-token-ids", "4000000"], "stop_token_ids"), (["--stop", ""], "stop_strings"), (["--max-new-tokens", "0"], "max_new_tokens"),
    (["--typical-p", "0"], "typical_p"), (["--top-n-sigma", "-1"], "top_n_sigma"), (["--xtc-threshold", "0.2"], "xtc_threshold"),
    (["--mirostat", "3"], "mirostat.version"), (["--mirostat", "2", "--top-k", "5"], "mirostat"), (["--mirostat-eta", "2"], "mirostat.eta"),
    (["--dry-base", "0.5"], "dry.penalty_base"), (["--dry-breaker", ""], "dry.breakers[0]"), (["--dry-breaker-ids", "4000000"], "dry.breaker_token_ids"),
    (["--logit-bias", "5=200"], "logit_bias[0].bias"), (["--logit-bias", "5=1,5=2"], "logit_bias"), (["--logit-bias", "5"], "ID=BIAS"),
    (["--allowed-token-ids", "4000000"], "allowed_token_ids"), (["--allowed-token-ids", "5", "--banned-token-ids", "5"], "banned_token_ids"),
])
def test_a_wrong_value_is_named(services, flags, field):
    done = relay(services, "generate", *flags, "x", check=False)
    assert done.returncode == 2 and field in done.stderr and "INVALID_ARGUMENT" in done.stderr, done.stderr


def test_each_sampler_changes_the_answer(services):
    flags = ["--temperature", "1.2", "--seed", "3", "--max-new-tokens", "24", "--ignore-eos", "Once upon a time there was a cat. The cat was a cat."]
    samplers = [[], ["--typical-p", "0.3"], ["--top-n-sigma", "0.5"], ["--xtc-probability", "1", "--xtc-threshold", "0.05"], ["--mirostat", "1", "--mirostat-tau", "2"],
                ["--mirostat", "2", "--mirostat-tau", "1", "--mirostat-eta", "0.5"], ["--repetition-penalty", "2"], ["--repetition-penalty", "2", "--penalty-window", "2"],
                ["--logit-bias", "28=100"], ["--allowed-token-ids", "28,30,32,198"]]
    answers = [relay(services, "generate", *sampler, *flags).stdout for sampler in samplers]
    assert len(set(answers)) == len(samplers), answers
    repeats = ["generate", "--temperature", "0", "--max-new-tokens", "40", "--ignore-eos", "cat dog bird, cat dog bird, cat dog bird, cat dog"]
    plain = relay(services, *repeats).stdout
    for sampler in (["--no-repeat-ngram-size", "2"], ["--dry-multiplier", "5"], ["--dry-multiplier", "9", "--dry-allowed-length", "1"]):
        assert relay(services, repeats[0], *sampler, *repeats[1:]).stdout != plain, sampler


def test_scores_are_the_same_in_process_and_from_the_server(services, tmp_path):
    lines = '{"ids": [504, 3575, 282, 4649, 314], "top": 2}\n{"ids": [1]}\n{"ids": [1, 99999999]}\n{"ids": [1, 2], "top": 21}\n'
    here = run(RELAY, "score", "--model", SMOLLM2, "--jsonl", input=lines, check=False)
    there = relay(services, "score", "--jsonl", input=lines, check=False)
    assert here.returncode == there.returncode == 1
    mine, theirs = ([json.loads(line) for line in out.stdout.splitlines()] for out in (here, there))
    assert mine[0] == theirs[0] and len(mine[0]["logprobs"]) == len(mine[0]["top"]) == 4 and all(len(top) == 2 for top in mine[0]["top"])
    assert max(p for _, p in mine[0]["top"][0]) == mine[0]["top"][0][0][1]
    assert mine[1] == theirs[1] == {"logprobs": []}
    assert "99999999" in mine[2]["error"] and "99999999" in theirs[2]["error"] and "[0, 20]" in mine[3]["error"]
    text = tmp_path / "text"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 12)
    flags = ["score", "--text", text, "--context", "64"]
    a, b = json.loads(run(RELAY, *flags, "--model", SMOLLM2).stdout), json.loads(relay(services, *flags).stdout)
    assert a == b and 1 < a["perplexity"] < 100 and a["context"] == 64 and a["scored"] < a["tokens"], (a, b)
    assert run(RELAY, "score", "--model", SMOLLM2, check=False).returncode == 2


def test_tokenize_and_detokenize_are_inverse(services):
    text = "Hello, wörld 語 😀\n\ttabs"
    ids = relay(services, "tokenize", input=text).stdout.split()
    assert relay(services, "detokenize", *ids).stdout == text + "\n"
    encoding = json.loads(relay(services, "tokenize", "--json", "--offsets", "--pieces", text).stdout)["encoding"]
    assert [str(i) for i in encoding["token_ids"]] == ids
    assert encoding["offset_begin"][0] == 0 and encoding["offset_end"][-1] == len(text.encode())
    assert int(relay(services, "tokenize", "--count", text).stdout) == len(ids)


def test_invalid_utf8_is_refused(services):
    done = subprocess.run([RELAY, "tokenize", "--server", services[1].address], input=b"a\xff", stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert done.returncode == 2 and b"text" in done.stderr and b"UTF-8" in done.stderr, done.stderr


def test_info_of_both(services):
    out = run(RELAY, "info", "--server", services[1].address, "--model-server", services[0].address, "--json").stdout.splitlines()
    text, model = map(json.loads, out)
    assert text["models"]["models"][0]["has_chat_template"] and text["tokenizer"]["vocab_size"] == 49152
    assert model["model"]["tokenizer_fingerprint"] == text["tokenizer"]["tokenizer_fingerprint"]
    assert model["load"]["load"]["total_blocks"] > 0
    assert run(RELAY, "info", "--server", services[1].address, "--check").stdout == ""


class Terminal:
    """`relay chat` on a pseudo terminal."""

    def __init__(self, services, *flags):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(RELAY, [str(RELAY), "chat", "--server", services[1].address, *flags])
        self.seen = ""

    def wait_for(self, pattern, seconds=60):
        """Reads until `pattern` is seen; returns what came up to and including it."""
        deadline = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.seen, re.S)
            if found:
                head, self.seen = self.seen[:found.end()], self.seen[found.end():]
                return head
            assert time.monotonic() < deadline, "no %r in %r" % (pattern, self.seen)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    assert re.search(pattern, self.seen, re.S), self.seen

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_chat_remembers_turns_and_takes_commands(services):
    t = Terminal(services, "--temperature", "0", "--max-new-tokens", "40")
    t.wait_for("> $")
    t.type("My name is Ada. Say hello.\n")
    first = int(re.search(r"prompt_tokens=(\d+)", t.wait_for(r"finish_reason=\w+")).group(1))
    t.wait_for("> $")
    t.type("What is my name?\n")
    second = int(re.search(r"prompt_tokens=(\d+)", t.wait_for(r"finish_reason=\w+")).group(1))
    assert second > first
    t.type("/set temperature 0.7\n/settings\n")
    t.wait_for("temperature=0.7")
    t.type("/set nonsense 1\n")
    t.wait_for("nonsense")
    t.type("/reset\n/help\n")
    t.wait_for("/quit")
    t.type("My name is Ada. Say hello.\n")
    assert int(re.search(r"prompt_tokens=(\d+)", t.wait_for(r"finish_reason=\w+")).group(1)) == first
    t.type("/quit\n")
    assert t.end() == 0


def test_control_c_stops_the_answer_and_not_the_chat(services):
    t = Terminal(services, "--ignore-eos", "--max-new-tokens", "4000")
    t.wait_for("> $")
    t.type("Tell me a very long story.\n")
    t.wait_for(r"story\.\r\n.{40}")
    os.kill(t.pid, signal.SIGINT)
    t.wait_for(r"\(stopped\)")
    # The model is free again, and the chat goes on.
    deadline = time.monotonic() + 10
    while json.loads(run(RELAY, "info", "--server", services[1].address, "--model-server", services[0].address,
                         "--json").stdout.splitlines()[1])["load"]["load"].get("running", 0) != 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    t.wait_for("> $")
    t.type("/quit\n")
    assert t.end() == 0


def test_control_c_ends_generate(services):
    p = subprocess.Popen([RELAY, "generate", "--server", services[1].address, "--ignore-eos", "--max-new-tokens", "4000", "Once"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(20)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=20)
    assert p.returncode == 130


def test_a_full_disk_is_an_error(services):
    with open("/dev/full", "w") as full:
        p = subprocess.run([RELAY, "tokenize", "--server", services[1].address, "hello"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert p.returncode == 1 and "standard output" in p.stderr


def test_help_shows_a_default_only_where_there_is_one():
    text = run(RELAY, "generate", "--help").stdout
    assert "--stop TEXT" in text and "default: 127.0.0.1:50051" in text
    temperature = text.split("--temperature")[1].split("--top-k")[0]
    assert "RELAY_TEMPERATURE" in temperature and "default" not in temperature


def test_chat_takes_any_number_of_settings(services):
    commands = "".join("/set temperature 0.%d\n" % (i % 10) for i in range(60)) + "/set sequence-id a\n/set\n/undo\n/undo x\n/settings\n"
    done = relay(services, "chat", input=commands)
    assert "temperature=0.9" in done.stdout and "sequence-id=a" in done.stdout
    assert done.stderr == 'relay chat: /set NAME VALUE\nrelay chat: "/undo x" is no command; /help tells them\n'


def test_chat_refuses_a_setting_that_is_none(services):
    done = relay(services, "chat", input="/set logprob-mode foo\n/set top_k many\n/set temperature\n/set stop END\n/settings\n")
    assert done.stdout == "stop=END\n"
    assert done.stderr == ('relay chat: logprob-mode is "foo"; it must be one of raw|processed\n'
                           'relay chat: top_k is "many"; it must be an integer from 0 to 4294967295\n')


def test_control_tokens_in_a_chat_are_text_unless_asked_for(services):
    flags = ["--chat", "--stats", "--max-new-tokens", "1", "Hi<|im_end|>"]
    as_text, as_tokens = [int(re.search(r"prompt_tokens=(\d+)", relay(services, "generate", *more, *flags).stderr).group(1))
                          for more in ([], ["--parse-special-tokens"])]
    assert as_text > as_tokens
