#!/usr/bin/env python3
"""Checks the rules of this repository that a compiler cannot see.

    tools/tidy.py [ROOT]

Prints one line for each violation, "file:line: what is wrong; what to do instead", and ends with
status 1 if there was one. Standard library only. tools/tidy_test.py shows every rule firing.

Each rule is a function from a SourceFile to (line number, message) pairs, listed in RULES.
"""

import pathlib
import re
import sys

# --- Which files ------------------------------------------------------------------------------

CODE = {".h", ".cc"}
TEXT = CODE | {".py", ".sh", ".md", ".cmake", ".txt", ".json", ".toml", ".yaml", ".yml", ".in", ""}
# A fuzzer's corpus is bytes, whatever they look like.
SKIPPED_FOLDERS = re.compile(r"\.(?!ci$|github$)|__pycache__$|third_party$|corpus$|build")
# These two files must name what they ban.
ABOUT_THE_RULES = {"tools/tidy.py", "tools/tidy_test.py"}

# --- The rules' numbers and tables ------------------------------------------------------------

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
COLUMNS_MAX = 100

# Which rooms of src and of lab a room may include; everything may include base. "muster" stands for the public headers.
_BELOW_SERVER = {"os", "store", "rendezvous", "muster"}
ARROWS = {
    "base": set(),
    "os": set(),
    "store": {"os", "muster"},
    "rendezvous": {"os", "store", "muster"},
    "server": _BELOW_SERVER,
    "etcd": _BELOW_SERVER | {"server"},
    "launch": _BELOW_SERVER | {"server"},
    "cli": _BELOW_SERVER | {"server", "etcd", "launch"},
    # The lab, which nothing above includes.
    "load": _BELOW_SERVER | {"server", "etcd"},
    "sim": _BELOW_SERVER | {"server", "etcd", "launch"},
    "program": _BELOW_SERVER | {"server", "etcd", "launch", "cli", "load", "sim"},
    # It uses the public headers only.
    "python": {"muster"},
}
LAB = {"load", "sim", "program"}
# The pure folders of a room: no clock, no thread, no socket. They see base and each other.
PURE = re.compile(r"(\w+/)*(core|wire|options)/")

# Third-party headers and the rooms that may include them.
GUESTS = [
    (r"uv\.h|uv/", ("os", "load"), "a port from src/os/ports"),
    (r"CLI/", ("cli", "program"), "an options struct filled by src/cli"),
    (r"nlohmann/", ("base", "cli", "launch", "program"), "base/flat_json.h, or a struct that src/cli prints"),
    (r"grpc(pp)?/|google/protobuf/|etcd\.(grpc\.)?pb\.h", ("etcd",), "the port in etcd/etcd_port.h"),
    (r"spdlog/", ("cli",), "the log sink of base/log.h"),
    (r"nanobind/|Python\.h", ("python",), "the public classes; python/native binds them"),
    (r"fmt/", ("cli",), "base/text.h or std::to_string"),
]
# Test libraries: only in files that are tests.
TEST_LIBRARIES = r"(gtest|gmock|rapidcheck)(/|\.h)"
# System headers (all <...> that are neither C++'s nor a guest's).
SYSTEM_ROOMS = ("os", "launch", "cli", "python", *LAB)
# Headers that unit tests may include everywhere: to measure memory.
SYSTEM_FOR_TESTS = {"malloc.h"}

STANDARD_HEADERS = set("""
    algorithm any array atomic barrier bit bitset charconv chrono codecvt compare complex concepts
    condition_variable coroutine deque exception execution filesystem format forward_list fstream
    functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list
    locale map memory memory_resource mutex new numbers numeric optional ostream queue random ranges
    ratio regex scoped_allocator semaphore set shared_mutex source_location span sstream stack
    stdexcept stop_token streambuf string string_view strstream syncstream system_error thread tuple
    type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
    cassert cctype cerrno cfenv cfloat cinttypes climits clocale cmath csetjmp csignal cstdarg cstddef
    cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype
""".split())


