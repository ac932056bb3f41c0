#!/usr/bin/env python3
"""tokenizer_svc/unicode_data.c, asked of Hugging Face tokenizers for every code point; without --write, compared with it.

Needs the package `tokenizers` (tests/requirements.txt says which version; its Unicode is the tables') and libutf8proc 2.8
(Debian 12), from which lower and inert characters are told apart; clang-format-14 to write.
"""
import argparse
import ctypes
import pathlib
import re
import struct
import subprocess
import sys

from tokenizers import normalizers, pre_tokenizers

FILE = pathlib.Path(__file__).resolve().parents[2] / "tokenizer_svc" / "unicode_data.c"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


# ---- What characters are

def counting_charsmap():
    """Every byte becomes an X, and with it its whole grapheme cluster, if that has less than six bytes: a trie of darts-clone
    whose root has all bytes for children, which share one leaf."""
    first_child, leaf, size = 256, 512, 1024
    units = [0] * size
    units[0] = first_child << 10
    for byte in range(1, 256):
        at = first_child ^ byte
        units[at] = (at ^ leaf) << 10 | 1 << 8 | byte
    units[leaf] = 1 << 31
    trie = struct.pack(f"<{size}I", *units)
    return struct.pack("<I", len(trie)) + trie + b"X\0"


def class_questions():
    word, numbers, punctuation = pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True), pre_tokenizers.Punctuation()
    off = {"handle_chinese_chars": False, "strip_accents": False, "lowercase": False, "clean_text": False}
    cleaned = normalizers.BertNormalizer(**{**off, "clean_text": True})
    stripped = normalizers.BertNormalizer(**{**off, "strip_accents": True})
    accents, clusters = normalizers.StripAccents(), normalizers.Precompiled(counting_charsmap())

    def pieces(stage, text):
        return len(stage.pre_tokenize_str(text))

    return {
        1: lambda c: pieces(word, "a" + c) == 1 and word.pre_tokenize_str("a" + c)[0][1] == (0, 2),
        2: lambda c: pieces(numbers, "a" + c + "a") == 3,
        4: lambda c: pieces(punctuation, "a" + c + "a") == 3,
        8: lambda c: cleaned.normalize_str("a" + c + "a") == "aa",
        16: lambda c: stripped.normalize_str("a" + c + "b") == "ab",
        32: lambda c: accents.normalize_str("a" + c + "b") == "ab",
        64: lambda c: clusters.normalize_str("a" + c) == "X",
        128: lambda c: clusters.normalize_str(c + "a") == "X",
        # With a mark, which has two bytes; of a character of four nobody can tell.
        256: lambda c: c < "\U00010000" and clusters.normalize_str(c + "\u0308") == "XX",
    }


def classes():
    questions = class_questions()
    return {c: sum(bit for bit, ask in questions.items() if ask(chr(c))) for c in CODE_POINTS}


# ---- Beside utf8proc

class Utf8proc:
    def __init__(self):
        self.library = ctypes.CDLL("libutf8proc.so.2")
        self.library.utf8proc_get_property.restype = ctypes.POINTER(ctypes.c_int16)  # category, combining class, ...

    def lower(self, c):
        return self.library.utf8proc_tolower(c)

    def combining_class(self, c):
        return self.library.utf8proc_get_property(c)[1]

    def decomposes(self, c):
        parts, last = (ctypes.c_int32 * 18)(), ctypes.c_int(0)
        compatible_decompose = 1 << 2 | 1 << 4
        n = self.library.utf8proc_decompose_char(c, parts, 18, compatible_decompose, ctypes.byref(last))
        return n != 1 or parts[0] != c


def lower(utf8proc):
    stage, out = normalizers.Lowercase(), {}
    for c in CODE_POINTS:
        theirs = stage.normalize_str(chr(c))
        if len(theirs) == 1 and ord(theirs) != utf8proc.lower(c):
            out[c] = ord(theirs) - c
    return out


def inert(utf8proc):
    nfkd, out = normalizers.NFKD(), {}
    for c in CODE_POINTS:
        has_class, decomposes = utf8proc.combining_class(c) != 0, utf8proc.decomposes(c)
        # A mark of another class changes places with it, before it or behind it.
        moves = any(nfkd.normalize_str(t) != t for m in "\u0334\u0345" for t in ("a" + m + chr(c), "a" + chr(c) + m))
        if (has_class and not moves) or (decomposes and nfkd.normalize_str(chr(c)) == chr(c)):
            out[c] = 1
    return out


# ---- Scripts, numbered as they come; 0 is with any

def scripts():
    stage, out, known = pre_tokenizers.UnicodeScripts(), {}, []

    def are_one(a, b):
        return len(stage.pre_tokenize_str(a + b)) == 1

    last = 0
    for c in map(chr, CODE_POINTS):
        if are_one("a", c) and are_one("\u0434", c):
            number = 0
        elif last != 0 and are_one(known[last - 1], c):
            number = last
        else:
            number = next((i + 1 for i, k in enumerate(known) if are_one(k, c)), 0)
            if number == 0:
                known.append(c)
                number = len(known)
        last = number or last
        out[ord(c)] = number
    return out


# ---- The file

def ranges(values, keeps_zero=False):
    out = []
    for c in sorted(values):
        v = values[c]
        if v == 0 and not keeps_zero:
            continue
        if out and out[-1][1] == c - 1 and out[-1][2] == v:
            out[-1][1] = c
        else:
            out.append([c, c, v])
    return [tuple(r) for r in out]


def written_tables():
    return {
        name: [tuple(int(x, 0) for x in r) for r in re.findall(r"\{(\w+), (\w+), (-?\w+)\}", body)]
        for name, body in re.findall(r"relay_unicode_(\w+)_ranges\[\] = \{(.*?)\};", FILE.read_text(), re.S)
    }


def write(tables):
    text = FILE.read_text()
    for name, table in tables.items():
        body = ", ".join(f"{{0x{a:04X}, 0x{b:04X}, {v}}}" for a, b, v in table)
        text = re.sub(rf"(relay_unicode_{name}_ranges\[\] = \{{).*?(\}};)", rf"\g<1>\n{body},\n\g<2>", text, flags=re.S)
    FILE.write_text(text)
    subprocess.run(["clang-format-14", "-i", str(FILE)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables into the file")
    args = parser.parse_args()
    utf8proc = Utf8proc()
    tables = {
        "class": ranges(classes()),
        "inert": ranges(inert(utf8proc)),
        "lower": ranges(lower(utf8proc), True),
        "script": ranges(scripts()),
    }
    if args.write:
        write(tables)
        return
    written = written_tables()
    bad = [name for name in tables if tables[name] != written.get(name)]
    for name in bad:
        differ = sorted(set(tables[name]) ^ set(written.get(name, [])))
        print(f"{name}: {len(differ)} ranges differ: {[(hex(a), hex(b), v) for a, b, v in differ[:8]]}")
    if bad:
        sys.exit("there are differences")
    print(f"{sum(map(len, tables.values()))} ranges in {len(tables)} tables, as in {FILE.name}")


if __name__ == "__main__":
    main()
