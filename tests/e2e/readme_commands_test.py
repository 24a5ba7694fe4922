#!/usr/bin/env python3
"""Runs every shell command in the README, CONTRIBUTING and docs/, as written except for its port and build folder. A
block in which every line builds, or runs tests, is not run again."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from ports import free_port
from run_kill_matrix_test import table

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
PROGRAMS = [pathlib.Path(os.environ[name]) for name in ("MUSTER_BIN", "MUSTER_LAB_BIN")]

# Commands that run whole builds and tests, or take too long. Comments may follow.
BUILDS = re.compile(r"(export \w+=|(\w+=\w+ )?(make (run|test|compare|format|clean|fuzz)|cmake|ctest|scripts/\w+"
                    r"|build/\w+/\w+_(tests|fuzzer|histories)|pip install \./python)\b)")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# These commands need the Python package: python/tests/test_documents.py runs them.
ELSEWHERE = {ROOT / "docs" / "guide" / "python.md"}


def shell_blocks(page):
    return re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


class ReadmeCommands(unittest.TestCase):
    def run_block(self, block):
        with tempfile.TemporaryDirectory() as folder:
            for preset in set(re.findall(r"build/(\w+)/muster", block)) | {"release"}:
                bin_folder = pathlib.Path(folder, "build", preset)
                bin_folder.mkdir(parents=True)
                for program in PROGRAMS:
                    os.symlink(program, bin_folder / program.name)
            script = "set -m\n" + block.replace("29500", str(free_port()))
            environment = {**os.environ, "TMPDIR": folder}  # for logs without a chosen place
            return subprocess.run(["bash", "-e", "-c", script], cwd=folder, timeout=120, text=True, env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_every_shell_block_runs(self):
        ran = 0
        for page in PAGES:
            for block in [] if page in ELSEWHERE else shell_blocks(page):
                if all(BUILDS.match(line) for line in block.strip().splitlines()):
                    continue
                with self.subTest(page=str(page.relative_to(ROOT)), block=block):
                    done = self.run_block(block)
                    self.assertEqual(done.returncode, 0, done.stdout)
                    ran += 1
        self.assertGreater(ran, 0, "the documents show no command that can be run")

    def test_getting_started_prints_what_it_promises(self):
        block = next(b for b in shell_blocks(ROOT / "docs" / "getting-started.md") if "greeting" in b)
        done = self.run_block(block)
        self.assertIn("hello", done.stdout)
        self.assertIn("key 'never' did not come within 500 ms", done.stdout)
        self.assertIn("status 3", done.stdout)

    def test_the_reference_has_the_options_of_each_command(self):
        reference = (ROOT / "docs" / "reference" / "command-line.md").read_text()
        sections = re.findall(r"^## muster ([a-z]+)\n(.*?)(?=^## )", reference, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(sections), 5)
        for command, section in sections:
            with self.subTest(command=command):
                rows = re.findall(r"^\| (`-.*?) \|", section, re.MULTILINE)
                shown = set(re.findall(r"--[a-z][a-z-]+", " ".join(rows)))
                help_text = subprocess.check_output([PROGRAMS[0], command, "--help"], text=True)
                lines = re.findall(r"^ +((?:-\w, ?)?--[a-z].*)", help_text, re.MULTILINE)
                self.assertEqual(shown, {re.search(r"--[a-z][a-z-]+", line)[0] for line in lines} - {"--help"})

    def test_the_guide_has_the_kill_matrix(self):
        self.assertIn(table(), (ROOT / "docs" / "guide" / "elastic-jobs.md").read_text())

    def test_make_targets_named_in_the_documents_exist(self):
        makefile = (ROOT / "Makefile").read_text()
        named = set(re.findall(r"`make (\w+)`|^make (\w+)", "\n".join(p.read_text() for p in PAGES), re.MULTILINE))
        for target in {first or second for first, second in named}:
            self.assertRegex(makefile, rf"(?m)^{target}:", f"make {target} is documented but not there")


if __name__ == "__main__":
    assert shutil.which("bash"), "bash is needed"
    unittest.main()
