#!/usr/bin/env python3
"""Checks docs/reference/torch-rendezvous.md: the items of PyTorch's rendezvous, muster's, and the tests of these.

    tools/torch_table.py [ROOT]

Each heading of the page names a file of PyTorch, below torch/distributed/elastic. Prints rows without a test, tests and
names of muster that do not exist, and the number of rows with "missing". MUSTER_TORCH_PYTHON names a Python with
PyTorch: every item must be in PyTorch's file, and every public name and default of that file in a row. The files are
parsed, not imported: that takes less time, and finds attributes and messages, too. Status 1 if something is wrong; 77
if nothing is, but there was no PyTorch to compare with. Standard library only.
"""

import ast
import os
import pathlib
import re
import subprocess
import sys

from checklist import test_names

PAGE = "docs/reference/torch-rendezvous.md"
FILES = {*(f"rendezvous/{name}.py" for name in ("api", "c10d_rendezvous_backend", "dynamic_rendezvous", "registry",
                                                "static_tcp_rendezvous", "utils")), "utils/distributed.py"}
CELLS = ("original", "C++", "Python", "test")
SOURCES = {"C++": ("include", "src"), "Python": ("python/src", "python/native")}
TESTS = ("tests", "src", "python/tests")
# A name of PyTorch with its default, if it has one; or a text: an option, a variable, a part of a message.
ITEM = re.compile(r"(?:event )?`(?P<name>[^`]+)`|(?:backend|group|key|log|message|option|variable) `(?P<text>[^`]+)`")
NOT_FOR_CALLERS = {"log", "logger"}
FIND = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"


def files_in(root, folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cc", ".h", ".py"):
                yield path


def tests_in(root):
    """Every test, as the page names it: Suite.Test, or path::test."""
    for path in files_in(root, TESTS):
        where = f"{path.relative_to(root).as_posix()}::" if path.suffix == ".py" else ""
        yield from (where + test.replace(", ", ".") for test in test_names(path))


class Original:
    """A file of PyTorch: its names (Class.method), its defaults (function(argument=default)), and all its texts."""

    def __init__(self, path):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self.names = set()
        self._enter(tree.body, "")
        self.texts = "\n".join(
            "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if isinstance(node, ast.JoinedStr) else node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and isinstance(node.value, str))

    def _enter(self, body, above):
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.names.add(above + node.name)
            if isinstance(node, ast.ClassDef):
                self._enter(node.body, f"{above}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                made = node.name == "__init__"  # Its arguments are those of the class.
                given = zip(reversed(node.args.args), reversed(node.args.defaults))
                self.names |= {f"{above[:-1] if made else above + node.name}({argument.arg}={ast.unparse(default)})"
                               for argument, default in given}
                if made:
                    self.names |= {above + part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
                                   and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self"}
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.names |= {above + target.id for target in targets if isinstance(target, ast.Name)}

    def has(self, item):
        # The names of some options are put together: key + "_timeout".
        return item["name"] in self.names if item["name"] else item["text"].removesuffix("_timeout") in self.texts

    def for_callers(self):
        return {name for name in self.names - NOT_FOR_CALLERS if not re.search(r"(^|\.)_", name.partition("(")[0])}


def originals(python):
    """Reads a file of PyTorch; None without PyTorch."""
    found = subprocess.run([python, "-c", FIND], capture_output=True, text=True) if python else None
    if found is None or found.returncode != 0:
        return None
    folder = pathlib.Path(found.stdout.strip(), "distributed", "elastic")
    return lambda file: Original(folder / file)


def mistakes_in(root, read_original):
    tests = set(tests_in(root))
    words = {language: set(re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8")
                                                        for path in files_in(root, folders))))
             for language, folders in SOURCES.items()}
    original, listed, missing, files = None, set(), 0, set()
    for number, line in enumerate([*(root / PAGE).read_text(encoding="utf-8").splitlines(), "## the end"], 1):
        if line.startswith("## "):
            if original:
                yield from (f"{PAGE}:{number}: {name} is not in the table above"
                            for name in sorted(original.for_callers() - listed))
            file, listed = line[3:], set()
            files.add(file)
            original = read_original(file) if read_original and file in FILES else None
        if not line.startswith("| ") or line.startswith("| Original"):
            continue
        row = dict(zip(CELLS, (cell.strip() for cell in line.strip("| ").split(" | "))))
        item = ITEM.match(row["original"])
        if len(row) != len(CELLS) or not item:
            yield f"{PAGE}:{number}: a row has an item, C++, Python and tests"
            continue
        listed.add(item["name"])
        missing += "missing" in row.values()
        if original and not original.has(item):
            yield f"{PAGE}:{number}: {file} has no {item.group()}"
        for language, known in words.items():
            quoted = " ".join(re.findall(r"`([^`]+)`", row[language]))
            if row[language] == "same" and item["name"]:
                quoted = item["name"].partition("(")[0].rpartition(".")[2]
            for word in sorted(set(re.findall(r"\w+", quoted)) - known):
                yield f"{PAGE}:{number}: nothing is called {word} in {language}"
        named = re.findall(r"`([^`]+)`", row["test"])
        if not named and row["test"] != "missing":
            yield f"{PAGE}:{number}: the row has no test"
        yield from (f"{PAGE}:{number}: there is no test {test}" for test in named if test not in tests)
    yield from (f"{PAGE}: there is no table of {file}" for file in sorted(FILES - files))
    print(f"torch_table: {missing} rows say missing")


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    read_original = originals(os.environ.get("MUSTER_TORCH_PYTHON"))
    mistakes = list(mistakes_in(root, read_original))
    print(*mistakes, sep="\n", end="\n" if mistakes else "")
    print(f"torch_table: {len(mistakes)} mistakes" + ("" if read_original else "; no PyTorch to compare with"))
    if not read_original and os.environ.get("MUSTER_REQUIRE_TORCH") == "1":
        return 1
    return 1 if mistakes else 0 if read_original else 77


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
