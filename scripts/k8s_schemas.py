#!/usr/bin/env python3
"""Lays out the JSON schemas that PyPI's kubernetes-validate ships in the way kubeconform looks for them: k8s_schemas.py FOLDER."""
import importlib.util
import json
import os
import pathlib
import shutil
import sys

VERSION = "1.34.0"


def main():
    source = pathlib.Path(importlib.util.find_spec("kubernetes_validate").origin).parent / "kubernetes-json-schema" / ("v%s-local-strict" % VERSION)
    target = pathlib.Path(sys.argv[1])
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    folder = part / ("v%s-standalone-strict" % VERSION)
    folder.mkdir(parents=True)
    for path in sorted(source.glob("*.json")):
        text = path.read_text().replace('"/api/_definitions.json#', '"_definitions.json#')
        schema = json.loads(text)
        if isinstance(schema, dict):
            schema.pop("$id", None)
        (folder / path.name).write_text(json.dumps(schema))
    os.rename(part, target)


main()
