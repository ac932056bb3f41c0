#!/usr/bin/env python3
"""Makes the texts of tests/bench/tokenizer_bench out of unpacked Debian packages, and GPT-2's tokenizer.json out of its
two files: tokenizer_texts.py DEBIAN_FOLDER TEXT_FOLDER FILE_FOLDER. Run by tests/bench/tokenizer_peers."""
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys

MAX_BYTES = 2_000_000


def read(path):
    data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    return data.decode(errors="ignore")


def english(debian):
    env = dict(os.environ, BIBLE_DATA=str(debian / "usr/lib"))
    done = subprocess.run([debian / "usr/bin/bible", "-f", "-p", debian / "usr/lib", "gen1:1-rev22:21"], env=env, stdout=subprocess.PIPE)
    if done.returncode != 0 or not done.stdout:  # its data lies where the package would have put it
        done = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdout=subprocess.PIPE, check=True)
    return "".join(line.partition(" ")[2] + "\n" for line in done.stdout.decode().splitlines())


def main():
    debian, texts, files = (pathlib.Path(a) for a in sys.argv[1:])
    fortunes = debian / "usr/share/games/fortunes"
    noise = random.Random(7)
    library = pathlib.Path(random.__file__).parent
    made = {
        "English": english(debian),
        "Chinese": read(fortunes / "chinese"),
        "Japanese": "\n".join(read(p) for p in sorted((debian / "usr/share/man/ja").rglob("*.gz")) if not p.is_symlink()),
        "Russian": "\n".join(read(p) for p in sorted((fortunes / "ru").iterdir()) if p.suffix == "" and not p.is_symlink()),
        "Python": "\n".join(read(p) for p in sorted(library.rglob("*.py")) if "-packages" not in str(p)),
        "bytes as text": "".join(chr(noise.randrange(256)) for _ in range(MAX_BYTES)),
    }
    for name, text in made.items():
        (texts / name).write_bytes(text.encode()[:MAX_BYTES].decode(errors="ignore").encode())
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    merges = [line for line in (files / "vocab.bpe").read_text().split("\n")[1:] if line]
    model = {"type": "BPE", "vocab": json.loads((files / "encoder.json").read_text()), "merges": merges}
    gpt2 = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model}
    (files / "gpt2.json").write_text(json.dumps(gpt2))


if __name__ == "__main__":
    main()
