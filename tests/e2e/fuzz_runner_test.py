#!/usr/bin/env python3
"""fuzz/run.py with fuzzers that are small scripts: what they do is what it reports, and nothing outlives it."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
DONE = 'echo "#500\tDONE   cov: 77 ft: 1"; echo "stat::number_of_executed_units: 500"'


class FuzzRunner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)

    def fuzzer(self, name, script):
        program = self.build / f"{name}_fuzzer"
        program.write_text(f'#!/bin/sh\necho "$@" > {self.build}/{name}.arguments\n{script}\n', encoding="ascii")
        program.chmod(0o755)

    def command(self, *arguments):
        return [sys.executable, ROOT / "fuzz" / "run.py", "--build", self.build, "--fresh", "--runs", "500", *arguments]

    def run_it(self, *arguments):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=60, check=False)

    def test_fuzzers_that_do_their_share_are_reported_with_figures(self):
        self.fuzzer("requests", DONE)
        self.fuzzer("state", DONE)
        done = self.run_it("--seed", "42", "requests", "state")
        self.assertEqual(done.returncode, 0, done)
        lines = done.stdout.splitlines()
        self.assertIn("seed 42, 2 fuzzers", lines[0])
        self.assertEqual(lines[-1], "fuzz: nothing found")
        row = next(line.split() for line in lines if line.startswith("state "))
        self.assertEqual([row[0], row[1], row[4], row[5]], ["state", "500", "77", "none"])
        asked = (self.build / "requests.arguments").read_text(encoding="ascii")
        for flag in ("-seed=42", "-runs=500", "fuzz/corpus/requests", "-dict="):
            self.assertIn(flag, asked)

    def test_a_finding_fails_the_run_and_comes_with_the_command_that_replays_it(self):
        self.fuzzer("requests", DONE)
        self.fuzzer("state", 'echo "x.cc:7: does not hold: a == b"\n'
                             'echo "Test unit written to /some/state-crash-1"\nexit 77')
        done = self.run_it("requests", "state")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("does not hold: a == b", done.stdout)
        self.assertRegex(done.stdout, f"replay it with: .*{self.build}/state_fuzzer /some/state-crash-1\n")
        self.assertIn("fuzz: FAILED: state", done.stdout)

    def test_a_fuzzer_that_ends_before_its_share_is_done_fails_the_run(self):
        self.fuzzer("requests", 'echo "stat::number_of_executed_units: 499"')
        done = self.run_it("requests")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("ended early", done.stdout)
        self.assertEqual(self.run_it("--seconds", "1", "requests").returncode, 0)

    def test_an_unknown_name_is_refused(self):
        done = self.run_it("nothing")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("no fuzzer 'nothing'", done.stderr)

    def test_when_it_is_ended_its_fuzzers_are_too(self):
        self.fuzzer("requests", f"echo $$ > {self.build}/id; exec sleep 600")
        running = subprocess.Popen(self.command("requests"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            until = time.monotonic() + 30
            written = self.build / "id"
            while not (written.exists() and written.read_text(encoding="ascii")):
                self.assertLess(time.monotonic(), until, "the fuzzer was not started")
                time.sleep(0.01)
            running.send_signal(signal.SIGTERM)
            running.communicate(timeout=30)
        finally:
            running.kill()
            running.wait()
        self.assertEqual(running.returncode, 130)
        self.assertFalse(pathlib.Path("/proc", written.read_text(encoding="ascii").strip()).exists())


if __name__ == "__main__":
    unittest.main()
