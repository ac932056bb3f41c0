#!/usr/bin/env python3
"""Ids and offsets of our pipeline beside Hugging Face tokenizers': every stage and option, in small tokenizer.json files of many makings.

For each stage there is a row of files that hold it alone, with every value of its options; behind them come files that mix stages,
added tokens and post-processors at random. The library reads the same file as we do. No difference is allowed.
"""
import argparse
import base64
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import Tokenizer

import texts

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("RELAY_ENCODE_LINES") or ROOT / "bazel-bin/tests/tokenizer_svc/encode_lines")
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
PATTERNS = [
    r"\w+|[^\w\s]+", r"\s+", r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"\p{N}{1,3}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+",
    r"[\p{L}&&[^\p{Han}]]+|\p{Han}+", r"\b", r"(?=[A-Z])", r"^\s*|$", r"[\x{4E00}-\x{9FA5}]+", r"\p{N}{1,3}+", r"[a-z[0-9]]+", r"\h+", r"(?<=\d)(?=\D)", r".",
    r"(?i)the|and", r"\p{P}|\p{S}", r"[^a-zA-Z]+", r"[\s\S]{3}", r"\p{Lu}\p{Ll}*", r"\u3042|\u0041+", r"[^\p{Greek}]+", r"\d{,2}x?", r"(?m:a.)|\W",
]


# ---- The stages, each with all its options


def charsmap(pairs):
    """A precompiled_charsmap of our own making: a double array in Darts-clone's layout, and the replacements."""
    keys, blob = {}, b""
    for key, value in pairs:
        keys[key.encode()] = len(blob)
        blob += value.encode() + b"\0"
    units, used, next_block = {}, {0}, [256]

    def place(prefix, at):
        children = sorted({k[len(prefix)] for k in keys if k.startswith(prefix) and len(k) > len(prefix)})
        base = next_block[0]
        next_block[0] += 256
        # The children of a node lie at base ^ byte; base ^ 0 holds its value.
        units[at] = units.get(at, 0) | (at ^ base) << 10
        if prefix in keys:
            units[at] |= 1 << 8
            units[base] = 1 << 31 | keys[prefix]
        for byte in children:
            units[base ^ byte] = byte
            place(prefix + bytes([byte]), base ^ byte)

    place(b"", 0)
    array = [0] * (max(units) + 257)
    for at, unit in units.items():
        array[at] = unit
    raw = struct.pack("<I", 4 * len(array)) + b"".join(struct.pack("<I", u) for u in array) + blob
    return base64.b64encode(raw).decode()


CHARSMAP = charsmap([("\u00e9", "e"), ("\u00a0", " "), ("\u2003", " "), ("\u3000", " "), ("\ufb01", "fi"), ("\u2122", "TM"), ("A", "a"), ("B", "b"), ("\u200b", ""),
                     ("e\u0301", "\u00e9"), ("\u1100\u1161", "\uac00"), ("\u00bd", "1\u20442"), ("\r", " "), ("\n", " "), ("\t", ""), ("\uff21", "A"), ("\u0958", "\u0915\u093c")])


