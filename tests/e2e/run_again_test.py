#!/usr/bin/env python3
"""tools/run_again.py with a program that prints like GoogleTest: its output decides what is run again."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
TWO_FAIL = """
echo "[  FAILED  ] Store.Waits (7 ms)"
echo "[  FAILED  ] All/Store.Adds/0, where GetParam() = 4-byte object <2A-00 00-00> (7 ms)"
echo "[  FAILED  ] 2 tests, listed below:"
echo "[  FAILED  ] Store.Waits"
echo "[  FAILED  ] All/Store.Adds/0, where GetParam() = 4-byte object <2A-00 00-00>"
exit 1
"""
PASSES = 'echo "[  PASSED  ] 1 test."; exit 0'
FAILS = 'echo "[  FAILED  ] Store.Waits (7 ms)"; exit 1'


class RunAgain(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_it(self, first, again="exit 9"):
        """`first`: what the program does; `again`: what it does when it is called with some tests."""
        program = self.folder / "tests"
        program.write_text(f'#!/bin/bash\necho "$@" >> {self.folder}/asked\n'
                           f'case "${{@: -1}}" in\n  --gtest_filter=[!-]*) {again} ;;\nesac\n{first}\n', encoding="ascii")
        program.chmod(0o755)
        return subprocess.run([sys.executable, ROOT / "tools" / "run_again.py", self.folder / "log", program,
                               "--gtest_filter=-*/Torch", "--gtest_brief=1"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)

    def asked(self):
        return (self.folder / "asked").read_text(encoding="ascii").splitlines()

    def test_what_passes_is_not_run_again(self):
        done = self.run_it('echo "[  PASSED  ] 9 tests."')
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(len(self.asked()), 1)
        self.assertIn("9 tests", (self.folder / "log").read_text(encoding="ascii"))

    def test_failed_tests_run_once_more_alone_and_this_is_reported(self):
        done = self.run_it(TWO_FAIL, PASSES)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([line.split()[-1] for line in self.asked()[1:]],
                         ["--gtest_filter=Store.Waits", "--gtest_filter=All/Store.Adds/0"])
        self.assertIn("Store.Waits failed, and passed alone\n", done.stdout)
        self.assertIn("All/Store.Adds/0 failed, and passed alone\n", done.stdout)

    def test_what_fails_again_fails(self):
        done = self.run_it(TWO_FAIL, f'case "$*" in *Waits) {FAILS} ;; esac\n{PASSES}')
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("Store.Waits failed, and alone again\n", done.stdout)
        self.assertIn("All/Store.Adds/0 failed, and passed alone\n", done.stdout)
        self.assertEqual(len(self.asked()), 3)

    def test_a_test_that_is_not_found_again_has_not_passed(self):
        done = self.run_it(TWO_FAIL, 'echo "[  PASSED  ] 0 tests."; exit 0')
        self.assertEqual(done.returncode, 1, done.stdout)

    def test_a_program_that_dies_is_not_run_again_whatever_failed_before(self):
        done = self.run_it('echo "[  FAILED  ] Store.Waits (7 ms)"; echo "assertion: a == b"; kill -ABRT $$', PASSES)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("ended with status -6", done.stdout)
        self.assertIn("assertion: a == b", done.stdout)
        self.assertEqual(len(self.asked()), 1)

    def test_a_failure_that_is_no_tests_is_not_run_again(self):
        done = self.run_it('echo "[  FAILED  ] Store: SetUpTestSuite or TearDownTestSuite"; exit 1', PASSES)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(len(self.asked()), 1)


if __name__ == "__main__":
    unittest.main()
