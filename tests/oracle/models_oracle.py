#!/usr/bin/env python3
"""Words through Relay's Unigram, WordPiece and WordLevel models beside those of Hugging Face tokenizers: ids and offsets
must be equal. Vocabularies and words are made at random from a seed, over small alphabets, so that ties, unknown
characters, byte fallback and pieces within pieces are the rule. Needs the package `tokenizers` and the built model_words.

usage: models_oracle.py [--words N]    words for each of the vocabularies
"""
import argparse
import pathlib
import random
import subprocess
import sys

from tokenizers import models

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bazel-bin/tests/tokenizer_svc/model_words"
NORMAL = 1
SP = "\u2581"
ALPHABETS = ["ab", "abc" + SP, "a\u00e9\u4e2d\U0001f600", SP + "ab\u0301z", "ab0<>x" + SP]


def hexed(text):
    return text.encode().hex() or "-"


def ask(kind, vocab, words, unk=-1, byte_fallback=False, max_chars=100, prefix=""):
    lines = [f"model {kind} {unk} {int(byte_fallback)} 0 {max_chars} {hexed(prefix)} {len(vocab)}"]
    lines += [f"{hexed(piece)} {score!r} {NORMAL}" for piece, score in vocab]
    lines += [f"word {hexed(w)}" for w in words]
    done = subprocess.run([str(PROGRAM)], input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()


def theirs(model, word):
    try:
        return " ".join(f"{t.id},{t.offsets[0]},{t.offsets[1]}" for t in model.tokenize(word))
    except Exception:  # what the binding raises where there is no unknown token
        return "error"


def random_text(r, alphabet, longest):
    return "".join(r.choice(alphabet) for _ in range(r.randint(1, longest)))


def pieces_of(r, alphabet, n):
    """Different pieces; not every character has one of its own."""
    return list(dict.fromkeys(random_text(r, alphabet, 4) for _ in range(n)))


def unigram(r):
    alphabet = r.choice(ALPHABETS)
    pieces = ["<unk>"] + pieces_of(r, alphabet, r.randint(1, 40))
    byte_fallback = r.random() < 0.5
    if byte_fallback:
        pieces += [f"<0x{b:02X}>" for b in range(256) if r.random() < 0.995]
    r.shuffle(pieces)
    # Few different scores, so that paths are equally good; and real ones.
    scores = [-1.0, -2.0, -2.5, 0.0] if r.random() < 0.5 else [-r.uniform(0, 12) for _ in range(7)] + [-0.1, -0.3]
    if r.random() < 0.3:
        scores.append(-300.0)  # worse than unknown characters
    vocab = [(p, r.choice(scores)) for p in pieces]
    unk = pieces.index("<unk>") if r.random() < 0.9 else None
    model = models.Unigram(vocab, unk, byte_fallback)
    alphabet += r.choice(["", "", "\u00fc", "<unk>"])
    return model, alphabet, lambda words: ask("unigram", vocab, words, -1 if unk is None else unk, byte_fallback)


def wordpiece(r):
    alphabet = r.choice(ALPHABETS)
    prefix = r.choice(["##", "##", "", "a"])
    pieces = pieces_of(r, alphabet, r.randint(1, 40))
    pieces = list(dict.fromkeys(["[UNK]"] + pieces + [prefix + p for p in pieces_of(r, alphabet, r.randint(0, 30))]))
    has_unk = r.random() < 0.9
    if not has_unk:
        pieces.remove("[UNK]")
    max_chars = r.choice([100, 5, 12])
    model = models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]", max_input_chars_per_word=max_chars, continuing_subword_prefix=prefix)
    unk = 0 if has_unk else -1
    return model, alphabet + "#", lambda words: ask("wordpiece", [(p, 0.0) for p in pieces], words, unk, max_chars=max_chars, prefix=prefix)


def wordlevel(r):
    alphabet = r.choice(ALPHABETS)
    pieces = pieces_of(r, alphabet, r.randint(1, 40))
    has_unk = r.random() < 0.8
    if has_unk:
        pieces.insert(0, "<unk>")
    model = models.WordLevel({p: i for i, p in enumerate(pieces)}, unk_token="<unk>")
    return model, alphabet, lambda words: ask("wordlevel", [(p, 0.0) for p in pieces], words, 0 if has_unk else -1)


def compare(make, seed, n_words):
    r = random.Random(f"{make.__name__} {seed}")
    model, alphabet, ours = make(r)
    words = [random_text(r, alphabet, r.choice([4, 12, 60, 60, 600])) for _ in range(n_words)]
    words += [alphabet[0] * 3000, random_text(r, alphabet, 3000)]
    bad = 0
    for word, mine in zip(words, ours(words), strict=True):
        if mine != (their := theirs(model, word)):
            bad += 1
            print(f"{make.__name__} {seed}: {word!r}\n  ours   {mine[:300]}\n  theirs {their[:300]}")
    return len(words), bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=100)
    parser.add_argument("--vocabularies", type=int, default=40)
    options = parser.parse_args()
    bad = 0
    for make in (unigram, wordpiece, wordlevel):
        results = [compare(make, seed, options.words) for seed in range(options.vocabularies)]
        print(f"{make.__name__}: {sum(n for n, _ in results)} compared, {sum(b for _, b in results)} differ")
        bad += sum(b for _, b in results)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