def normalizers():
    for kind in ["NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "ByteLevel"]:
        yield {"type": kind}
    for left in (False, True):
        for right in (False, True):
            yield {"type": "Strip", "strip_left": left, "strip_right": right}
    for pattern, content in [({"String": " "}, "\u2581"), ({"String": "e"}, ""), ({"Regex": r" {2,}"}, " "), ({"Regex": r"\s+"}, "\u2581\u2581"), ({"Regex": r"\p{N}"}, "0"),
                             ({"String": "``"}, '"'), ({"String": "\u0640"}, "x"), ({"Regex": r"(?<=a)b|\p{Han}"}, "\u00df\u00df")]:
        yield {"type": "Replace", "pattern": pattern, "content": content}
    yield {"type": "Prepend", "prepend": "\u2581"}
    yield {"type": "Prepend", "prepend": "ab"}
    for bits in range(24):
        yield {"type": "BertNormalizer", "clean_text": bool(bits & 1), "handle_chinese_chars": bool(bits & 2), "lowercase": bool(bits & 4), "strip_accents": [None, True, False][bits >> 3]}
    yield {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}


def pre_tokenizers():
    for kind in ["BertPreTokenizer", "UnicodeScripts", "Whitespace", "WhitespaceSplit"]:
        yield {"type": kind}
    for bits in range(8):
        yield {"type": "ByteLevel", "add_prefix_space": bool(bits & 1), "trim_offsets": bool(bits & 2), "use_regex": bool(bits & 4)}
    for delimiter in " e-\u2581\u00e9":
        yield {"type": "CharDelimiterSplit", "delimiter": delimiter}
    yield {"type": "Digits", "individual_digits": True}
    yield {"type": "Digits", "individual_digits": False}
    for length in (1, 3, 5):
        yield {"type": "FixedLength", "length": length}
    for scheme in ("always", "never", "first"):
        for split in (False, True):
            yield {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}
    yield {"type": "Metaspace", "replacement": "_"}
    for behavior in BEHAVIORS:
        yield {"type": "Punctuation", "behavior": behavior}
        for pattern in ({"String": " "}, {"String": "e"}, {"Regex": r"\s+"}, {"Regex": r"\p{L}+|\d"}):
            for invert in (False, True):
                yield {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    for pattern in PATTERNS:
        for behavior in ("Isolated", "MergedWithNext", "Removed"):
            yield {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def post_processors():
    bos, eos = ["<s>", 3], ["</s>", 4]
    yield {"type": "BertProcessing", "sep": eos, "cls": bos}
    for bits in range(4):
        trim, prefix = bool(bits & 1), bool(bits & 2)
        byte_level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": True}
        yield byte_level
        yield {"type": "RobertaProcessing", "sep": eos, "cls": bos, "trim_offsets": trim, "add_prefix_space": prefix}
        yield {"type": "Sequence", "processors": [byte_level, template(["<s>", None, "</s>", "</s>"])]}
    yield template(["<s>", None])
    yield template([None, "</s>"])
    yield template([None])


def template(pieces):
    def piece(name):
        return {"Sequence": {"id": "A", "type_id": 0}} if name is None else {"SpecialToken": {"id": name, "type_id": 0}}
    ids = {"<s>": 3, "</s>": 4}
    pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    tokens = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in pieces if name}
    return {"type": "TemplateProcessing", "single": [piece(p) for p in pieces], "pair": pair, "special_tokens": tokens}


def added(content, token_id, **options):
    token = {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {**token, **options}


def added_tokens(r, model):
    vocab = model["vocab"] if isinstance(model["vocab"], dict) else {p: i for i, (p, _) in enumerate(model["vocab"])}
    first_id = len(vocab)
    tokens = [added("<s>", 3, special=True), added("</s>", 4, special=True)]
    names = ["<|x|>", "<|xy|>", "<|x", "und", "the", "\u00e9t\u00e9", " a", "[MASK]", "Mask", "\u2581the", "ing", "  ", "<s>x", "\u6771", "\n\n", "e"]
    for name in r.sample(names, r.randrange(0, len(names))):
        options = {key: r.random() < 0.3 for key in ("single_word", "lstrip", "rstrip", "special")}
        tokens.append(added(name, vocab.get(name, first_id), normalized=r.random() < 0.4, **options))
        first_id += name not in vocab
    return tokens


# ---- The models


def alphabet():
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, n = {b: chr(b) for b in keep}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(0x100 + n)
            n += 1
    return table


def char_pieces(lines):
    return sorted({c for line in lines for c in line[:40]})[:700]


def word_level(lines):
    words = ["<unk>", "<pad>", "x", "<s>", "</s>", *char_pieces(lines)]
    return {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(dict.fromkeys(words))}, "unk_token": "<unk>"}


def word_piece(lines):
    pieces = ["<unk>", "<pad>", "x", "<s>", "</s>"]
    for c in char_pieces(lines):
        pieces += [c, "##" + c]
    return {"type": "WordPiece", "vocab": {w: i for i, w in enumerate(dict.fromkeys(pieces))}, "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 60}


def unigram(r, lines, byte_fallback):
    pieces = ["<unk>", "<pad>", "x", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] * byte_fallback
    pieces += [c for c in char_pieces(lines) if r.random() < 0.9] + ["\u2581", "\u2581the", "th", "in", "ing", "er", "  "]
    return {"type": "Unigram", "unk_id": 0, "vocab": [[p, -1 - r.random() * 9] for p in dict.fromkeys(pieces)], "byte_fallback": byte_fallback}


def bpe(r, byte_level, lines, **options):
    table = alphabet()
    pieces = ["<unk>", "<pad>", "x", "<s>", "</s>"] + (list(table.values()) if byte_level else [])
    if options.get("byte_fallback"):
        pieces += [f"<0x{b:02X}>" for b in range(256)]
    words = [w for line in lines for w in line[:60].split()]
    if byte_level:
        words = ["".join(table[b] for b in (" " + w).encode()) for w in words]
    else:
        pieces += [c for c in char_pieces(lines) if r.random() < 0.95]
    vocab, merges = {p: i for i, p in enumerate(dict.fromkeys(pieces))}, []
    for _ in range(300):
        word = r.choice(words)
        cut = r.randrange(0, len(word))
        left, right = word[max(0, cut - r.randrange(1, 3)):cut], word[cut:cut + r.randrange(1, 3)]
        if left in vocab and right in vocab and [left, right] not in merges:
            merges.append([left, right])
            vocab.setdefault(left + right, len(vocab))
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges, **options}


def models(r, lines):
    yield word_level(lines)
    yield word_piece(lines)
    yield unigram(r, lines, False)
    yield unigram(r, lines, True)
    yield bpe(r, True, lines)
    yield bpe(r, False, lines, unk_token="<unk>")
    yield bpe(r, False, lines, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    yield bpe(r, True, lines, ignore_merges=True)


def chars_model(lines):
    """Unigram over single characters: each token is a character, so a wrong border or offset shows."""
    pieces = ["<unk>", "<pad>", "x", "<s>", "</s>"] + char_pieces(lines)
    return {"type": "Unigram", "unk_id": 0, "vocab": [[p, -1.0] for p in dict.fromkeys(pieces)], "byte_fallback": False}


def whole(model, normalizer=None, pre_tokenizer=None, post_processor=None, tokens=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens), "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": None, "model": model}


# ---- Comparing


class Ours:
    def __init__(self):
        self.process = subprocess.Popen([str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, lines):
        def feed():
            for line in lines:
                self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
        import threading
        writer = threading.Thread(target=feed)
        writer.start()
        answers = []
        for _ in lines:
            answer = self.process.stdout.readline()
            if not answer:
                raise RuntimeError("encode_lines ended")
            answers.append(json.loads(answer))
        writer.join()
        return answers


def byte_offsets(text, offsets):
    starts = [0]
    for c in text:
        starts.append(starts[-1] + len(c.encode()))
    return [starts[b] for b, _ in offsets], [starts[e] for _, e in offsets]


def reference(spec, path):
    try:
        return Tokenizer.from_file(str(path))
    except BaseException as e:  # a panic of the library is no Exception
        return f"{e}"


def around(one, other):
    """The tokens of one from where they differ on."""
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return str(one)[:200]
    one, other = list(zip(*one)), list(zip(*other))
    first = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return f"{len(one)} tokens, from {first}: {one[first:first + 5]}"


def compare(ours, spec, lines, folder, name, quiet=False):
    """How many differ; None where both refuse the file."""
    path = pathlib.Path(folder) / "tokenizer.json"
    path.write_text(json.dumps(spec))
    theirs = reference(spec, path)
    loaded = ours.ask([{"tokenizer": str(path)}])[0]
    if "error" in loaded or isinstance(theirs, str):
        # Two added tokens that a normalizer makes one, or none: which the library finds is left to its hash table.
        is_ambiguous = re.search("are both|is empty", loaded.get("error", ""))
        if "error" in loaded and (isinstance(theirs, str) or is_ambiguous):
            return None
        print(f"    {name}: ours {loaded}, theirs {theirs if isinstance(theirs, str) else 'reads it'}")
        return 1
    wanted, asked = [], []
    for i, line in enumerate(lines):
        special, is_open = bool(i & 1), bool(i & 2)
        limit = 6 if i % 7 == 0 else 0
        theirs.encode_special_tokens = not is_open
        if limit:
            theirs.enable_truncation(limit, direction="left" if i & 1 else "right")
        else:
            theirs.no_truncation()
        try:
            e = theirs.encode(line, add_special_tokens=special)
            wanted.append((e.ids, *byte_offsets(line, e.offsets)))
        except BaseException:  # the library fails on what it should not (an alignment past its text)
            wanted.append(None)
        asked.append({"text": line, "special": special, "open": is_open, "max": limit, "left": bool(i & 1)})
    bad = 0
    for line, want, ask, got in zip(lines, wanted, asked, ours.ask(asked)):
        have = (got["ids"], got["begin"], got["end"]) if isinstance(got, dict) and "ids" in got else got
        if want is None or have == tuple(want):
            continue
        bad += 1
        if bad <= 2 and not quiet:
            print(f"    {name}\n      {json.dumps(ask)[:300]}\n      ours   {around(have, want)}\n      theirs {around(want, have)}")
    return bad


def rounds(r, lines):
    """(what, name, file) of every comparison."""
    chars = chars_model(lines)
    for z in normalizers():
        yield "normalizers", json.dumps(z)[:100], whole(chars, normalizer=z)
    for p in pre_tokenizers():
        yield "pre-tokenizers", json.dumps(p), whole(chars, pre_tokenizer=p)
    byte_level = bpe(r, True, lines)
    for post in post_processors():
        tokens = [added("<s>", 3, special=True), added("</s>", 4, special=True)]
        pre = {"type": "ByteLevel", "add_prefix_space": r.random() < 0.5, "trim_offsets": True, "use_regex": True}
        yield "post-processors", json.dumps(post)[:200], whole(byte_level, pre_tokenizer=pre, post_processor=post, tokens=tokens)


def mixed(r, lines, count):
    all_normalizers, all_pre, all_post = list(normalizers()), list(pre_tokenizers()), list(post_processors())
    for _ in range(count):
        z = [r.choice(all_normalizers) for _ in range(r.choice([0, 0, 1, 2, 3]))]
        p = [r.choice(all_pre) for _ in range(r.choice([0, 1, 1, 2, 3]))]
        model = r.choice(list(models(r, lines)))
        if model["type"] == "BPE" and not (p and p[-1]["type"] == "ByteLevel"):
            model["unk_token"] = "<unk>"  # behind a character that is left out the library's offsets are those of others
        tokens = added_tokens(r, model)
        spec = whole(model, {"type": "Sequence", "normalizers": z} if z else None, {"type": "Sequence", "pretokenizers": p} if p else None, r.choice([None, *all_post]), tokens)
        yield "mixed", json.dumps([z, p, spec["post_processor"], model["type"], tokens[2:]])[:900], spec


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=60, help="a file")
    parser.add_argument("--mixed", type=int, default=150, help="files of many stages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="normalizers, pre-tokenizers, post-processors, mixed")
    args = parser.parse_args()
    r = random.Random(args.seed)
    names = ["<s>", "</s>", "<|x|>", "<|xy|>", "und", "the", "[MASK]"]
    pool = texts.random_lines(max(2000, args.lines * 20), args.seed, names)
    pool = [line[:120] for line in pool] + ["", " ", "  a  ", "\r\n", "e\u0301", "\u00e9t\u00e9 \u00e9t\u00e9", "a <s>  b</s>", " the<|x|>und the", "\u0300a", "\uac01\u11a8"]
    print(f"tokenizers {tokenizers.__version__}, seed {args.seed}")
    ours, counts = Ours(), {}
    with tempfile.TemporaryDirectory() as folder:
        for what, name, spec in [*rounds(r, pool), *mixed(r, pool, args.mixed)]:
            if args.only not in (None, what):
                continue
            lines = r.sample(pool, args.lines) + pool[-10:]
            bad = compare(ours, spec, lines, folder, name)
            n, total, differ, refused = counts.get(what, (0, 0, 0, 0))
            counts[what] = (n + 1, total + (0 if bad is None else len(lines)), differ + (bad or 0), refused + (bad is None))
    for what, (n, total, differ, refused) in counts.items():
        print(f"  {what}, {n} files ({refused} refused by both): {total} compared, {differ} differ")
    if any(differ for _, _, differ, _ in counts.values()):
        sys.exit("there are differences")


if __name__ == "__main__":
    main()
