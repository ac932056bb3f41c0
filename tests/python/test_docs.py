"""The docs tell what the programs do."""
import re

import pytest

from conftest import BIN, ROOT, run

OPERATIONS = (ROOT / "docs/operations.md").read_text()


@pytest.mark.parametrize("program", ["model_svc/relay-model", "tokenizer_svc/relay-tokenizer"])
def test_every_flag_is_in_operations(program):
    flags = set(re.findall(r"^ +(--[a-z-]+)", run(BIN / program, "--help").stdout, re.M)) - {"--help"}
    assert len(flags) > 10
    for flag in flags:
        assert "`%s`" % flag in OPERATIONS, flag


def test_every_link_leads_somewhere():
    links = [(path, link) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("tests/*/README.md")]
             for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text())]
    assert links
    for path, link in links:
        assert (path.parent / link).exists(), (path, link)


def test_every_folder_is_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    for name in run("git", "ls-tree", "-d", "--name-only", "HEAD", cwd=ROOT).stdout.split():
        assert name.startswith(".") or name == "bazel" or "| `%s/` |" % name in readme, name


def test_every_field_that_beam_search_excludes_is_in_its_docs():
    excluded = re.findall(r'"([a-z_.]+)"},', (ROOT / "model_svc" / "request_beams.c").read_text())
    assert len(excluded) > 20
    text = (ROOT / "docs" / "sampling.md").read_text().split("## Beam search")[1].split("\n## ")[0]
    for field in excluded:
        assert "`%s`" % field.rsplit(".", 1)[-1] in text, field
