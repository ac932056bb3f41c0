#!/usr/bin/env python3
"""Ids to text through Relay's decoders beside those of Hugging Face tokenizers: every decoder alone, those of real
tokenizers, and random rows of them, over pieces made of all that decoders look at. Relay's side goes through a saved
state after a third of the ids. Needs the package `tokenizers` and the built decode_ids.

usage: decoders_oracle.py [--rows N] [--texts N]      N random rows of decoders, N lists of ids for each
"""
import argparse
import pathlib
import random
import subprocess
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bazel-bin/tests/tokenizer_svc/decode_ids"
SP = "\u2581"
PARTS = ["a", "b", "n", "'", "'s", " n't", "n't", "'ve", " ' ", " do", " not", ".", " .", "?", "!", ",", " ", "  ", "##", "##ing", SP, SP + "the", SP + SP,
         "</w>", "end</w>", "<", "w>", "|", "<pad>", "[PAD]", "\u00e9", "\u4e2d", "\U0001f600", "\u0120", "\u0120the", "\u010a", "\u00c3", "\u00a9", "\u00f0", "\u0141",
         "<0x41>", "<0xC3>", "<0xA9>", "<0xE2>", "<0x96>", "<0x81>", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0xff>", "<0x+F>", "<0xG0>", "<0x20>", "'re", "'m"]


def hexed(text):
    return text.encode().hex() or "-"


# Each decoder as (what HF makes of it, the driver's line).
def bpe(suffix="</w>"):
    return decoders.BPEDecoder(suffix), f"bpe {hexed(suffix)}"


def fallback():
    return decoders.ByteFallback(), "fallback"


def byte_level():
    return decoders.ByteLevel(), "bytelevel"


def ctc(pad="<pad>", delimiter="|", cleanup=True):
    return decoders.CTC(pad, delimiter, cleanup), f"ctc {hexed(pad)} {hexed(delimiter)} {int(cleanup)}"


def fuse():
    return decoders.Fuse(), "fuse"


def metaspace(character=SP, scheme="always"):
    return decoders.Metaspace(character, scheme), f"metaspace {hexed(character)} {scheme}"


def replace(pattern=SP, content=" "):
    return decoders.Replace(pattern, content), f"replace {hexed(pattern)} {hexed(content)}"


def strip(character=" ", begin=1, end=0):
    return decoders.Strip(character, begin, end), f"strip {hexed(character)} {begin} {end}"


def wordpiece(prefix="##", cleanup=True):
    return decoders.WordPiece(prefix, cleanup), f"wordpiece {hexed(prefix)} {int(cleanup)}"


KNOWN = {
    "none": [],
    "BPEDecoder": [bpe()],
    "ByteFallback": [fallback()],
    "ByteLevel": [byte_level()],
    "CTC": [ctc()],
    "CTC without clean-up": [ctc(cleanup=False)],
    "Fuse": [fuse()],
    "Metaspace": [metaspace()],
    "Metaspace, never": [metaspace(scheme="never")],
    "Metaspace, first": [metaspace("_", "first")],
    "Replace": [replace()],
    "Strip": [strip()],
    "Strip at the end": [strip("a", 0, 1)],
    "WordPiece": [wordpiece()],
    "WordPiece without clean-up": [wordpiece(cleanup=False)],
    "Llama 2": [replace(), fallback(), fuse(), strip()],
    "Gemma": [replace(), fallback(), fuse()],
    "SentencePiece with bytes": [fallback(), metaspace()],
    "all at the ends": [fuse(), strip("a", 2, 2)],
}


def random_row(r):
    choices = [lambda: bpe(r.choice(["</w>", "w>"])), fallback, byte_level, lambda: ctc(r.choice(["<pad>", "a", "[PAD]"]), r.choice(["|", " "]), r.random() < 0.5),
               fuse, lambda: metaspace(r.choice([SP, "a", "\u0120"]), r.choice(["always", "never", "first"])),
               lambda: replace(r.choice([SP, "a", " .", "\u00e9", "aa", "ab", "aab", SP + SP]), r.choice(["", " ", "b", "aa", ".", "<0x41>"])),
               lambda: strip(r.choice([" ", "a", SP, "\u00e9"]), r.randint(0, 3), r.choice([0, 0, 1])), lambda: wordpiece(r.choice(["##", "a", "\u2581"]), r.random() < 0.5)]
    return [r.choice(choices)() for _ in range(r.randint(1, 5))]


class Vocabulary:
    def __init__(self, r):
        pieces = PARTS + ["".join(r.choice(PARTS) for _ in range(r.randint(2, 3))) for _ in range(80)]
        self.pieces = list(dict.fromkeys(pieces))
        # None is of characters that ByteLevel takes for bytes: of those we print the name (docs/tokenizer.md, Decisions).
        self.added = {p: r.choice("as") for p in ["<pad>", "[PAD]", SP + SP, "<0x20>"]}
        self.tokenizer = Tokenizer(models.WordLevel({p: i for i, p in enumerate(self.pieces)}, unk_token=self.pieces[0]))
        self.tokenizer.add_tokens([AddedToken(p) for p, kind in self.added.items() if kind == "a"])
        self.tokenizer.add_special_tokens([AddedToken(p) for p, kind in self.added.items() if kind == "s"])
        assert self.tokenizer.get_vocab_size() == len(self.pieces)

    def lines(self):
        return [f"tokens {len(self.pieces)}"] + [f"{hexed(p)} {self.added.get(p, 'n')}" for p in self.pieces]

    def ids(self, r):
        n = r.choice([0, 1, 2, 5, 20, 60])
        some = r.sample(range(len(self.pieces)), 6)
        if r.random() < 0.3:  # runs of bytes
            some = [i for i, p in enumerate(self.pieces) if p.startswith("<0x") and len(p) == 6] + some[:1]
        return [r.choice(some) for _ in range(n)]


CLEAN_UP = [(" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")]


def theirs(vocabulary, row, clean_up, skip, ids):
    """None where HF itself fails: Strip that takes a character twice, or BPEDecoder and no tokens."""
    t = vocabulary.tokenizer
    if row:
        t.decoder = row[0][0] if len(row) == 1 else decoders.Sequence([d for d, _ in row])
    else:
        t.decoder = None
    try:
        text = t.decode(ids, skip_special_tokens=skip)
    except BaseException:
        return None
    if clean_up:  # transformers' clean_up_tokenization
        for a, b in CLEAN_UP:
            text = text.replace(a, b)
    return text


def compare(name, row, seed, n_texts):
    r = random.Random(f"{name} {seed}")
    vocabulary = Vocabulary(r)
    clean_up = r.random() < 0.3
    lists = [(r.random() < 0.5, vocabulary.ids(r)) for _ in range(n_texts)]
    lines = vocabulary.lines() + [f"decoder {int(clean_up)}"] + [line for _, line in row] + ["end"]
    lines += [f"decode {int(skip)} {r.getrandbits(32)} {' '.join(map(str, ids))}" for skip, ids in lists]
    done = subprocess.run([str(PROGRAM)], input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    mine = done.stdout.splitlines()
    if mine and mine[0].startswith("refused"):
        return 0, 0, mine[0]
    compared = bad = 0
    for (skip, ids), line in zip(lists, mine, strict=True):
        if (their := theirs(vocabulary, row, clean_up, skip, ids)) is None:
            continue
        compared += 1
        text = "" if line == "-" else bytes.fromhex(line).decode()
        if text != their:
            bad += 1
            if bad <= 2:
                print(f"{name} {[line for _, line in row]} clean_up={clean_up} skip={skip}\n  {[vocabulary.pieces[i] for i in ids]!r:.500}\n  ours   {text!r:.300}\n  theirs {their!r:.300}")
    return compared, bad, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--texts", type=int, default=60)
    options = parser.parse_args()
    failed = False
    for name, row in KNOWN.items():
        results = [compare(name, row, seed, options.texts) for seed in range(4)]
        print(f"{name}: {sum(n for n, _, _ in results)} compared, {sum(b for _, b, _ in results)} differ")
        failed |= any(b or refused for _, b, refused in results)
    r = random.Random(1)
    results = [compare("row", random_row(r), seed, options.texts) for seed in range(options.rows)]
    refused = [reason for _, _, reason in results if reason]
    print(f"random rows, {len(refused)} of {options.rows} refused: {sum(n for n, _, _ in results)} compared, {sum(b for _, b, _ in results)} differ")
    failed |= any(b for _, b, _ in results) or len(refused) > options.rows / 2
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
