#!/usr/bin/env python3
"""Checks the documents of this repository: links, named files, the ways through the code, code blocks, line lengths.

    tools/documents.py [ROOT]

Prints one line for each mistake, "file:line: what is wrong", and ends with status 1 if there was one. Standard library
only. tests/e2e/readme_commands_test.py runs the blocks of commands; those that it must not run have a comment with the
reason above them: <!-- not run: REASON -->.
"""

import pathlib
import re
import sys

COLUMNS_MAX = 120
SKIPPED = re.compile(r"\.|build|corpus$|third_party$|node_modules$")
# Folders that a document's file names may start from: "server/store_hub.cc" is in src.
BASES = ("", "src", "include", "lab", "lab/sim")
ROOMS_MAX = 3

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`(?!_)([\w.-]+(?:/[\w.-]+)*\.(?:cc|h|py|sh|md))`")
FOLDER = re.compile(r"`((?:src|lab|tests|tools|scripts|include|python|docs|examples)(?:/[\w.-]+)*)/?`")
# "1. `server/store_hub.cc: StoreHub::Execute()`: text", in the section "The five ways".
STEP = re.compile(r"^\d+\. `([\w/]+\.(?:cc|h)):\s*([\w:~]+)\(\)`")
# Languages of blocks that tests run, compile or build; other blocks show formats, output and pictures.
LANGUAGES = {"sh", "python", "cpp", "cmake"}
COMMAND = re.compile(r"(\$ |\w+=\S* |.*/)?(muster|muster-lab|make|cmake|ctest|pip|torchrun|etcd|etcdctl|scripts/\w+"
                     r"|tools/\w+\.(py|sh)|apt-get|python3?|sudo) [\w./-]")
NOT_RUN = re.compile(r"<!-- not run: \w.* -->$")


class Document:
    """A page, with the lines of its code blocks marked."""

    def __init__(self, root, path):
        self.path = path
        self.name = path.relative_to(root).as_posix()
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.is_code = []
        inside = False
        for line in self.lines:
            fence = line.lstrip().startswith("```")
            self.is_code.append(inside or fence)
            inside ^= fence

    def text_lines(self):
        return ((number, line) for number, (line, code) in enumerate(zip(self.lines, self.is_code), 1) if not code)

    def anchors(self):
        heads = (line.lstrip("#").strip() for _, line in self.text_lines() if line.startswith("#"))
        return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def documents(root):
    for path in sorted(root.rglob("*.md")):
        if not any(SKIPPED.match(part) for part in path.relative_to(root).parts[:-1]):
            yield Document(root, path)


def check_width(page):
    """Lines fit, outside tables."""
    for number, line in enumerate(page.lines, 1):
        if len(line) > COLUMNS_MAX and not line.lstrip().startswith("|"):
            yield number, f"{len(line)} columns, {COLUMNS_MAX} are allowed"


def check_blocks(page):
    """Commands are in blocks that a test runs, or that say why not."""
    language = None
    for number, line in enumerate(page.lines, 1):
        above = page.lines[number - 2] if number > 1 else ""
        if line.lstrip().startswith("```"):
            language = line.strip(" `") if language is None else None
            if language and language not in LANGUAGES:
                yield number, f"no test knows the language '{language}'; use one of {', '.join(sorted(LANGUAGES))}"
            if above.startswith("<!-- not run") and not NOT_RUN.match(above):
                yield number - 1, "a block that is not run needs a reason: <!-- not run: REASON -->"
        elif language == "" and COMMAND.match(line):
            yield number, "a command in a block that no test runs; mark the block as sh"
        elif language is None and above.startswith("<!-- not run"):
            yield number - 1, "no block of commands follows"


def check_words(page):
    """No sentence starts with Who: such a sentence has to be read twice."""
    for number, line in page.text_lines():
        if re.search(r"(^|[.!?:] |\* )Who(ever)?\b(?![^.]*\?)", line):
            yield number, "a sentence starts with Who; name the subject"


def check_links(root, page):
    """A link leads to a file or a heading that exists."""
    for number, line in page.text_lines():
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"\w+:", target):
                continue
            file, _, anchor = target.partition("#")
            at = (page.path.parent / file).resolve() if file else page.path
            if not at.exists():
                yield number, f"the link {target} leads nowhere"
            elif anchor and anchor not in Document(root, at).anchors():
                yield number, f"{file or page.name} has no heading #{anchor}"


def check_names(root, page, names):
    """A file or folder that a document names exists."""
    for number, line in page.text_lines():
        for name in NAMED.findall(line):
            if "/" not in name and name not in names:
                yield number, f"no file is called {name}"
            elif "/" in name and not any((root / base / name).exists() for base in BASES):
                yield number, f"there is no {name}"
        for name in FOLDER.findall(line):
            if not (root / name).exists():
                yield number, f"there is no {name}"


def check_ways(root, page):
    """Each step of a way names a function of its file, and a way visits few rooms."""
    way, rooms, inside = "", set(), False
    for number, line in page.text_lines():
        if line.startswith("## "):
            inside = line == "## The five ways"
        if line.startswith("### "):
            way, rooms = line.lstrip("# "), set()
        step = STEP.match(line)
        if not (inside and step):
            continue
        file, function = step.groups()
        source = root / "src" / file
        if not source.exists():
            yield number, f"there is no src/{file}"
        elif not re.search(rf"\b{function.rpartition('::')[2]}\(", source.read_text(encoding="utf-8")):
            yield number, f"src/{file} has no {function}()"
        room = file.split("/")[0]
        if room != "os":  # The room os is below all others.
            rooms.add(room)
        if len(rooms) > ROOMS_MAX:
            yield number, f"the way '{way}' visits {len(rooms)} rooms ({', '.join(sorted(rooms))}), {ROOMS_MAX} are allowed"


def check_sources(root):
    """A document that code, a script or a test refers to exists."""
    for folder in ("src", "include", "lab", "tests", "tools", "scripts", "python", "examples"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc", ".py", ".sh", ".txt", "") or not path.is_file():
                continue
            if "corpus" in path.parts or path.name.startswith(("documents", "tidy_test")):
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                for name in re.findall(r"\bdocs/[\w/-]+\.md\b", line):
                    if not (root / name).exists():
                        yield f"{path.relative_to(root)}:{number}: there is no {name}"


def check_tree(root):
    names = {path.name for folder in ("src", "lab", "tests", "tools", "include", "python", "examples", "docs")
             for path in (root / folder).rglob("*.*")}
    names |= {path.name for path in root.glob("*.md")}
    for page in documents(root):
        for check in (check_width(page), check_words(page), check_blocks(page), check_links(root, page),
                      check_names(root, page, names), check_ways(root, page)):
            for number, message in check:
                yield f"{page.name}:{number}: {message}"
    yield from check_sources(root)


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    mistakes = list(check_tree(root))
    print(*mistakes, sep="\n", end="\n" if mistakes else "")
    print(f"documents: {sum(1 for _ in documents(root))} pages, {len(mistakes)} mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
