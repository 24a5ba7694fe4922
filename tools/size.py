#!/usr/bin/env python3
"""Counts the product, and fails when it grows above its budget.

    tools/size.py [ROOT]

The product is `include` and `src` without the unit tests. A code line is a line that has more than a comment. A public
type is a class, a struct, a union or an enumeration that a header of include/muster defines, nested ones included.
Standard library only.
"""

import pathlib
import re
import sys

CODE_LINES_MAX = 29_000
FILE_LINES_MAX = 500  # All lines, comments included.
PUBLIC_TYPES_MAX = 45

SUFFIXES = {".h", ".cc", ".proto"}
LITERALS_AND_COMMENTS = re.compile(
    r"""R"(?P<mark>[^()\\ ]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'"""
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)", re.DOTALL)
TYPE = re.compile(r"\b(?:class|struct|union|enum(?: class| struct)?)\s+(?:\[\[.*?\]\]\s*)?(\w+)(?:\s+final)?"
                  r"(?:\s*:(?!:)[^;{()]*)?\s*\{")


def without_comments(text):
    """The text without its comments; lines stay where they are."""
    return LITERALS_AND_COMMENTS.sub(
        lambda found: "\n" * found.group().count("\n") if found["comment"] else found.group(), text)


class File:
    """A file of the product."""

    def __init__(self, root, path):
        text = path.read_text(encoding="utf-8")
        code = without_comments(text)
        parts = path.relative_to(root).parts
        self.name = "/".join(parts)
        self.room = parts[0] if parts[0] == "include" else "/".join(parts[:2])
        self.lines = len(text.splitlines())
        self.code_lines = sum(1 for line in code.splitlines() if line.strip())
        self.public_types = TYPE.findall(code) if self.name.startswith("include/muster/") else []


def product(root):
    for folder in ("include", "src"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and not path.name.endswith("_test.cc"):
                yield File(root, path)


def table(files):
    """One line for each room, then the sums."""
    rooms = {}
    for file in files:
        files_before, lines_before = rooms.get(file.room, (0, 0))
        rooms[file.room] = (files_before + 1, lines_before + file.code_lines)
    yield f"{'room':<16} {'files':>6} {'code lines':>11}"
    for room, (count, lines) in sorted(rooms.items()):
        yield f"{room:<16} {count:>6} {lines:>11,}"
    yield f"{'the product':<16} {len(files):>6} {sum(file.code_lines for file in files):>11,}"
    yield f"{'public types':<16} {'':>6} {sum(len(file.public_types) for file in files):>11,}"


def mistakes(files):
    """What is above the budget, and what to do about it."""
    for file in files:
        if file.lines > FILE_LINES_MAX:
            yield f"{file.name}: {file.lines} lines, {FILE_LINES_MAX} are allowed; use two files"
    lines = sum(file.code_lines for file in files)
    if lines > CODE_LINES_MAX:
        yield f"{lines:,} code lines, {CODE_LINES_MAX:,} are allowed; delete what is double or unused"
    types = [name for file in files for name in file.public_types]
    if len(types) > PUBLIC_TYPES_MAX:
        yield f"{len(types)} public types, {PUBLIC_TYPES_MAX} are allowed; make one of them private"


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    files = list(product(root))
    found = list(mistakes(files))
    print(*table(files), *found, sep="\n")
    print(f"size: {len(files)} files, {len(found)} above the budget")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
