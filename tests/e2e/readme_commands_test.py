#!/usr/bin/env python3
"""Every shell command that the README and docs/ show is run here, as written but for its port and build folder."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from ports import free_port

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
PROGRAMS = [pathlib.Path(os.environ[name]) for name in ("MUSTER_BIN", "MUSTER_LAB_BIN")]

# Whole builds are run by `make test` itself, or are too long for it; a block made of these alone is not run again.
BUILDS = re.compile(r"make (run|test|compare|format|clean)\b|pip install \./python$")
# What it shows needs the Python package: python/tests/test_documents.py runs it.
ELSEWHERE = {"python.md"}


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
            environment = {**os.environ, "TMPDIR": folder}  # Logs that nobody chose a place for go with it.
            return subprocess.run(["bash", "-e", "-c", script], cwd=folder, timeout=120, text=True, env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_every_shell_block_runs(self):
        ran = 0
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            for block in [] if page.name in ELSEWHERE else shell_blocks(page):
                if all(BUILDS.match(line) for line in block.strip().splitlines()):
                    continue
                with self.subTest(page=page.name, block=block):
                    done = self.run_block(block)
                    self.assertEqual(done.returncode, 0, done.stdout)
                    ran += 1
        self.assertGreater(ran, 0, "the README shows no command that can be run")

    def test_the_readme_prints_what_it_promises(self):
        block = next(b for b in shell_blocks(ROOT / "README.md") if "greeting" in b)
        done = self.run_block(block)
        self.assertIn("hello", done.stdout)
        self.assertIn("key 'never' did not come within 500 ms", done.stdout)
        self.assertIn("status 3", done.stdout)

    def test_make_targets_named_in_the_documents_exist(self):
        makefile = (ROOT / "Makefile").read_text()
        pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
        named = set(re.findall(r"`make (\w+)`|^make (\w+)", "\n".join(p.read_text() for p in pages), re.MULTILINE))
        for target in {first or second for first, second in named}:
            self.assertRegex(makefile, rf"(?m)^{target}:", f"make {target} is documented but not there")


if __name__ == "__main__":
    assert shutil.which("bash"), "bash is needed"
    unittest.main()
