"""Clients that others will write: those of the README word for word, grpcurl through reflection, grpc_health_probe."""
import json
import os
import re
import shutil

import pytest

from conftest import GO_BIN, ROOT, VENV, run

GO_ENV = dict(os.environ, GOFLAGS="-mod=mod", GOTOOLCHAIN="local", GOPROXY="off", PATH="%s:%s" % (GO_BIN, os.environ["PATH"]),
              GOPATH=str(GO_BIN.parent), GOCACHE=str(GO_BIN.parents[1] / "go-build"))


def readme(language):
    return re.search("```%s\n(.*?)```" % language, (ROOT / "README.md").read_text(), re.S).group(1)




def test_python_client_of_the_readme(services, tmp_path):
    run(ROOT / "scripts/stubs", "python", tmp_path / "stubs")
    (tmp_path / "client.py").write_text(readme("python"))
    out = run("/usr/bin/python3", "client.py", services[1].address, cwd=tmp_path,
              env=dict(os.environ, PYTHONPATH=str(tmp_path / "stubs"))).stdout
    assert len(out.split()) > 3, out


def test_go_client_of_the_readme(services, tmp_path):
    for name in ("go.mod", "go.sum"):
        shutil.copy(ROOT / "tests/clients/go" / name, tmp_path)
    run(ROOT / "scripts/stubs", "go", tmp_path / "gen", env=GO_ENV)
    (tmp_path / "main.go").write_text(readme("go"))
    run(VENV / "go", "build", "-o", "client", ".", cwd=tmp_path, env=GO_ENV, timeout=300)
    out = run(tmp_path / "client", services[1].address).stdout
    assert len(out.split()) > 3, out


def grpcurl(address, *args, check=True):
    return run(GO_BIN / "grpcurl", "-plaintext", *args[:-1], address, args[-1], check=check)


def test_grpcurl_lists_services(services):
    model, tokenizer = services
    assert set(run(GO_BIN / "grpcurl", "-plaintext", model.address, "list").stdout.split()) == {
        "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
        "relay.v1.ModelService"}
    assert set(run(GO_BIN / "grpcurl", "-plaintext", tokenizer.address, "list").stdout.split()) == {
        "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
        "relay.v1.GenerationService", "relay.v1.TokenizerService"}


def test_grpcurl_describes_and_calls_through_reflection(services):
    model, tokenizer = services
    assert "optional float temperature = 1" in run(
        GO_BIN / "grpcurl", "-plaintext", tokenizer.address, "describe", "relay.v1.SamplingParams").stdout
    info = json.loads(grpcurl(model.address, "-d", "{}", "relay.v1.ModelService/GetModelInfo").stdout)
    assert info["architecture"] == "llama" and info["vocabSize"] == 49152
    ids = json.loads(grpcurl(tokenizer.address, "-d", json.dumps({"text": "Hello, world"}), "relay.v1.TokenizerService/Tokenize").stdout)
    text = json.loads(grpcurl(tokenizer.address, "-d", json.dumps({"token_ids": ids["encoding"]["tokenIds"]}),
                              "relay.v1.TokenizerService/Detokenize").stdout)
    assert text["text"] == "Hello, world"


def test_grpcurl_gets_an_answer(services):
    request = {"chat": {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
               "sampling": {"temperature": 0}, "stop": {"max_new_tokens": 40}}
    out = grpcurl(services[1].address, "-d", json.dumps(request), "relay.v1.GenerationService/Generate").stdout
    assert "Paris" in "".join(re.findall(r'"text": "(.*)"', out)), out


def test_grpcurl_sees_the_field_that_is_wrong(services):
    done = grpcurl(services[1].address, "-d", json.dumps({"prompt": "a", "sampling": {"temperature": 7}}),
                   "relay.v1.GenerationService/Generate", check=False)
    assert done.returncode != 0
    assert "InvalidArgument" in done.stderr and "temperature" in done.stderr and "7" in done.stderr, done.stderr


@pytest.mark.parametrize("which, service", [
    (0, ""), (0, "relay.v1.ModelService"), (1, ""), (1, "relay.v1.GenerationService"), (1, "relay.v1.TokenizerService")])
def test_health_probe(services, which, service):
    run(GO_BIN / "grpc-health-probe", "-addr", services[which].address, "-service", service)


def test_health_probe_of_an_unknown_service(services):
    done = run(GO_BIN / "grpc-health-probe", "-addr", services[0].address, "-service", "no.such.Service", check=False)
    assert done.returncode != 0