class Ban:
    """A pattern, where it is banned, its exceptions, and what to write instead.

    A match with the group "fine" is allowed.
    """

    def __init__(self, pattern, where, unless, what, instead):
        self.pattern = re.compile(pattern)
        self.where = where  # Path prefixes.
        self.unless = unless  # Path prefixes within those.
        self.message = f"{what}; use {instead}"


_OURS = ("src/", "include/", "examples/", "lab/")
_AND_TESTS = _OURS + ("tests/", "python/")
_CLOCK_READERS = ("src/os/", "src/cli/", "lab/load/", "lab/program/", "lab/sim/", "lab/histories/", "src/store/hash_store", "src/etcd/grpc/",
                  "src/launch/workers/")

# Code that returns errors as values.
_WITHOUT_EXCEPTIONS = (
    "src/base/", "src/os/", "src/store/core/", "src/store/wire/", "src/store/client/", "src/rendezvous/core/",
    "src/rendezvous/wire/", "src/rendezvous/session/session_hub", "src/rendezvous/session/session_link",
    "src/rendezvous/session/session_view", "src/rendezvous/document/rendezvous_driver",
    "src/rendezvous/document/shared_document", "src/server/client_", "src/server/shared_store",
    "src/server/server_loop", "src/etcd/grpc/", "src/launch/core/", "src/launch/options/", "src/launch/workers/",
    "src/launch/logs/", "lab/load/", "include/")

# Searched in code, outside comments and string literals.
CODE_BANS = [
    Ban(r"\bstd::random_device\b", ("src/", "include/", "lab/"), ("src/cli/", "lab/program/"), "std::random_device",
        "the Prng you were given (src/cli seeds it)"),
    Ban(r"\b(steady|system|high_resolution)_clock::now\b", ("src/", "include/", "lab/"), _CLOCK_READERS,
        "reading the clock", "the Instant you were given, or the port in os/ports/clock.h"),
    Ban(r"(?<![\w.>])s?rand\s*\(", _AND_TESTS, (), "rand()", "base/prng.h with a seed"),
    # The example's sleep stands for work that takes time.
    Ban(r"\bsleep_(for|until)\b|\b(u|nano)sleep\s*\(", _AND_TESTS,
        ("tests/support/eventually.", "examples/elastic_worker/"), "sleeping",
        "a wait on the condition itself (in src a timer of the loop, in tests EventuallyTrue)"),
    Ban(r"\bthrow\b", _WITHOUT_EXCEPTIONS, (), "throw",
        "a Result; only the public classes turn errors into exceptions"),
    # A private constructor needs `unique_ptr<T>(new T)`; there the owner is next to it.
    Ban(r"(?P<fine>\b(unique|shared)_ptr<[^;{}]*?>\s*\w*\(\s*new\b)|\bnew\b(?!\s*>)", _OURS,
        ("src/os/uv/", "lab/sim/"), "new", "std::make_unique or a value"),
    Ban(r"(?<!=)(?<!= )(?<!operator )\bdelete\b", _OURS, ("src/os/uv/", "lab/sim/"), "delete",
        "std::unique_ptr"),
    Ban(r"\busing\s+namespace\s+std\s*;", _AND_TESTS, (), "using namespace std",
        "std:: where it is needed"),
]

# Searched in the whole text of every file.
TEXT_BANS = [
    Ban(r"\bpkill\b|\bkillall\b", ("",), (), "ending processes by their name",
        "kill with the process id you started"),
    Ban(r"TODO\(now\)", ("",), (), "TODO(now)", "the time to do it before the commit"),
    Ban(r"(?<![\w.})*/-])/(work|root|home)/", ("",), (), "a path of one machine",
        "a path relative to the repository, a temporary folder or a variable"),
]


