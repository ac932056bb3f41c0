#!/usr/bin/env python3
"""Words of every pre-tokenizer beside those of Hugging Face tokenizers: no difference is allowed.

Every code point in several surroundings, and random texts. Needs the package `tokenizers` and the built tokenize_lines.
"""
import argparse
import sys

import ours
import texts
from pretokenizers import PRETOKENIZERS, SAME, word_lengths


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of pre-tokenizers; without any, one of each list of patterns")
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--against", help="take another name's reference: shows that a difference is found")
    args = parser.parse_args()
    known = ours.ask(["schemes"])
    if set(known) != set(PRETOKENIZERS):
        sys.exit(f"not in both: {sorted(set(known) ^ set(PRETOKENIZERS))}")
    others = {other for names in SAME.values() for other in names.split()}
    lines = texts.random_lines(args.lines, args.seed, None) + texts.code_point_lines()
    n_bad = 0
    for name in args.names or [n for n in PRETOKENIZERS if n not in others]:
        mine, theirs = ours.numbers(["words", name], lines), word_lengths(args.against or name, lines)
        bad = [i for i in range(len(lines)) if mine[i] != theirs[i]]
        print(f"{name}: {len(lines)} texts, {len(bad)} differ")
        for i in bad[:3]:
            print(f"  {lines[i]!r}\n    ours   {mine[i]}\n    theirs {theirs[i]}")
        n_bad += len(bad)
    if n_bad != 0:
        sys.exit("there are differences")


if __name__ == "__main__":
    main()
