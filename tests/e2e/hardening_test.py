#!/usr/bin/env python3
"""The program is linked, and the release compiled, with options that make overflows hard to exploit."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from needs import skip_or_fail

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
PATIENCE = 300


def readelf(program, *options):
    return subprocess.run(["readelf", "--wide", *options, program], capture_output=True, text=True, timeout=PATIENCE,
                          check=True).stdout


class Elf(unittest.TestCase):
    def assert_linked_so(self, program):
        self.assertRegex(readelf(program, "--file-header"), r"Type:\s+DYN \(Position-Independent Executable", program)
        self.assertIn("GNU_RELRO", readelf(program, "--program-headers"), program)
        self.assertRegex(readelf(program, "--dynamic"), r"\(FLAGS(_1)?\).*\bNOW\b", program)
        self.assertNotRegex(readelf(program, "--program-headers"), r"GNU_STACK.*RWE", program)

    def test_the_program_moves_in_memory_and_its_tables_are_read_only(self):
        self.assert_linked_so(os.environ["MUSTER_BIN"])

    def test_so_does_that_of_users_whose_stack_and_copies_are_checked(self):
        program = ROOT / "build" / "release" / "muster"
        if not program.exists() or program.stat().st_mtime < (ROOT / "CMakeLists.txt").stat().st_mtime:
            skip_or_fail("build/release/muster is not there, or older than CMakeLists.txt (make run builds it)",
                         "MUSTER_REQUIRE_RELEASE")
        self.assert_linked_so(program)
        symbols = readelf(program, "--dyn-syms")
        self.assertIn("__stack_chk_fail", symbols)
        self.assertRegex(symbols, r"__(memcpy|memmove|read|recv|snprintf|fprintf|printf)_chk")


class Flags(unittest.TestCase):
    def test_every_file_of_a_release_is_compiled_so(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        skip_or_fail(None if shutil.which("ninja") else "no ninja", "MUSTER_REQUIRE_RELEASE")
        subprocess.run(["cmake", "--preset", "release", "-B", folder.name], cwd=ROOT, capture_output=True, timeout=PATIENCE,
                       check=True)
        commands = json.loads(pathlib.Path(folder.name, "compile_commands.json").read_text(encoding="utf-8"))
        ours = [entry for entry in commands if entry["file"].startswith(str(ROOT / "src"))]
        self.assertGreater(len(ours), 100)
        for entry in ours:
            for flag in ("-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-D_GLIBCXX_ASSERTIONS", "-fPI[CE]"):
                self.assertTrue(re.search(rf" {flag} ", entry["command"]), f"{flag}: {entry['file']}")
            self.assertIsNone(re.search(r" -O0 ", entry["command"]), entry["file"])


if __name__ == "__main__":
    unittest.main()
