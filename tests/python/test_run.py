"""./run, as a newcomer uses it: on a machine where set-up has run before."""
import os
import pty
import re
import select
import signal
import subprocess
import time

from conftest import ROOT, SMOLLM2, run

SUMMARY = r"prompt_tokens=\d+ time_to_first_token=[\d.]+ms time_per_output_token=[\d.]+ms tokens=\d+ finish_reason=\w+"


def children():
    """Services of this checkout that run: others may have theirs."""
    found = subprocess.run(["pgrep", "-f", "bazel-bin/(model_svc|tokenizer_svc)/relay-"], stdout=subprocess.PIPE, text=True).stdout.split()
    programs = os.path.realpath(ROOT / "bazel-bin")

    def program(pid):
        try:
            return os.readlink("/proc/%s/exe" % pid)
        except OSError:  # it has ended
            return ""
    return {pid for pid in found if program(pid).startswith(programs)}


def test_asks_answers_and_leaves_nothing_behind():
    before = children()
    done = run(ROOT / "run", "What is the capital of France?", stdin=subprocess.DEVNULL, timeout=300)
    assert "capital of France" in done.stdout
    assert re.search(SUMMARY, done.stderr)
    assert re.search(r"\[1/5\] .*\[5/5\] ", done.stderr, re.S)
    assert children() <= before


def test_needs_no_network_the_second_time():
    env = dict(os.environ, http_proxy="http://127.0.0.1:1", https_proxy="http://127.0.0.1:1", PIP_INDEX_URL="http://127.0.0.1:1",
               PIP_FIND_LINKS="")
    started = time.monotonic()
    done = run(ROOT / "run", "Hello", stdin=subprocess.DEVNULL, env=env, timeout=300)
    assert re.search(SUMMARY, done.stderr)
    # Seconds, not minutes: no download and no build.
    assert time.monotonic() - started < 60


def test_takes_a_file_and_refuses_what_is_none():
    assert re.search(SUMMARY, run(ROOT / "run", "--model", SMOLLM2, "Hello", stdin=subprocess.DEVNULL, timeout=300).stderr)
    done = run(ROOT / "run", "--model", "/no/such.gguf", check=False)
    assert done.returncode == 1 and "/no/such.gguf" in done.stderr
    done = run(ROOT / "run", "--model", "no-such-name", check=False)
    assert done.returncode == 1 and "smollm2-135m" in done.stderr
    done = run(ROOT / "run", "--model", ROOT / "README.md", check=False)
    assert done.returncode == 1
    assert run(ROOT / "run", "--nonsense", check=False).returncode == 2


def test_serve_prints_addresses_and_ends_on_interrupt():
    # Whoever runs the tests in the background may have SIGINT ignored, which a shell cannot undo.
    p = subprocess.Popen([ROOT / "run", "--serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    generation = p.stdout.readline().split()
    model = p.stdout.readline().split()
    assert generation[0] == "generation" and model[0] == "model"
    assert run(ROOT / "bazel-bin/cli/relay", "generate", "--server", generation[1], "--max-new-tokens", "3", "x").stdout
    os.killpg(p.pid, signal.SIGINT)
    p.communicate(timeout=60)
    assert p.returncode == 130
    assert run(ROOT / "bazel-bin/cli/relay", "info", "--server", generation[1], "--check", check=False).returncode == 3


def test_chats_on_a_terminal():
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv("./run", ["./run", "Say hello."])
    seen, deadline = "", time.monotonic() + 120
    while not re.search(SUMMARY + ".*> $", seen, re.S):
        assert time.monotonic() < deadline, seen
        if select.select([fd], [], [], 0.2)[0]:
            seen += os.read(fd, 65536).decode(errors="replace")
    os.write(fd, b"/quit\n")
    try:
        while os.read(fd, 65536):
            pass
    except OSError:
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_file_is_found_from_where_the_caller_stands():
    done = run(ROOT / "run", "--model", SMOLLM2.name, "Hello", cwd=SMOLLM2.parent, stdin=subprocess.DEVNULL, timeout=300)
    assert re.search(SUMMARY, done.stderr)


def test_help_is_the_comment_at_its_top():
    out = run(ROOT / "run", "--help").stdout
    assert "--serve" in out and "--model NAME|FILE" in out and "CALLER" not in out
