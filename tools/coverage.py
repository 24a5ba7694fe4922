#!/usr/bin/env python3
"""Reports which lines the tests have reached, from the counts of a build with --coverage.

    tools/coverage.py BUILD [--least PERCENT] [--missing] [FOLDER...]

BUILD is the build folder; FOLDERs are folders of the repository (default: src/store src/rendezvous src/server
src/etcd). Prints a table of folders and files, and with --missing the lines that no test has reached. Ends with status 1
if a folder has less than PERCENT (default 90) of its lines covered. Ends with status 2 and without a table if gcov
fails, because the figure would lack some files. Needs gcov of the compiler that built; standard library only.

A line counts if any object file has code for it; it is covered if any of them has run it. Tests (*_test.cc) do not count.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Harmless messages of gcov on stderr: no code of an object file has run, or it has no code.
HARMLESS = ("cannot open data file, assuming not executed", "no functions found")


class NotMeasured(Exception):
    """Why there is no figure."""


def notes(build):
    """The object files with notes of the compiler."""
    found = sorted(build.rglob("*.gcno"))
    if not found:
        raise NotMeasured(f"no .gcno files in {build}: it is no build with --coverage")
    return found


def ask_gcov(note):
    """gcov's report about one object file: a JSON object in each line."""
    command = ["gcov", "--json-format", "--stdout", note]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=note.parent, check=False)
    except OSError as failure:
        raise NotMeasured(f"gcov cannot be started: {failure}") from failure
    # gcov only warns about counts that it cannot read, or that are from another build, and ignores them.
    complaints = [line for line in done.stderr.splitlines() if not line.endswith(HARMLESS)]
    if done.returncode != 0 or complaints or not done.stdout.strip():
        said = "; ".join(complaints) or "nothing"
        raise NotMeasured(f"gcov failed for {note}: status {done.returncode}, and it printed {said}")
    return done.stdout.splitlines()


def lines_of(note):
    """{file: {line: how often it ran}} of one object file, for files of this repository that are not tests."""
    found = collections.defaultdict(collections.Counter)
    for text in ask_gcov(note):
        for entry in json.loads(text)["files"]:
            path = os.path.relpath(pathlib.Path(entry["file"]).resolve(), ROOT)
            if not path.startswith("src/") or path.endswith("_test.cc"):
                continue
            for line in entry["lines"]:
                found[path][line["line_number"]] += line["count"]
    return found


def collect(build):
    """The same of all object files together."""
    total = collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lines_of, notes(build)):
            for path, lines in found.items():
                total[path].update(lines)
    return total


def ranges(numbers):
    """[3, 4, 5, 9] as "3-5 9"."""
    out = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return " ".join(f"{a}-{b}" if a != b else str(a) for a, b in out)


def row(name, lines):
    """One line of the table: name, lines, covered, percent."""
    covered = sum(1 for count in lines if count > 0)
    percent = 100.0 * covered / len(lines) if lines else 0.0
    print(f"{name:<48} {len(lines):>6} {covered:>8} {percent:>7.1f} %")
    return percent


def report(total, folders, least, missing):
    """Prints the table. Returns the folders that are below the limit."""
    below = []
    print(f"{'':<48} {'lines':>6} {'covered':>8} {'':>9}")
    for folder in folders:
        files = {path: lines for path, lines in sorted(total.items()) if path.startswith(folder + "/")}
        percent = row(folder, [count for lines in files.values() for count in lines.values()])
        if percent < least:
            below.append(f"{folder}: {percent:.1f} %, at least {least:g} % is wanted")
        for path, lines in files.items():
            row("  " + path[len(folder) + 1:], list(lines.values()))
            unreached = [number for number, count in lines.items() if count == 0]
            if missing and unreached:
                print(f"    never reached: {ranges(unreached)}")
    return below


def main():
    parser = argparse.ArgumentParser(description="Line coverage of folders, from a build with --coverage.")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folders", nargs="*", default=["src/store", "src/rendezvous", "src/server", "src/etcd"])
    parser.add_argument("--least", type=float, default=90.0)
    parser.add_argument("--missing", action="store_true")
    options = parser.parse_args()
    try:
        total = collect(options.build.resolve())
    except NotMeasured as failure:
        print(f"coverage: {failure}", file=sys.stderr)
        return 2
    below = report(total, options.folders, options.least, options.missing)
    for line in below:
        print(f"coverage: {line}", file=sys.stderr)
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
