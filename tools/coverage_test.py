#!/usr/bin/env python3
"""Runs coverage.py on a program of a few lines, and checks its output when a folder is below the limit."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import coverage  # noqa: E402  (found through the line above)

HEADER = """inline int Twice(int x) {
  return 2 * x;
}
"""
PROGRAM = """#include "twice.h"
int Choose(int x) {
  if (x > 0) return Twice(x);
  return -1;
}
int main(int count, char**) { return Choose(count) - 2; }
"""
TEST = "int Unreached() { return 0; }\n"


class CoverageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.addCleanup(setattr, coverage, "ROOT", coverage.ROOT)
        coverage.ROOT = self.root

    def build_and_run(self):
        (self.root / "src/core").mkdir(parents=True)
        (self.root / "build").mkdir()
        for name, text in {"a.cc": PROGRAM, "twice.h": HEADER, "a_test.cc": TEST}.items():
            (self.root / "src/core" / name).write_text(text, encoding="ascii")
        for name in ("a", "a_test"):
            subprocess.run(["c++", "-O0", "--coverage", "-fprofile-abs-path", "-c", f"../src/core/{name}.cc"],
                           cwd=self.root / "build", check=True)
        subprocess.run(["c++", "--coverage", "a.o", "a_test.o", "-o", "a"], cwd=self.root / "build", check=True)
        subprocess.run(["./a"], cwd=self.root / "build", check=True)

    def report(self, total, least, missing=False):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            below = coverage.report(total, ["src/core"], least, missing)
        return below, out.getvalue()

    def test_counts_the_lines_of_sources_and_headers_but_not_of_tests(self):
        self.build_and_run()
        total = coverage.collect(self.root / "build")
        self.assertEqual(sorted(total), ["src/core/a.cc", "src/core/twice.h"])
        self.assertEqual([line for line, count in total["src/core/a.cc"].items() if count == 0], [4])
        self.assertTrue(all(total["src/core/twice.h"].values()))
        below, text = self.report(total, 90, missing=True)
        self.assertEqual(len(below), 1)
        self.assertIn("never reached: 4\n", text)

    def test_a_folder_below_the_bar_is_named_and_one_at_it_is_not(self):
        total = {"src/core/a.cc": {1: 1, 2: 1, 3: 1, 4: 0}}
        self.assertEqual(self.report(total, 75)[0], [])
        self.assertEqual(self.report(total, 75.1)[0], ["src/core: 75.0 %, at least 75.1 % is wanted"])

    def test_a_folder_without_any_line_is_below_every_bar(self):
        self.assertEqual(len(self.report({}, 1)[0]), 1)

    def failure(self):
        """For a whole run; it must not print a table."""
        out, errors = io.StringIO(), io.StringIO()
        arguments = unittest.mock.patch.object(sys, "argv", ["coverage.py", str(self.root / "build"), "src/core"])
        with arguments, contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            self.assertEqual(coverage.main(), 2)
        self.assertEqual(out.getvalue(), "")
        return errors.getvalue()

    def test_notes_that_gcov_cannot_read_are_an_error_that_names_them(self):
        self.build_and_run()
        (self.root / "build/a.gcno").write_text("not notes", encoding="ascii")
        self.assertRegex(self.failure(), "gcov failed for .*/a.gcno: status [1-9].*not a gcov notes file")

    def test_so_are_counts_that_it_cannot_read(self):
        self.build_and_run()
        (self.root / "build/a.gcda").write_text("not counts", encoding="ascii")
        self.assertRegex(self.failure(), "gcov failed for .*/a.gcno: .*not a gcov data file")

    def test_an_object_file_without_code_or_that_never_ran_is_none(self):
        self.build_and_run()
        (self.root / "build/a.gcda").unlink()
        (self.root / "src/core/empty.cc").write_text("\n", encoding="ascii")
        subprocess.run(["c++", "--coverage", "-c", "../src/core/empty.cc"], cwd=self.root / "build", check=True)
        self.assertFalse(any(coverage.collect(self.root / "build")["src/core/a.cc"].values()))

    def test_a_gcov_without_output_or_a_missing_gcov_is_an_error(self):
        self.build_and_run()
        tools = self.root / "tools"
        tools.mkdir()
        with unittest.mock.patch.dict("os.environ", PATH=str(tools)):
            self.assertIn("gcov cannot be started", self.failure())
            (tools / "gcov").write_text("#!/bin/sh\n", encoding="ascii")
            (tools / "gcov").chmod(0o755)
            self.assertRegex(self.failure(), "gcov failed for .*: status 0, and it printed nothing")

    def test_a_folder_that_is_no_build_with_coverage_is_an_error(self):
        (self.root / "build").mkdir()
        self.assertIn("no .gcno files in", self.failure())

    def test_unreached_lines_are_written_as_ranges(self):
        self.assertEqual(coverage.ranges([9, 3, 5, 4]), "3-5 9")


if __name__ == "__main__":
    unittest.main()
