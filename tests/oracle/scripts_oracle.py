#!/usr/bin/env python3
"""The scripts that patterns may name, over every code point, beside Hugging Face tokenizers: no difference is allowed.

Needs the package `tokenizers` and the built encode_lines.
"""
import json
import pathlib
import re
import sys
import tempfile

from tokenizers import Tokenizer

from pipeline_oracle import Ours, byte_offsets

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "tokenizer_svc" / "regex_translate.c"
# Past these there are only private and unassigned ones.
TEXT = "".join(chr(c) for c in [*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE01F0)])


def file_of(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": False}
    model = {"type": "WordLevel", "vocab": {"u": 0}, "unk_token": "u"}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": split,
            "post_processor": None, "decoder": None, "model": model}


def main():
    names = re.findall(r'"sc:(\w+)"', SOURCE.read_text())
    ours, n_bad = Ours(), 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        for name in names:
            path.write_text(json.dumps(file_of(rf"\P{{{name}}}")))
            loaded, got = ours.ask([{"tokenizer": str(path)}, {"text": TEXT, "special": False, "open": False, "max": 0, "left": False}])
            theirs = byte_offsets(TEXT, Tokenizer.from_file(str(path)).encode(TEXT).offsets)
            mine = (got.get("begin"), got.get("end"))
            is_same = mine == tuple(theirs) and len(mine[0]) > 0
            if not is_same:
                n_bad += 1
                print(f"{name}: ours {loaded} {len(mine[0] or [])} stretches, theirs {len(theirs[0])}")
    print(f"{len(names)} compared, {n_bad} differ")
    if n_bad != 0:
        sys.exit("there are differences")


if __name__ == "__main__":
    main()