# --- Reading files ----------------------------------------------------------------------------

_TOKENS = re.compile(
    r"""
      (?P<comment> //(?:[^\n\\]|\\.|\\\n)* | /\*.*?\*/ )
    | (?P<raw> \bu?8?[LU]?R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)" )
    | (?P<string> "(?:[^"\\\n]|\\.)*" )
    | (?P<char> (?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+' )
    """, re.VERBOSE | re.DOTALL)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def strip_literals(text):
    """The text with comments and what is inside literals replaced by blanks; lines stay where they are."""

    def replace(match):
        found = match.group(0)
        if match.group("comment"):
            return _blank(found)
        return found[0] + _blank(found[1:-1]) + found[-1]

    return _TOKENS.sub(replace, text)


class SourceFile:
    """A file of the repository: its text, and for C++ also the text without comments and literals."""

    def __init__(self, root, path):
        self.root = root
        self.path = path.relative_to(root).as_posix()
        self.name = path.name
        self.suffix = path.suffix
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.split("\n")
        self.is_code = self.suffix in CODE
        self.is_header = self.suffix == ".h"
        self.is_test = self.name.endswith("_test.cc") or self.path.startswith("tests/")
        self.code = strip_literals(self.text) if self.is_code else ""

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def room(self):
        """The part of the architecture it belongs to, "store", "sim" or "python"; None elsewhere."""
        parts = self.path.split("/")
        if parts[0] == "python":
            return parts[0]
        if parts[0] == "lab":  # The fuzzers and the histories use the tests' helpers.
            return parts[1] if parts[1] in LAB else None
        return parts[1] if parts[0] == "src" and len(parts) > 2 else None

    def is_pure(self):
        return self.path.startswith("src/") and PURE.match(self.path[len("src/"):]) is not None

    def includes(self):
        """(line number, "<" or a quote, path) of each include."""
        # A directive that was commented out is blank in `code`, but so is a quoted path: check both.
        pattern = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
        for match in pattern.finditer(self.text):
            if "#" in self.code[match.start():match.end()]:
                yield self.line_of(match.start(2)), match.group(1), match.group(2)


def source_files(root):
    for path in sorted(root.rglob("*")):
        if any(SKIPPED_FOLDERS.match(part) for part in path.relative_to(root).parts[:-1]):
            continue
        if path.is_file() and not path.is_symlink() and path.suffix in TEXT:
            try:
                yield SourceFile(root, path)
            except UnicodeDecodeError:
                continue  # Not text after all.


# --- The rules --------------------------------------------------------------------------------


def _folder_of(room):
    if room == "python":
        return room
    return f"lab/{room}" if room in LAB else f"src/{room}"


def check_arrows(file):
    """A room includes only those below it, and a pure folder only pure ones."""
    room = file.room()
    for line, kind, path in file.includes():
        if kind != '"':
            continue
        target = path.split("/")[0] if "/" in path else room
        if file.path.startswith("include/"):
            if not path.startswith("muster/"):
                yield line, f'a public header includes "{path}"; use muster/* and C++ headers only'
        elif room is None or (file.is_test and target in ("support", "tests")):
            continue  # Helpers of the tests, in tests/support.
        elif room not in ARROWS:
            yield line, f"src/{room} has no place in the architecture; give it one in tools/tidy.py"
        elif target not in ARROWS[room] | {room, "base"} and not (room == "python" and target == "python"):
            allowed = ", ".join(sorted(ARROWS[room] | {room, "base"}))
            yield line, (f'{_folder_of(room)} includes "{path}", against the arrows; use what it may see '
                         f"({allowed}), or move the code to where both are visible")
        elif file.is_pure() and not file.is_test and target != "base" and "/" in path and not PURE.match(path):
            yield line, f'what is pure includes "{path}"; use base and other core, wire and options folders'


