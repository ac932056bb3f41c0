#!/usr/bin/env python3
"""The fingerprint of a GGUF file's vocabulary, computed apart from common/vocab.c: tests compare the two.

usage: vocab_fingerprint.py FILE.gguf [ID...]     (ids that end an answer beside the file's eos)
"""

import hashlib
import struct
import sys

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Of tokenizer.ggml.token_type: text (normal, byte) or a name; 5 (unused) is padding, in no fingerprint.
KINDS = {1: b"T", 2: b"N", 3: b"N", 4: b"N", 6: b"T"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, fmt):
        (value,) = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return value

    def string(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n : self.at]

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, n = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(n)]
        return self.number(SCALARS[kind])


def read_keys(data):
    r = Reader(data)
    assert data[:4] == b"GGUF"
    r.at = 4
    r.number("I"), r.number("Q")
    keys = {}
    for _ in range(r.number("Q")):
        name = r.string().decode()
        keys[name] = r.value(r.number("I"))
    return keys


def gpt2_alphabet():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(0x100 + i): b for i, b in enumerate(others)}


def main():
    with open(sys.argv[1], "rb") as f:
        keys = read_keys(f.read())
    alphabet = gpt2_alphabet()
    table = b"relay vocabulary 2\n"
    for i, (piece, kind) in enumerate(zip(keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"])):
        if kind not in KINDS:
            continue
        if kind == 6:
            piece = bytes([int(piece[3:5], 16)])
        elif kind != 1 or keys["tokenizer.ggml.model"] != b"gpt2":
            piece = piece.replace("\u2581".encode(), b" ")
        elif all(c in alphabet for c in piece.decode()):
            piece = bytes(alphabet[c] for c in piece.decode())
        table += KINDS[kind] + struct.pack("<II", i, len(piece)) + piece
    for value in sorted({keys["tokenizer.ggml.eos_token_id"], *map(int, sys.argv[2:])}):
        table += b"E" + struct.pack("<I", value)
    print(hashlib.sha256(table).hexdigest())


main()
