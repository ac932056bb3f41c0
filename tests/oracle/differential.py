#!/usr/bin/env python3
"""Our ids, offsets and texts beside those of Hugging Face tokenizers, tiktoken and sentencepiece: no difference is allowed.

For each tokenizer, --strings seeded texts (texts.py: all of Unicode, mixed scripts, combining marks, unassigned characters, emoji,
control characters, runs of blanks, code, digits, long words, names of special tokens): the ids with and without special tokens in
the text, the offsets in bytes, and the texts of the ids and of random ones. Files come from the cache (scripts/fetch.py tokenizer,
tests/peer/fetch), from tests/data, and out of sentencepiece's own trainer; a tokenizer whose file is not there is skipped and counted.

Last run: docs/tokenizer.md.
"""
import argparse
import base64
import io
import json
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time
from multiprocessing.pool import ThreadPool

import sentencepiece
import tiktoken
import tokenizers

import texts
from lines import Lines
from tokenizer_oracle import Reference as GgufReference
from vectors import CACHE, TOKENIZERS, VOCABULARIES, unpacked

BATCH = 1000
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not go with a fork


# ---- References: encode(texts, parse_special) -> [(ids, begins, ends) or (ids, None, None)], decode(id_lists) -> [text]


# What transformers makes of a text where tokenizer_config.json says clean_up_tokenization_spaces, as we do: the library itself
# does not read that file.
CLEAN_UP = [(" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")]


def char_starts(text):
    starts = [0]
    for c in text:
        starts.append(starts[-1] + len(c.encode()))
    return starts


class Library:
    odd = frozenset()  # ids that no decoding is compared with
    skips = staticmethod(lambda line: False)  # texts that are not compared
    drops_bytes = False  # whether there is no token for some byte


class HuggingFace(Library):
    """The same tokenizer.json, read by the library; or a tokenizer that was made of a GGUF file's keys."""

    def __init__(self, path=None, plain=None, special=None):
        self.plain = plain or tokenizers.Tokenizer.from_file(str(path))
        self.special = special or tokenizers.Tokenizer.from_file(str(path))
        self.plain.encode_special_tokens = True
        for t in (self.plain, self.special):
            t.no_truncation()
            t.no_padding()
        config = pathlib.Path(path).with_name("tokenizer_config.json") if path else None
        self.cleans_up = bool(config and config.exists() and json.loads(config.read_text()).get("clean_up_tokenization_spaces"))
        self.ids = sorted(self.special.get_vocab(with_added_tokens=True).values())
        self.names = [t.content for t in self.special.get_added_tokens_decoder().values()]

    def encode(self, lines, parse_special):
        t = self.special if parse_special else self.plain
        out = []
        for line, e in zip(lines, t.encode_batch(lines, add_special_tokens=False)):
            starts = char_starts(line)
            out.append((e.ids, [starts[b] for b, _ in e.offsets], [starts[e] for _, e in e.offsets]))
        return out

    def decode(self, id_lists):
        decoded = self.special.decode_batch(id_lists, skip_special_tokens=False)
        for old, new in CLEAN_UP if self.cleans_up else ():
            decoded = [text.replace(old, new) for text in decoded]
        return decoded


class Gguf(HuggingFace):
    def __init__(self, path):
        made = GgufReference(path)
        super().__init__(plain=made.plain, special=made.with_special)
        # Added tokens such as DeepSeek's "\u00f5", whose text the library's decoder takes for a byte (docs/tokenizer.md).
        alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        odd = {made.vocab[name] for name in made.user if not name.isascii() and set(name) <= alphabet}
        self.ids = sorted(set(made.vocab.values()) - odd)
        self.odd = odd
        self.drops_bytes = not alphabet <= set(made.vocab)
        self.names = made.control + made.user


