"""Relay's side of what compares whole files: tests/tokenizer_svc/encode_lines, asked line by line."""
import json
import os
import pathlib
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("RELAY_ENCODE_LINES") or ROOT / "bazel-bin/tests/tokenizer_svc/encode_lines")


class Lines:
    def __init__(self, tokenizer):
        """Loads the file or folder; RuntimeError with the reason if it is refused."""
        self.process = subprocess.Popen([str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        (answer,) = self.ask([{"tokenizer": str(tokenizer)}])
        if "error" in answer:
            self.close()
            raise RuntimeError(answer["error"])
        self.fingerprint = answer.get("fingerprint")

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, questions):
        """The answers, in order."""
        def feed():
            for question in questions:
                self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        feeder = threading.Thread(target=feed)
        feeder.start()
        answers = []
        for _ in questions:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("encode_lines ended")
            answers.append(json.loads(line))
        feeder.join()
        return answers

    def encode(self, texts, parse_special=False):
        """(ids, begins, ends) of each text, offsets in bytes; nothing around it."""
        answers = self.ask([{"text": text, "special": False, "open": parse_special} for text in texts])
        return [(a["ids"], a["begin"], a["end"]) if isinstance(a, dict) and "ids" in a else a for a in answers]

    def decode(self, id_lists, skip_special=False):
        answers = self.ask([{"ids": ids, "skip": skip_special} for ids in id_lists])
        return [a.get("text", a) for a in answers]
