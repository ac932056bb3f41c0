"""The contract is in the shape that buf wants, and only grows: against the image of the last release."""
from conftest import ROOT, VENV, run


def test_lint():
    run(VENV / "buf", "lint", cwd=ROOT / "proto")


def test_format():
    assert run(VENV / "buf", "format", "--diff", cwd=ROOT / "proto").stdout == ""


def test_breaks_nothing_that_was_released():
    run(VENV / "buf", "breaking", "--against", "baseline.binpb", cwd=ROOT / "proto")
