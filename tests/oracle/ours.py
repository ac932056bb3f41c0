"""Relay's side of the comparisons: tests/tokenizer_svc/tokenize_lines."""
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bazel-bin/tests/tokenizer_svc/tokenize_lines"


def frame(blobs):
    return b"".join(struct.pack("<I", len(b)) + b for b in blobs)


def ask(arguments, blobs=()):
    """The lines it prints."""
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], input=frame(blobs), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace") or f"exit {done.returncode}")
    return done.stdout.decode().splitlines()


def numbers(arguments, texts):
    """A list of numbers for each text."""
    return [[int(x) for x in line.split()] for line in ask(arguments, (t.encode() for t in texts))]


def text_of(model, id_lists):
    """The text of each list of ids."""
    return [bytes.fromhex(line).decode() for line in ask(["text", model], (struct.pack(f"<{len(ids)}I", *ids) for ids in id_lists))]
