"""The template engine beside Python's jinja2: tests/oracle/chat_template_oracle.py, in short."""
import os

import pytest

from conftest import BIN, ROOT, VENV, run

LONG = bool(os.environ.get("RELAY_TEST_ALL"))


def compare(*flags, timeout):
    peer = run(ROOT / "tests/peer/fetch", "files", timeout=900).stdout.strip()
    done = run(VENV / "python", ROOT / "tests/oracle/chat_template_oracle.py", "--render",
               BIN / "tests/tokenizer_svc/render_chat", "--templates", peer + "/templates", *flags, timeout=timeout)
    assert done.stdout.endswith(" 0 different\n")


def test_renders_what_jinja2_renders():
    compare("--conversations", "20", "--programs", "1000", timeout=600)


@pytest.mark.skipif(not LONG, reason="long: ./test --all")
def test_renders_what_jinja2_renders_at_length():
    compare("--conversations", "1000", "--programs", "20000", timeout=7200)
