#!/usr/bin/env python3
"""Ids of our tokenizer beside those of Hugging Face tokenizers, made from the same GGUF file: no difference is allowed.

Also back: random ids to text. Needs the package `tokenizers` (tests/requirements.txt) and the built tokenize_lines.
"""
import argparse
import json
import os
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models

import ours
import texts
from gguf_keys import read_keys
from pretokenizers import IGNORE_MERGES, byte_level

CACHE = pathlib.Path(os.environ.get("RELAY_CACHE") or pathlib.Path.home() / ".cache/relay")
CONTROL, USER = 3, 4  # tokenizer.ggml.token_type


class Reference:
    def __init__(self, path):
        keys = read_keys(path)
        pieces, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
        self.pre = keys["tokenizer.ggml.pre"]
        self.vocab = {piece: i for i, piece in enumerate(pieces) if piece != f"[PAD{i}]"}
        self.merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
        self.control = [piece for piece, kind in zip(pieces, kinds) if kind == CONTROL]
        self.user = [piece for piece, kind in zip(pieces, kinds) if kind == USER and piece in self.vocab]
        self.plain, self.with_special = self.make(False), self.make(True)

    def make(self, parse_special):
        t = Tokenizer(models.BPE(self.vocab, self.merges, ignore_merges=self.pre in IGNORE_MERGES))
        t.pre_tokenizer = byte_level(self.pre)
        t.decoder = decoders.ByteLevel()
        t.add_tokens([AddedToken(name, normalized=False) for name in self.user])
        if parse_special:
            t.add_special_tokens([AddedToken(name, normalized=False) for name in self.control])
        return t

    def ids(self, lines, parse_special):
        t = self.with_special if parse_special else self.plain
        return [e.ids for e in t.encode_batch_fast(lines, add_special_tokens=False)]

    def text(self, id_lists):
        return self.with_special.decode_batch(id_lists, skip_special_tokens=False)


def differences(what, inputs, mine, theirs):
    bad = [i for i in range(len(inputs)) if mine[i] != theirs[i]]
    print(f"  {what}: {len(inputs)} compared, {len(bad)} differ")
    for i in bad[:5]:
        print(f"    {json.dumps(inputs[i])[:300]}\n      ours   {str(mine[i])[:300]}\n      theirs {str(theirs[i])[:300]}")
    return len(bad) + (len(mine) != len(inputs))


def check(path, n_lines, seed):
    reference = Reference(path)
    print(f"{path.name} ({reference.pre}), tokenizers {tokenizers.__version__}, seed {seed}")
    lines = texts.random_lines(n_lines, seed, reference.control + reference.user) + texts.code_point_lines()
    bad = differences("ids", lines, ours.numbers(["ids", path], lines), reference.ids(lines, False))
    bad += differences("ids with special tokens", lines, ours.numbers(["special", path], lines), reference.ids(lines, True))
    r = random.Random(seed)
    known = sorted(reference.vocab.values())
    id_lists = [[r.choice(known) for _ in range(r.randrange(1, 40))] for _ in range(n_lines // 2)]
    bad += differences("texts of random ids", id_lists, ours.text_of(path, id_lists), reference.text(id_lists))
    return bad


def write_golden(path, n_lines, seed):
    """Lines of JSON for tests/tokenizer_svc/golden_ids_test.c."""
    reference = Reference(path)
    lines = texts.random_lines(n_lines, seed, reference.control + reference.user)
    lines = texts.SENTENCES + [line for line in lines if len(line) <= 300]
    for line, plain, special in zip(lines, reference.ids(lines, False), reference.ids(lines, True)):
        print(json.dumps({"text": line, "ids": plain, "ids_with_special": special}, ensure_ascii=True, separators=(",", ":")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=pathlib.Path, help="GGUF files; without any, those of the cache")
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden", action="store_true", help="write the reference's ids of some lines instead")
    args = parser.parse_args()
    paths = args.models or sorted((CACHE / "models").glob("*.gguf"))
    if args.golden:
        return write_golden(paths[0], args.lines, args.seed)
    if not paths:
        sys.exit("no model in the cache: ./run fetches one")
    if sum(check(path, args.lines, args.seed) for path in paths) != 0:
        sys.exit("there are differences")


if __name__ == "__main__":
    main()
