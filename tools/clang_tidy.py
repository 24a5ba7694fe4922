#!/usr/bin/env python3
"""Runs clang-tidy, with the checks of .clang-tidy, on the C++ of src, lab and examples.

    tools/clang_tidy.py [--sample N] [--seed SEED] [--jobs N] [FOLDER]

FOLDER is a configured build (default: build/dev); compile_commands.json there has the options. With --sample it checks
N files only: first those that the working tree or the last commit changes, then others that the seed chooses (default:
the commit, so that other commits check other files). Headers are checked with the files that include them. Tests and
generated code are left out. Standard library only.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "lab", "examples")
# clang-tidy understands these options of the build. Others, such as GCC's warnings and precompiled headers, are dropped.
KEPT = ("-I", "-D", "-std=")
KEPT_WITH_VALUE = ("-isystem",)


def options_of(entry):
    """The options of one entry of compile_commands.json that decide what the code means."""
    words = shlex.split(entry["command"])
    kept = []
    for index, word in enumerate(words):
        if word.startswith(KEPT):
            kept.append(word)
        elif word in KEPT_WITH_VALUE:
            kept += words[index:index + 2]
    return kept


def sources(build):
    """The files to check and their options, in a fixed order."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if not path.is_relative_to(ROOT) or path.is_relative_to(build):
            continue
        name = path.relative_to(ROOT).as_posix()
        if name.split("/")[0] in FOLDERS and not name.endswith("_test.cc"):
            found.setdefault(name, options_of(entry))
    return dict(sorted(found.items()))


def check(name, options):
    """What clang-tidy finds in a file; None if nothing."""
    done = subprocess.run(["clang-tidy", "--quiet", name, "--", *options], cwd=ROOT, text=True, capture_output=True)
    if done.returncode == 0 and "warning:" not in done.stdout and "error:" not in done.stdout:
        return None
    return done.stdout.strip() or done.stderr.strip() or f"{name}: clang-tidy ended with status {done.returncode}"


def git(*arguments):
    """What git prints; nothing where there are no commits."""
    return subprocess.run(["git", *arguments], cwd=ROOT, text=True, capture_output=True).stdout.strip()


def sample(files, count, seed, changed):
    """So many of the files, the changed ones first."""
    shuffled = sorted(files)
    random.Random(seed).shuffle(shuffled)
    return sorted(sorted(shuffled, key=lambda name: name not in changed)[:count])


def main():
    parser = argparse.ArgumentParser(description="Runs clang-tidy on the C++ of src, lab and examples.")
    parser.add_argument("--sample", type=int, metavar="N", help="so many files only")
    parser.add_argument("--seed", default=os.environ.get("MUSTER_SEED"), help="chooses them (default: the commit)")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("MUSTER_JOBS") or os.cpu_count()))
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build" / "dev", metavar="FOLDER")
    arguments = parser.parse_args()
    files = sources(arguments.build.resolve())
    seed = arguments.seed or git("rev-parse", "HEAD") or "none"
    chosen = list(files)
    if arguments.sample is not None:
        chosen = sample(files, arguments.sample, seed, set(git("diff", "--name-only", "HEAD~1").splitlines()))
    began, findings = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for found in filter(None, pool.map(lambda name: check(name, files[name]), chosen)):
            print(found, flush=True)
            findings += 1
    print(f"clang_tidy: {len(chosen)} of {len(files)} files (seed {seed}), {findings} with findings, "
          f"{time.monotonic() - began:.0f} s")
    return 1 if findings or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