def ranks_of(path):
    pairs = (line.split() for line in pathlib.Path(path).read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


class Tiktoken(Library):
    def __init__(self, encoding, first_id=0):
        self.encoding, self.first_id = encoding, first_id
        # But for a second name of a token, whose bytes are those of the first.
        self.names = [n for n in sorted(encoding.special_tokens_set) if encoding.decode([encoding.encode_single_token(n)]) == n]
        self.ids = sorted(first_id + i for i in set(encoding._mergeable_ranks.values()) | set(encoding._special_tokens.values()))

    def encode(self, lines, parse_special):
        e = self.encoding
        answers = e.encode_batch(lines, allowed_special="all") if parse_special else e.encode_ordinary_batch(lines)
        return [self.with_offsets(line, ids) for line, ids in zip(lines, answers)]

    def with_offsets(self, line, ids):
        """Those of the token's bytes, widened to whole characters."""
        starts, begins, ends, at = char_starts(line), [], [], 0
        floor, k = [0] * (starts[-1] + 1), 0
        ceil = [0] * (starts[-1] + 1)
        for k in range(len(starts) - 1):
            for b in range(starts[k], starts[k + 1]):
                floor[b], ceil[b + 1] = starts[k], starts[k + 1]
        for token in ids:
            n = len(self.encoding.decode_single_token_bytes(token))
            begins.append(floor[at])
            at += n
            ends.append(ceil[at])
        return [i + self.first_id for i in ids], begins, ends

    def decode(self, id_lists):
        return [self.encoding.decode_bytes([i - self.first_id for i in ids]).decode(errors="replace") for ids in id_lists]


def openai(name):
    """An encoding of tiktoken's own list over a file of ours."""
    import tiktoken_ext.openai_public as public
    file = TOKENIZERS / f"openai/{'o200k_base' if name == 'o200k_harmony' else name}.tiktoken"
    ranks = ranks_of(file)
    public.load_tiktoken_bpe = lambda *args, **options: ranks
    return Tiktoken(tiktoken.Encoding(**{k: v for k, v in getattr(public, name)().items()})), f"{file}:{name}"


def tekken(path):
    document = json.loads(path.read_text())
    config = document["config"]
    n = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in document["vocab"][:n]}
    return Tiktoken(tiktoken.Encoding(path.name, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}), config["default_num_special_tokens"])


class SentencePiece(Library):
    def __init__(self, path):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        # Where spaces are suffixes, the library makes a suffix of a text of nothing but U+2581, and we make nothing of it.
        self.skips = lambda line: "suffix" in str(path) and not line.strip("\u2581 ")
        p = self.processor
        # We show an unknown piece by its name and the library as " \u2047 "; of bytes that are no UTF-8, we show what HF's decoder
        # does. Control pieces are nothing to the library.
        self.odd = {i for i in range(p.get_piece_size()) if p.is_control(i) or p.is_unknown(i) or p.is_unused(i)}
        self.ids = [i for i in range(p.get_piece_size()) if i not in self.odd and not p.is_byte(i)]
        self.names = [p.id_to_piece(i) for i in range(min(20, p.get_piece_size()))]

    def encode(self, lines, parse_special):
        # The library has no way to name control pieces in a text.
        return None if parse_special else [(ids, None, None) for ids in self.processor.encode(lines)]

    def decode(self, id_lists):
        return self.processor.decode(id_lists)


def trained(folder, name, **options):
    """A small model of sentencepiece's own trainer, over sentences of twenty languages and code."""
    path = pathlib.Path(folder) / f"{name}.model"
    if not path.exists():
        out = io.BytesIO()
        corpus = texts.SENTENCES * 20 + [line[:400] for line in texts.code_lines(800)]
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=out, minloglevel=2, hard_vocab_limit=False, **options)
        path.write_bytes(out.getvalue())
    return path


