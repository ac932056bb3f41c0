"""What a lost or silent connection costs: nothing that stays."""
import json
import select
import socket
import subprocess
import threading
import time

from conftest import GO_BIN, RELAY, SMOLLM2, start_model, start_tokenizer, wait_free, wait_running, wait_serving


class Proxy:
    """Passes bytes between a client and a server until it is frozen: then both ends stay open and nothing passes, like a cable
    that was pulled."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.target = host, int(port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.frozen = threading.Event()
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            self.sockets += [client, server]
            threading.Thread(target=self.pump, args=(client, server), daemon=True).start()

    def pump(self, a, b):
        while not self.frozen.is_set():
            for ready in select.select([a, b], [], [], 0.05)[0]:
                data = ready.recv(65536)
                if not data:
                    a.close(), b.close()
                    return
                (b if ready is a else a).sendall(data)

    def close(self):
        self.listener.close()
        for s in self.sockets:
            s.close()


def start():
    return start_model(SMOLLM2, "--keepalive-ms", "1000")


def long_call(address):
    return subprocess.Popen(
        [GO_BIN / "grpcurl", "-plaintext", "-d", json.dumps({"prompt_token_ids": [1, 2, 3], "stop": {"ignore_eos": True}}), address,
         "relay.v1.ModelService/GenerateTokens"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_half_open_connection_is_found_by_keepalive():
    model = start()
    wait_serving(model)
    proxy = Proxy(model.address)
    client = long_call(proxy.address)
    wait_running(model)
    proxy.frozen.set()
    wait_free(model)
    client.kill()
    client.wait()
    proxy.close()
    assert model.stop() == 0


def test_a_closed_connection_frees_its_blocks():
    model = start()
    wait_serving(model)
    client = long_call(model.address)
    wait_running(model)
    client.kill()
    client.wait()
    wait_free(model)
    assert model.stop() == 0


def test_a_client_gone_from_the_text_service_frees_the_model():
    model = start()
    tokenizer = start_tokenizer(model)
    wait_serving(model, tokenizer)
    client = subprocess.Popen([RELAY, "generate", "--server", tokenizer.address, "--ignore-eos", "Once"], stdout=subprocess.DEVNULL)
    wait_running(model)
    client.kill()
    client.wait()
    wait_free(model)
    assert tokenizer.stop() == 0 and model.stop() == 0


def test_an_idle_client_that_pings_every_six_seconds_is_not_sent_away():
    """The server must allow it: C core servers by default answer the third such ping with GOAWAY too_many_pings. Raw HTTP/2: pings only."""
    model = start_model()
    wait_serving(model)
    host, port = model.address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        received = b""
        for _ in range(3):
            s.sendall(b"\0\0\x08\6\0\0\0\0\0" + b"12345678")
            time.sleep(6)
            s.setblocking(False)
            try:
                received += s.recv(65536)
            except BlockingIOError:
                pass
            s.setblocking(True)
    assert b"too_many_pings" not in received and received.count(b"12345678") == 3
    assert model.stop() == 0
