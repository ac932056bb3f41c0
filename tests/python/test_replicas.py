"""The text service keeps nothing between calls: two replicas, calls at random to either, one killed and started again."""
import concurrent.futures
import random
import threading

import grpc
import pytest

from conftest import BIN, SMOLLM2, Service

CLIENTS, TEXTS_EACH = 6, 8
WORDS = ["Hello", " world", "\n\n", " wörld", "語", "日本語のテキスト", " 😀", "👩‍👩‍👧‍👦", " 12345", "    ", "def f(x):\n\treturn x", " naïve", " Ω≈ç√", "<|im_end|>", "é", "\u0301",
         " ", "STOP", "ST"]


def start(listen="127.0.0.1:0"):
    return Service(BIN / "tokenizer_svc/relay-tokenizer", "--tokenizer", SMOLLM2, listen=listen)


class Replicas:
    """Two of them, and how often each process has answered."""

    def __init__(self):
        self.services = [start(), start()]
        self.addresses = [s.address for s in self.services]
        self.lock = threading.Lock()
        self.starts = [0, 0]  # how often each was started again
        self.answers = {}     # by (which, start)
        self.changed = threading.Condition(self.lock)

    def count(self, which):
        with self.lock:
            key = which, self.starts[which]
            self.answers[key] = self.answers.get(key, 0) + 1
            self.changed.notify_all()

    def wait_answers(self, which, n):
        """Until the process that runs now has given n answers."""
        with self.lock:
            assert self.changed.wait_for(lambda: self.answers.get((which, self.starts[which]), 0) >= n, timeout=120), self.answers

    def kill(self, which):
        self.services[which].process.kill()
        self.services[which].process.wait()

    def start_again(self, which):
        service = start(listen=self.addresses[which])
        with self.lock:
            self.services[which] = service
            self.starts[which] += 1

    def stop(self):
        return [s.stop() for s in self.services]


@pytest.fixture
def replicas():
    r = Replicas()
    yield r
    assert r.stop() == [0, 0]


class Client:
    """Each call to one of the two at random, and to another where that one is away."""

    def __init__(self, replicas, stubs, seed):
        from relay.v1 import tokenizer_pb2, tokenizer_pb2_grpc
        self.replicas, self.random, self.pb, self.lost = replicas, random.Random(seed), tokenizer_pb2, 0
        self.channels = [grpc.insecure_channel(a, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200),
                                                           ("grpc.initial_reconnect_backoff_ms", 50)]) for a in replicas.addresses]
        self.stubs = [tokenizer_pb2_grpc.TokenizerServiceStub(c) for c in self.channels]

    def call(self, method, request):
        for _ in range(1000):
            which = self.random.randrange(2)
            try:
                answer = getattr(self.stubs[which], method)(request, timeout=60)
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.UNAVAILABLE, e
                self.lost += 1
                continue
            self.replicas.count(which)
            return answer
        raise AssertionError("nobody answers")

    def stream(self, ids, stops):
        """The text of the ids in steps of any size, with the state in this client's hands alone."""
        text, state, at = "", b"", 0
        options = {"stop_strings": stops, "skip_special_tokens": False}
        while True:
            n = self.random.choice([1, 1, 2, 3, 7, 40])
            last = at + n >= len(ids)
            step = self.call("DetokenizeStep", self.pb.DetokenizeStepRequest(decode_state=state, options=options, token_ids=ids[at:at + n],
                                                                             end_of_sequence=last))
            text, state, at = text + step.text, step.decode_state, at + n
            if step.stopped or last:
                return text

    def check(self):
        text = "".join(self.random.choice(WORDS) for _ in range(self.random.randrange(1, 60)))
        ids = list(self.call("Tokenize", self.pb.TokenizeRequest(text=text)).encoding.token_ids)
        assert self.call("Detokenize", self.pb.DetokenizeRequest(token_ids=ids)).text == text
        assert self.stream(ids, []) == text
        assert self.stream(ids, ["STOP"]) == text.split("STOP")[0]
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": text, "token_ids": ids}, {"role": "user", "content": "x"}]
        prompts = [list(self.call("RenderChat", self.pb.RenderChatRequest(chat={"messages": messages[:n]})).encoding.token_ids) for n in (1, 3, 3)]
        assert prompts[1] == prompts[2] and prompts[1][:len(prompts[0]) + len(ids)] == prompts[0] + ids

    def run(self, is_over):
        n = 0
        while n < TEXTS_EACH or not is_over.is_set():
            self.check()
            n += 1
        for channel in self.channels:
            channel.close()
        return self.lost


def test_every_client_s_text_is_right(replicas, stubs):
    is_over = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        runs = [pool.submit(Client(replicas, stubs, seed).run, is_over) for seed in range(CLIENTS)]
        try:
            for which in (0, 1):  # never both at once
                replicas.wait_answers(which, 30)
                replicas.kill(which)
                replicas.wait_answers(1 - which, replicas.answers[1 - which, replicas.starts[1 - which]] + 30)
                replicas.start_again(which)
                replicas.wait_answers(which, 30)
        finally:
            is_over.set()
        lost = [run.result(timeout=300) for run in runs]
    assert sum(lost) > 0  # somebody met the one that was away
    assert all(replicas.answers[which, n] >= 30 for which in (0, 1) for n in (0, 1)), replicas.answers
