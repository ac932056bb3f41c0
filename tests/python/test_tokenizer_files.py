"""Tokenizer files of every format: published vectors, the references' answers to random texts, one fingerprint a vocabulary."""
import os
import re
import sys

import pytest
from conftest import ROOT, VENV, run

ORACLE = ROOT / "tests/oracle"
ALL = os.environ.get("RELAY_TEST_ALL") == "1"
sys.path.insert(0, str(ORACLE))

import lines  # noqa: E402
import vectors  # noqa: E402


def test_published_vectors():
    done = run(VENV / "python", ORACLE / "vectors.py", check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    results = re.findall(r"(\d+) compared, (\d+) differ", done.stdout)
    # kitoken's ten that need no one's leave, llama.cpp's fifteen, gpt-tokenizer's five.
    assert len(results) >= 30 and all(int(n) >= 46 and bad == "0" for n, bad in results), done.stdout
    assert int(re.search(r"(\d+) sets skipped", done.stdout)[1]) <= 3, done.stdout


def test_random_texts_against_the_references():
    done = run(VENV / "python", ORACLE / "differential.py", "--strings", 200000 if ALL else 2000, check=False, timeout=4 * 3600 if ALL else 1200)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"(\d+) tokenizers, (\d+) skipped", done.stdout)
    assert int(counts[1]) >= 20 and int(counts[2]) <= (0 if ALL else 5), done.stdout
    results = re.findall(r"ids (\d+) compared, (\d+) differ", done.stdout)
    assert len(results) == int(counts[1]) and all(int(n) >= 1900 and bad == "0" for n, bad in results), done.stdout


def test_a_difference_is_found(tmp_path):
    """Two ranks changed places: our ids are others, and the comparison says so."""
    ranks = (vectors.TOKENIZERS / "openai/r50k_base.tiktoken").read_bytes().splitlines()
    swapped = tmp_path / "swapped.tiktoken"
    swapped.write_bytes(b"\n".join([ranks[1].split()[0] + b" 0", ranks[0].split()[0] + b" 1", *ranks[2:]]) + b"\n")
    with lines.Lines(f"{swapped}:r50k_base") as ours:
        assert ours.encode(["!"]) == [([1], [0], [1])]
    assert vectors.check("swapped", f"{swapped}:r50k_base", False, [("!", [0]), ("a", [64])]) == 1


@pytest.mark.parametrize("files", [
    ["peer/llama.cpp-3.22.1/vocabularies/ggml-vocab-gpt-2.gguf", "tokenizers/gpt2", "tokenizers/openai/r50k_base.tiktoken", "gpt2.json"],
    ["tokenizers/openai/o200k_base.tiktoken", "tokenizers/gpt4o/tokenizer.json"],
    ["peer/llama.cpp-3.22.1/vocabularies/ggml-vocab-llama-bpe.gguf", "tokenizers/llama3.1/tokenizer.json"],
    ["peer/llama.cpp-3.22.1/vocabularies/ggml-vocab-llama-spm.gguf", "tokenizers/llama2/llama2.model", "tokenizers/llama2/llama2.json"],
], ids=["gpt2", "o200k", "llama3", "llama2"])
def test_one_vocabulary_has_one_fingerprint_in_every_format(files, tmp_path):
    paths = [vectors.unpacked(f, tmp_path) if f == "gpt2.json" else vectors.CACHE / f for f in files]
    there = [p for p in paths if p.exists()]
    if len(there) < 2:
        pytest.skip(f"fewer than two of {', '.join(files)} are there")
    fingerprints = {}
    for path in there:
        with lines.Lines(path) as ours:
            fingerprints[str(path)] = ours.fingerprint
    assert len(set(fingerprints.values())) == 1, fingerprints
