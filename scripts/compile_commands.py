#!/usr/bin/env python3
"""Writes compile_commands.json for editors, from what Bazel would run: scripts/compile_commands.py."""
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def bazel(*args):
    return subprocess.run(["bazel", *args], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()


def main():
    execution_root = bazel("info", "execution_root").strip()
    graph = json.loads(bazel("aquery", "mnemonic(CppCompile, //...)", "--output=jsonproto"))
    commands = []
    for action in graph["actions"]:
        arguments = action["arguments"]
        source = arguments[arguments.index("-c") + 1]
        # Sources of ours are named as they lie in the tree, so that an editor finds them; generated ones stay below bazel's root.
        if os.path.exists(os.path.join(ROOT, source)):
            commands.append({"directory": execution_root, "arguments": arguments, "file": os.path.join(ROOT, source)})
    with open(os.path.join(ROOT, "compile_commands.json"), "w") as f:
        json.dump(commands, f, indent=1)
    print("%d files" % len(commands))


main()