TRAINED = {
    "unigram, nmt_nfkc": dict(model_type="unigram", vocab_size=1500),
    "unigram, bytes, own symbols": dict(model_type="unigram", vocab_size=1500, byte_fallback=True, user_defined_symbols=["<tool>", "the", "return"],
                                        remove_extra_whitespaces=False, normalization_rule_name="identity"),
    "bpe, nfkc_cf, suffix": dict(model_type="bpe", vocab_size=1500, treat_whitespace_as_suffix=True, normalization_rule_name="nfkc_cf"),
    "bpe, bytes, own symbols": dict(model_type="bpe", vocab_size=1500, byte_fallback=True, user_defined_symbols=["<tool>", "the", "return"],
                                    add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity"),
    "char": dict(model_type="char", vocab_size=900),
    "word": dict(model_type="word", vocab_size=900),
}


def catalogue(folder):
    """(name, path that we load, maker of the reference); the reference is None where the file is not there."""
    rows = []

    def add(name, path, reference):
        there = pathlib.Path(str(path).rsplit(":", 1)[0]).exists()
        rows.append((name, path, reference if there else None))

    for name in ("bert_base_cased", "clip_base", "gpt2", "modernbert", "xlnet_base_cased"):
        path = unpacked(f"{name}.json", folder)
        add(f"HF {name}", path, lambda path=path: HuggingFace(path))
    for name in ("qwen3", "llama3.1", "gemma3", "deepseek-v3", "gpt4o"):
        path = TOKENIZERS / name / "tokenizer.json"
        add(f"HF {name}", path, lambda path=path: HuggingFace(path))
    for name in ("r50k_base", "p50k_base", "cl100k_base", "o200k_base", "o200k_harmony"):
        file = TOKENIZERS / f"openai/{'o200k_base' if name == 'o200k_harmony' else name}.tiktoken"
        add(f"tiktoken {name}", f"{file}:{name}", lambda name=name: openai(name)[0])
    path = TOKENIZERS / "mistral/tekken_240911.json"
    add("tiktoken tekken", path, lambda path=path: tekken(path))
    for name in ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"):
        path = TOKENIZERS / "mistral" / name
        add(f"sentencepiece {name}", path, lambda path=path: SentencePiece(path))
    for name, options in TRAINED.items():
        path = trained(folder, name, **options)
        add(f"sentencepiece {name}", path, lambda path=path: SentencePiece(path))
    for name in ("gpt-2", "llama-bpe", "qwen2", "qwen35", "deepseek-llm", "deepseek-coder", "falcon", "starcoder", "command-r", "refact"):
        path = VOCABULARIES / f"ggml-vocab-{name}.gguf"
        add(f"GGUF {name}", path, lambda path=path: Gguf(path))
    add("GGUF smollm2", CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf", lambda: Gguf(CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    return rows


# ---- Comparing


class Counter:
    def __init__(self, name):
        self.name, self.compared, self.bad, self.shown = name, 0, 0, 0

    def add(self, inputs, ours, theirs):
        for given, mine, want in zip(inputs, ours, theirs):
            self.compared += 1
            if mine == want:
                continue
            self.bad += 1
            if self.shown < 3:
                self.shown += 1
                print(f"    {json.dumps(given)[:400]}\n      ours   {str(mine)[:300]}\n      theirs {str(want)[:300]}")


def check(name, path, reference, n_strings, seed):
    begin = time.monotonic()
    made = texts.Texts(seed, reference.names[:400] or None)
    r = random.Random(seed)
    ids, offsets, decoded = Counter("ids"), Counter("offsets"), Counter("texts")
    with Lines(path) as ours:
        for at in range(0, n_strings, BATCH):
            lines = [made.line() for _ in range(min(BATCH, n_strings - at))]
            lines = [line for line in lines if not reference.skips(line)]
            for parse_special in (False, True):
                theirs = reference.encode(lines, parse_special)
                if theirs is None:
                    continue
                mine = ours.encode(lines, parse_special)
                ids.add(lines, [m[0] if isinstance(m, tuple) else m for m in mine], [t[0] for t in theirs])
                if theirs[0][1] is not None:
                    # Behind a byte that a vocabulary has no token for, the library's offsets are one too low.
                    whole = [i for i, text in enumerate(reference.decode([t[0] for t in theirs])) if not reference.drops_bytes or text == lines[i]]
                    offsets.add([lines[i] for i in whole], [mine[i][1:] if isinstance(mine[i], tuple) else mine[i] for i in whole],
                                [theirs[i][1:] for i in whole])
            id_lists = [t[0] for t in reference.encode(lines[::2], False)] + [[r.choice(reference.ids) for _ in range(r.randrange(1, 30))] for _ in lines[1::2]]
            id_lists = [ids for ids in id_lists if not reference.odd.intersection(ids)]
            decoded.add(id_lists, ours.decode(id_lists), reference.decode(id_lists))
    counters = (ids, offsets, decoded)
    print(f"{name}: " + "; ".join(f"{c.name} {c.compared} compared, {c.bad} differ" for c in counters if c.compared) + f" ({time.monotonic() - begin:.0f} s)", flush=True)
    return sum(c.bad for c in counters)


def run_one(row, args):
    name, path, reference = row
    sys.exit(1 if check(name, path, reference(), args.strings, args.seed) else 0)


def forked(row, args):
    """The exit code of a process of its own: 0 if nothing differs."""
    process = multiprocessing.get_context("fork").Process(target=run_one, args=(row, args))
    process.start()
    process.join()
    return process.exitcode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of tokenizers; without any, all")
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="tokenizers at a time")
    args = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__}, sentencepiece {sentencepiece.__version__}, seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for row in catalogue(folder) if not args.names or any(part in row[0] for part in args.names)]
        there = [row for row in rows if row[2] is not None]
        for name, path, reference in rows:
            if reference is None:
                print(f"{name}: skipped, for there is no {path}")
        with ThreadPool(args.jobs) as pool:
            # A process a tokenizer: the libraries hold Python's lock, and give no memory back.
            results = pool.map(lambda row: forked(row, args), there, chunksize=1)
    print(f"{len(there)} tokenizers, {len(rows) - len(there)} skipped")
    bad = [name for (name, _, _), result in zip(there, results) if result != 0]
    if bad:
        sys.exit(f"there are differences: {', '.join(bad)}")


if __name__ == "__main__":
    main()
