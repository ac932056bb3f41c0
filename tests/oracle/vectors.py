#!/usr/bin/env python3
"""Published vectors: texts and the ids that others say they have. All must be equal.

kitoken's sets (tests/data/tokenizers), llama.cpp's .inp and .out files beside its vocabularies (tests/peer/fetch), and the test
plans of gpt-tokenizer. What is not there is skipped and counted: Llama 2's and nai-t5's own files, which nobody may pass on as
they like, are taken from RELAY_CACHE/tokenizers/{llama2,nai-t5} where someone has put them.
"""
import argparse
import json
import lzma
import os
import pathlib
import re
import sys
import tempfile

from lines import Lines

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/tokenizers"
CACHE = pathlib.Path(os.environ.get("RELAY_CACHE") or pathlib.Path.home() / ".cache/relay")
TOKENIZERS = CACHE / "tokenizers"
VOCABULARIES = CACHE / "peer/llama.cpp-3.22.1/vocabularies"

# Of kitoken's sets: whose ids, which file, and whether names of special tokens in the text are those tokens.
KITOKEN = [
    ("bert_base_cased", "bert_base_cased.json", True),
    ("clip_base", "clip_base.json", True),
    ("gpt2", "gpt2.json", True),
    ("gpt2", TOKENIZERS / "gpt2", True),
    ("modernbert", "modernbert.json", True),
    ("xlnet_base_cased", "xlnet_base_cased.json", True),
    ("cl100k_base", TOKENIZERS / "openai/cl100k_base.tiktoken", True),
    ("o200k_base", TOKENIZERS / "openai/o200k_base.tiktoken", True),
    ("mistral01", TOKENIZERS / "mistral/tokenizer.model.v1", False),
    ("llama2", TOKENIZERS / "llama2/llama2.json", True),
    ("llama2_model", TOKENIZERS / "llama2/llama2.model", False),
    ("nai-t5", TOKENIZERS / "nai-t5/nai-t5.model", False),
    # The same vocabulary as llama2.model, in a file that may be passed on.
    ("llama2_model", VOCABULARIES / "ggml-vocab-llama-spm.gguf", False),
]


def numbers(text):
    return [[int(n) for n in re.findall(r"\d+", line)] for line in text.rstrip("\n").split("\n")]


def kitoken_cases(name):
    for kind in ("small", "mixed", "utf8"):
        path = DATA / f"ids/{kind}_tokens_{name}.txt"
        if not path.exists():  # both of Llama 2's have these in common
            path = DATA / f"ids/{kind}_tokens_{name.removesuffix('_model')}.txt"
        ids = numbers(path.read_text())
        text = (DATA / f"{kind}_input.txt").read_bytes().decode()
        texts = [text] if kind == "utf8" else text.split("\n")[:len(ids)]
        if kind == "small":
            texts = [line.replace("\\n", "\n").replace("\\s", " ") for line in texts]
        assert len(texts) == len(ids), path
        yield from zip(texts, ids)


def unpacked(name, folder):
    path = pathlib.Path(folder) / name
    if not path.exists():
        path.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    return path


def llama_cpp_cases(path):
    ids = numbers(path.with_name(path.name + ".out").read_text())
    texts = path.with_name(path.name + ".inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")[:len(ids)]
    assert len(texts) == len(ids), path
    return list(zip(texts, ids))


def test_plans():
    plans = (TOKENIZERS / "openai/TestPlans.txt").read_bytes().decode()
    for encoding, sample, ids in re.findall(r"EncodingName: (\S+)\r?\nSample: (.*?)\r?\nEncoded: (\[[^\]]*\])", plans, re.S):
        yield encoding, sample, json.loads(ids)


def all_sets(folder):
    """(name, path of the tokenizer, whether names are parsed, cases); cases is None where the file is not there."""
    for name, file, parse_special in KITOKEN:
        path = unpacked(file, folder) if isinstance(file, str) else file
        yield f"kitoken {name}", path, parse_special, list(kitoken_cases(name)) if path.exists() else None
    vocabularies = sorted(VOCABULARIES.glob("*.gguf.out"))
    if not vocabularies:
        yield "llama.cpp", VOCABULARIES, False, None
    for out in vocabularies:
        path = out.with_suffix("")
        yield f"llama.cpp {path.stem.removeprefix('ggml-vocab-')}", path, False, llama_cpp_cases(path)
    plans = list(test_plans()) if (TOKENIZERS / "openai").exists() else []
    if not plans:
        yield "gpt-tokenizer", TOKENIZERS / "openai", False, None
    for encoding in sorted({e for e, _, _ in plans}):
        file = TOKENIZERS / f"openai/{'p50k_base' if encoding == 'p50k_edit' else encoding}.tiktoken"
        yield f"gpt-tokenizer {encoding}", f"{file}:{encoding}", False, [(s, ids) for e, s, ids in plans if e == encoding]


def check(name, path, parse_special, cases):
    texts = [text for text, _ in cases]
    with Lines(path) as ours:
        answers = ours.encode(texts, parse_special)
    bad = [(t, a, want) for (t, want), a in zip(cases, answers) if a[0] != want] if all(isinstance(a, tuple) for a in answers) else [(texts, answers, None)]
    print(f"{name}: {len(cases)} compared, {len(bad)} differ")
    for text, answer, want in bad[:3]:
        print(f"    {json.dumps(text)[:300]}\n      ours   {str(answer)[:300]}\n      theirs {str(want)[:300]}")
    return len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of sets; without any, all")
    args = parser.parse_args()
    bad, skipped = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path, parse_special, cases in all_sets(folder):
            if args.names and not any(part in name for part in args.names):
                continue
            if cases is None:
                print(f"{name}: skipped, for there is no {path}")
                skipped += 1
                continue
            bad += check(name, path, parse_special, cases)
    print(f"{skipped} sets skipped")
    if bad:
        sys.exit("there are differences")


if __name__ == "__main__":
    main()