def check_rooms(file):
    """Third-party and system headers stay in their rooms."""
    room = file.room()
    if room is None and not file.path.startswith("include/"):
        return
    for line, kind, path in file.includes():
        if re.match(TEST_LIBRARIES, path):
            if not file.is_test:
                yield line, f"<{path}> outside a test; use it in a *_test.cc"
            continue
        guest = next((guest for guest in GUESTS if re.match(guest[0], path)), None)
        if guest is not None:
            if room not in guest[1]:
                where = " and ".join(map(_folder_of, guest[1]))
                yield line, f"<{path}> is a guest of {where}; use {guest[2]}"
        elif file.is_test and path in SYSTEM_FOR_TESTS:
            continue
        elif kind == "<" and path not in STANDARD_HEADERS and room not in SYSTEM_ROOMS:
            if path.endswith(".h") and "c" + path[:-2] in STANDARD_HEADERS:
                yield line, f"<{path}> is C's name for a C++ header; use <c{path[:-2]}>"
            else:
                yield line, f"system header <{path}> outside src/os; use a port from src/os/ports"


def _matches(bans, file, text):
    for ban in bans:
        if not file.path.startswith(ban.where) or file.path.startswith(ban.unless or ("\0",)):
            continue
        for match in ban.pattern.finditer(text):
            if match.groupdict().get("fine"):
                continue
            yield file.line_of(match.start()), "banned: " + ban.message


def check_code_bans(file):
    """Text that is banned in code."""
    return _matches(CODE_BANS, file, file.code)


def check_text_bans(file):
    """Text that is banned in every file."""
    if file.path in ABOUT_THE_RULES:
        return ()
    return _matches(TEXT_BANS, file, file.text)


def check_skips(file):
    """A test is skipped only when there is no PyTorch, or no etcd, to test against."""
    for match in re.finditer(r"\bGTEST_SKIP\b", file.code):
        statement = file.text[match.start():].split(";", 1)[0]
        peer = "torch" if file.path.startswith("tests/contracts/") else "etcd"
        in_place = (file.path.startswith(("tests/contracts/", "tests/etcd/")) and
                    peer in statement.lower())
        if not in_place:
            yield file.line_of(match.start()), (
                "banned: GTEST_SKIP; use a test that always runs (only tests/contracts and "
                "tests/etcd may skip, when there is no PyTorch or no etcd, and must say so)")


def check_header_form(file):
    """A header starts with a comment and has its guard."""
    if not file.is_header:
        return
    if not file.lines[0].startswith(("//", "/*")):
        yield 1, "no file comment; start with what this is, on which thread it lives, who owns what"
    if not re.search(r"^#pragma once$", file.code, re.MULTILINE):
        yield 1, "no include guard; use #pragma once"


def check_own_header_first(file):
    """A .cc includes its own header first, which shows that the header stands alone."""
    if file.suffix != ".cc" or file.room() in (None, "python") or file.name.endswith("_test.cc"):
        return
    root, stem = file.path[:-len(".cc")].split("/", maxsplit=1)
    own = [name for name in (f"{stem}.h", f"muster/{stem.split('/')[-1]}.h")
           if (file.root / root / name).is_file() or (file.root / "include" / name).is_file()]
    if file.room() not in ("store", "rendezvous", "server", "etcd"):
        own = [name for name in own if not name.startswith("muster/")]
    first = next(iter(file.includes()), None)
    if own and (first is None or first[2] not in own):
        yield first[0] if first else 1, f'the first include is not its own header; use "{own[0]}"'


def check_size(file):
    """Files and lines stay small, and no line ends in white space."""
    count = len(file.lines) - 1 if file.lines[-1] == "" else len(file.lines)
    if file.suffix in CODE | {".py", ".sh"} and count > FILE_LINES_MAX:
        yield FILE_LINES_MAX + 1, (f"{count} lines, {FILE_LINES_MAX} are allowed; use two files, "
                                   "starting with what everyone edits")
    for number, line in enumerate(file.lines, 1):
        if line != line.rstrip():
            yield number, "white space at the end of the line; use none (tools/format.sh)"
        if file.is_code and len(line) > COLUMNS_MAX and "://" not in line:
            yield number, f"{len(line)} columns, {COLUMNS_MAX} are allowed; use tools/format.sh"


