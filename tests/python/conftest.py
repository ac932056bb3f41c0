"""What the Python tests share: where the programs are, the generated messages, running services."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Programs of another build, such as one with sanitizers, lie elsewhere.
BIN = pathlib.Path(os.environ.get("RELAY_BIN") or ROOT / "bazel-bin")
CACHE = pathlib.Path(os.environ.get("RELAY_CACHE") or pathlib.Path.home() / ".cache/relay")
VENV = CACHE / "venv/bin"
GO_BIN = CACHE / "tools/go/bin"
SMOLLM2 = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
RELAY = BIN / "cli/relay"


def run(*command, check=True, **kwargs):
    """A finished process with its output as text; a failure shows what it printed."""
    kwargs.setdefault("timeout", 120)
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
    if check and done.returncode != 0:
        raise AssertionError("%s: exit %d\n%s\n%s" % (command, done.returncode, done.stdout, done.stderr))
    return done


class Service:
    """One of the two services in a process of its own, on ports the system picks unless an address is given."""

    def __init__(self, program, *flags, listen="127.0.0.1:0"):
        self.folder = tempfile.TemporaryDirectory()
        ports = pathlib.Path(self.folder.name) / "ports"
        self.log_path = pathlib.Path(self.folder.name) / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [str(program), "--listen", listen, "--admin-listen", "127.0.0.1:0", "--port-file", str(ports)]
                + [str(f) for f in flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not ports.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError("%s did not start:\n%s" % (program, self.log()))
            time.sleep(0.01)
        found = dict(line.split("=") for line in ports.read_text().split())
        self.address = "127.0.0.1:" + found["grpc"]
        self.admin = "127.0.0.1:" + found["admin"]

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self):
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise AssertionError("did not end on SIGTERM:\n" + self.log())
        return self.process.returncode


def start_model(model=SMOLLM2, *flags):
    return Service(BIN / "model_svc/relay-model", "--model", model, *flags)


def start_tokenizer(model_server, tokenizer=SMOLLM2, *flags):
    return Service(BIN / "tokenizer_svc/relay-tokenizer", "--tokenizer", tokenizer, "--model-server", model_server.address, *flags)


def wait_serving(*services):
    for service in services:
        deadline = time.monotonic() + 60
        while run(GO_BIN / "grpc-health-probe", "-addr", service.address, check=False).returncode != 0:
            assert service.process.poll() is None and time.monotonic() < deadline, service.log()
            time.sleep(0.05)


def load(model):
    return json.loads(run(GO_BIN / "grpcurl", "-plaintext", "-d", "{}", model.address, "relay.v1.ModelService/GetLoad").stdout)["load"]


def wait_load(model, test):
    """Until test(load) holds; not as long as a whole answer takes, so that one that was to be cut is not waited for."""
    deadline = time.monotonic() + 20
    while not test(load(model)):
        assert time.monotonic() < deadline, load(model)
        time.sleep(0.01)


def wait_running(model):
    wait_load(model, lambda l: l.get("running", 0) == 1)


def wait_free(model):
    wait_load(model, lambda l: l.get("running", 0) == 0 and l["freeBlocks"] + l["cachedBlocks"] == l["totalBlocks"])


@pytest.fixture(scope="session")
def services():
    """(relay-model, relay-tokenizer) with SmolLM2, SERVING; both must end with exit code 0."""
    model = start_model()
    tokenizer = start_tokenizer(model)
    wait_serving(model, tokenizer)
    yield model, tokenizer
    codes = tokenizer.stop(), model.stop()
    assert codes == (0, 0), (codes, tokenizer.log(), model.log())


@pytest.fixture(scope="session")
def stubs():
    """The messages and stubs that protoc makes for Python, on the path as relay.v1.*_pb2."""
    folder = tempfile.TemporaryDirectory()
    protos = [str(p.relative_to(ROOT / "proto")) for p in sorted((ROOT / "proto/relay/v1").glob("*.proto"))]
    run("protoc", "-Iproto", "--experimental_allow_proto3_optional", "--python_out=" + folder.name, "--grpc_python_out=" + folder.name,
        "--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin", *protos, cwd=ROOT)
    sys.path.insert(0, folder.name)
    yield folder.name
    sys.path.remove(folder.name)
