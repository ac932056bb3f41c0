"""The manifests are what a Kubernetes API would take: rendered by kustomize, checked against its schemas."""
import re

from conftest import CACHE, GO_BIN, ROOT, run

BASE = ROOT / "k8s/base"


def rendered():
    return run(GO_BIN / "kustomize", "build", BASE).stdout


def test_base_is_valid(tmp_path):
    path = tmp_path / "base.yaml"
    path.write_text(rendered())
    out = run(GO_BIN / "kubeconform", "-strict", "-summary", "-kubernetes-version", "1.34.0", "-schema-location",
              CACHE / "tools/k8s-schemas", path).stdout
    assert "Invalid: 0, Errors: 0, Skipped: 0" in out, out


def test_a_wrong_field_is_found(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(rendered().replace("readinessProbe:", "readynessProbe:"))
    done = run(GO_BIN / "kubeconform", "-strict", "-kubernetes-version", "1.34.0", "-schema-location",
               CACHE / "tools/k8s-schemas", path, check=False)
    assert done.returncode != 0 and "readynessProbe" in done.stdout


def test_grace_covers_pre_stop_and_drain():
    parts = [part for part in rendered().split("\n---\n") if "terminationGracePeriodSeconds" in part]
    assert len(parts) == 2
    for part in parts:
        grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", part).group(1))
        pre_stop = int(re.search(r"sleep:\s+seconds: (\d+)", part).group(1))
        drain = int(re.search(r"--drain-seconds=(\d+)", part).group(1))
        assert grace >= pre_stop + drain + 10


def test_flags_are_the_programs_own():
    help_of = {name: run(ROOT / "bazel-bin" / path, "--help").stdout
               for name, path in (("relay-model", "model_svc/relay-model"), ("relay-tokenizer", "tokenizer_svc/relay-tokenizer"))}
    for name, text in help_of.items():
        flags = [flag for part in rendered().split("\n---\n") if "image: %s:" % name in part
                 for flag in re.findall(r"- (--[a-z-]+)=", part)]
        assert len(flags) > 2
        for flag in flags:
            assert re.search(r"^ +%s\b" % flag, text, re.M), (name, flag)
