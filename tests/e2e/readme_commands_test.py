#!/usr/bin/env python3
"""Runs every block of commands that the documents show, as written except for ports and folders, runs their Python and
compiles their C++. A block that must not be run has a comment with the reason above it, as tools/documents.py checks."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from needs import skip_or_fail
from ports import free_port
from processes import Processes
from run_kill_matrix_test import table

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
PROGRAMS = [pathlib.Path(os.environ[name]) for name in ("MUSTER_BIN", "MUSTER_LAB_BIN")]

PAGES = [page for folder in (".", "docs", "lab", "tests") for page in
         sorted((ROOT / folder).glob("*.md" if folder == "." else "**/*.md"))]
# These need the Python package: python/tests/test_documents.py runs them.
ELSEWHERE = {ROOT / "docs" / "guide" / "python.md"}


def blocks(page, language):
    """The page's blocks of a language that are to be run."""
    if page in ELSEWHERE:
        return []
    pattern = re.compile(rf"(<!-- not run: [^\n]*-->\n)?^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [block for not_run, block in pattern.findall(page.read_text()) if not not_run]


class ReadmeCommands(Processes, unittest.TestCase):
    def run_block(self, block, command=("bash", "-e", "-c")):
        with tempfile.TemporaryDirectory() as folder:
            for preset in set(re.findall(r"build/(\w+)/muster", block)) | {"release"}:
                bin_folder = pathlib.Path(folder, "build", preset)
                bin_folder.mkdir(parents=True)
                for program in PROGRAMS:
                    os.symlink(program, bin_folder / program.name)
            # For logs without a chosen place, and commands that are shown as on a machine with muster installed.
            environment = {**os.environ, "TMPDIR": folder, "PATH": f"{folder}/build/release:{os.environ['PATH']}"}
            return subprocess.run([*command, block.replace("29500", str(free_port()))], cwd=folder, env=environment,
                                  timeout=120, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def assert_all_run(self, language, run):
        ran = 0
        for page in PAGES:
            for block in blocks(page, language):
                with self.subTest(page=str(page.relative_to(ROOT)), block=block):
                    done = run(block)
                    self.assertEqual(done.returncode, 0, done.stdout)
                    ran += 1
        self.assertGreater(ran, 0, f"the documents show no {language} that can be run")

    def test_every_shell_block_runs(self):
        def run(block):
            if "HOST:29400" in block:
                block = block.replace("HOST:29400", self.start_server()[1])
            return self.run_block("set -m\n" + block)
        self.assert_all_run("sh", run)

    def test_every_python_block_runs(self):
        python = os.environ.get("MUSTER_TORCH_PYTHON")
        skip_or_fail(None if python else "MUSTER_TORCH_PYTHON is not set", "MUSTER_REQUIRE_TORCH")
        _, address = self.start_server()
        self.assert_all_run("python", lambda block: self.run_block(block.replace("29500", address.partition(":")[2]),
                                                                   (python, "-c")))

    def test_every_cpp_block_compiles(self):
        includes, bodies = set(), []
        for page in PAGES:
            for block in blocks(page, "cpp"):
                lines = block.splitlines()
                includes |= {line for line in lines if line.startswith("#include")}
                bodies.append("\n".join([f"void Shown{len(bodies)}([[maybe_unused]] int world_size) {{",
                                         *(line for line in lines if not line.startswith("#include")), "}"]))
        self.assertGreater(len(bodies), 0, "the documents show no C++")
        done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", ROOT / "include", "-"],
                              input="\n".join([*sorted(includes), *bodies]), text=True, capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_getting_started_prints_what_it_promises(self):
        block = next(b for b in blocks(ROOT / "docs" / "getting-started.md", "sh") if "greeting" in b)
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
        named = set(re.findall(r"`make ([\w-]+)`|^make ([\w-]+)", "\n".join(p.read_text() for p in PAGES), re.MULTILINE))
        for target in {first or second for first, second in named}:
            self.assertRegex(makefile, rf"(?m)^{target}:", f"make {target} is documented but not there")


if __name__ == "__main__":
    assert shutil.which("bash"), "bash is needed"
    unittest.main()