_TEST_MACROS = re.compile(
    r"^\s*((TYPED_)?TEST(_F|_P)?|TYPED_TEST_P|RC_GTEST(_FIXTURE)?_PROP)\s*\(", re.MULTILINE)


def check_tests_test(file):
    """A test file has a test."""
    if file.name.endswith("_test.cc") and not _TEST_MACROS.search(file.code):
        yield 1, "no TEST in a test file; use one, or another name for the file"


_NOT_A_FUNCTION = re.compile(
    r'(inline\s+|export\s+)*(namespace|class|struct|union|enum|extern\s*")')
_INITIALIZER_LIST = re.compile(r"\)\s*(noexcept(\s*\([^()]*\))?\s*)?(?<!:):(?!:)")


def _opens_function(head):
    """Whether the text between the last statement and a brace is the head of a function."""
    head = re.sub(r"^\s*template\s*<[^{;()]*>\s*(?=[\w\[:~])", "", head).strip()
    return ")" in head and not head.endswith("=") and not _NOT_A_FUNCTION.match(head)


def _opens_value(head):
    """Whether a brace after this text starts a value inside the head, as in `f(A a = {})`."""
    if head.count("(") > head.count(")"):
        return True
    member = re.search(r"[\w>]\s*$", head)
    return bool(member and _INITIALIZER_LIST.search(head))


def functions(code):
    """(offset of the head, offset of the closing brace) of each function: a heuristic on braces."""
    # Macros need not balance.
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda match: _blank(match.group(0)), code,
                  flags=re.MULTILINE)
    stack = []  # For each open brace: where its function's head starts, or None; "value" inside heads.
    head_start = 0
    inside = 0  # How many open braces belong to a function.
    for match in re.finditer(r"[{};]", code):
        head = code[head_start:match.start()]
        if match.group() == "{":
            if inside:
                stack.append(None)
                inside += 1
            elif _opens_value(head):
                stack.append("value")
                continue  # The head continues after it.
            elif _opens_function(head):
                stack.append(head_start + len(head) - len(head.lstrip()))
                inside = 1
            else:
                stack.append(None)
        elif match.group() == "}" and stack:
            opened = stack.pop()
            if opened == "value":
                continue
            if inside:
                inside -= 1
                if opened is not None:
                    yield opened, match.start()
        elif "value" in stack:
            continue  # A semicolon of a lambda inside a head.
        if not (match.group() == ";" and head.count("(") > head.count(")") and not inside):
            head_start = match.end()


def check_function_length(file):
    """A function fits a screen."""
    if not file.is_code:
        return
    for start, end in functions(file.code):
        length = file.line_of(end) - file.line_of(start) + 1
        if length > FUNCTION_LINES_MAX:
            yield file.line_of(start), (f"a function of {length} lines, {FUNCTION_LINES_MAX} are allowed; "
                                        "use helpers for the straight work")


RULES = [
    check_arrows,
    check_rooms,
    check_code_bans,
    check_text_bans,
    check_skips,
    check_header_form,
    check_own_header_first,
    check_size,
    check_tests_test,
    check_function_length,
]


def check_tree(root):
    """All violations below a folder, as printable lines, and the number of files looked at."""
    violations = []
    files = 0
    for file in source_files(root):
        files += 1
        found = {entry for rule in RULES for entry in rule(file)}
        violations += [f"{file.path}:{line}: {message}" for line, message in sorted(found)]
    return violations, files


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    violations, files = check_tree(root)
    for violation in violations:
        print(violation)
    print(f"tidy: {files} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
