#!/usr/bin/env python3
"""Compares the tests with a numbered conformance checklist.

    tools/checklist.py [--root ROOT] [--prefix Item] [--count 121] [--reasons docs/reference/protocol.md] [--list]
    tools/checklist.py --prefix Rdzv --count 187 --reasons docs/internals/rendezvous.md
    tools/checklist.py --prefix Launch --count 154 --reasons docs/internals/architecture.md

The name of a test claims an item: `TEST(StoreTest, Item017AddsUp)` or `def test_item017_adds_up`; a name may claim
several (`Item030Item031...`). There is a list for the store (prefix Item), one for the rendezvous (prefix Rdzv) and one
for the launcher (prefix Launch). An item that cannot be tested has a line in the reasons file instead: "Item 098: not
tested because ...". Prints the items with neither, and tests that claim an item that is not on the list or has such a
line; then the status is 1.
"""

import argparse
import pathlib
import re
import sys

CPP_TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_F|_P)?\s*\(([^()]*)\)|\bRC_GTEST\w*_PROP\s*\(([^()]*)[,)]")
PYTHON_TEST = re.compile(r"^\s*(?:async\s+)?def\s+(test\w*)", re.MULTILINE)
REASON = re.compile(r"^\W*Item (\d{1,3}): not tested because \S", re.MULTILINE)


def test_names(path):
    """The names of the tests in a file, C++ ones with their suite: "StoreTest, Item017AddsUp"."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [match.group(1) for match in PYTHON_TEST.finditer(text)]
    text = re.sub(r"//[^\n]*", "", text)
    return [" ".join((match.group(1) or match.group(2)).split()) for match in CPP_TEST.finditer(text)]


def claims(root, prefix):
    """For each item number, the tests that claim it, as "path: name"."""
    claim = re.compile(prefix + r"_?(\d{3})(?!\d)", re.IGNORECASE)
    found = {}
    files = [path for folder in ("tests", "src") for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".py", ".cc")]
    for path in files:
        for name in test_names(path):
            for number in claim.findall(name):
                found.setdefault(int(number), []).append(f"{path.relative_to(root)}: {name}")
    return found


def problems(claimed, excused, count, prefix):
    """One line for each error."""
    wanted = range(1, count + 1)
    lines = [f"item {item} has no test (name one {prefix}{item:03d}...) and no written reason"
             for item in wanted if item not in claimed and item not in excused]
    lines += [f"{test} claims item {item}, but the list ends at {count}"
              for item in sorted(claimed) if item not in wanted for test in claimed[item]]
    lines += [f"item {item} has a reason for not being tested, but the list ends at {count}"
              for item in sorted(excused) if item not in wanted]
    lines += [f"item {item} has a reason why it is not tested, but {claimed[item][0]} does"
              for item in sorted(excused) if item in claimed]
    return lines


def main(arguments):
    parser = argparse.ArgumentParser(description="Compares the tests with a conformance checklist.")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    parser.add_argument("--prefix", default="Item", help="word before the number in a test's name")
    parser.add_argument("--count", type=int, default=121, help="number of items on the list")
    parser.add_argument("--reasons", default="docs/reference/protocol.md", help="where reasons are written")
    parser.add_argument("--list", action="store_true", help="print the tests of each item too")
    options = parser.parse_args(arguments)

    claimed = claims(options.root, options.prefix)
    reasons = options.root / options.reasons
    excused = set()
    if reasons.is_file():
        excused = {int(number) for number in REASON.findall(reasons.read_text(encoding="utf-8"))}

    if options.list:
        for item in sorted(claimed):
            for test in claimed[item]:
                print(f"{item:3d}  {test}")
    found = problems(claimed, excused, options.count, options.prefix)
    for line in found:
        print(line)
    tested = sum(1 for item in claimed if item <= options.count)
    print(f"checklist: {options.count} items, {tested} tested, {len(excused)} with a written reason, "
          f"{len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
