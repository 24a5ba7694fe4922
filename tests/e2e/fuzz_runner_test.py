#!/usr/bin/env python3
"""fuzz/run.py with fuzzers that are small scripts: it reports what they do, and nothing outlives it."""

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
        return [sys.executable, ROOT / "lab" / "fuzz" / "run.py", "--build", self.build, "--fresh", "--runs", "500", *arguments]

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
        for flag in ("-seed=42", "-runs=500", "lab/fuzz/corpus/requests", "-dict="):
            self.assertIn(flag, asked)

    def test_a_finding_fails_the_run_and_comes_with_the_command_that_replays_it(self):
        self.fuzzer("requests", DONE)
        self.fuzzer("state", 'echo "x.cc:7: does not hold: a == b"\n'
                             'echo "Test unit written to /some/state-crash-1"\nexit 77')
        done = self.run_it("requests", "state")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("does not hold: a == b", done.stdout)
        self.assertRegex(done.stdout, f"replay it with: .*{self.build}/state_fuzzer /some/state-crash-1\n")
        self.assertIn("fuzz: FAILED: state (FINDING)\n", done.stdout)

    def test_a_fuzzer_that_ends_before_its_share_is_done_fails_the_run(self):
        self.fuzzer("requests", 'echo "stat::number_of_executed_units: 499"')
        done = self.run_it("requests")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("ended early", done.stdout)
        self.assertEqual(self.run_it("--seconds", "1", "requests").returncode, 0)

    def test_fuzzers_that_are_not_there_are_named_before_anything_runs(self):
        self.fuzzer("requests", DONE)
        (self.build / "state_fuzzer").write_text("no program", encoding="ascii")
        done = self.run_it("requests", "sessions", "state")
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(done.stdout, f"fuzz: did not run: there is no {self.build}/sessions_fuzzer; "
                                      f"{self.build}/state_fuzzer is no program "
                                      "(scripts/fuzz builds them; --build takes another folder)\n")
        self.assertFalse((self.build / "requests.arguments").exists())

    def test_a_fuzzer_that_ends_before_its_first_execution_has_found_nothing(self):
        self.fuzzer("requests", 'echo "error while loading shared libraries: libfuzz.so"; exit 127')
        done = self.run_it("requests")
        self.assertEqual(done.returncode, 1, done)
        self.assertNotIn("FINDING", done.stdout)
        self.assertIn("error while loading shared libraries: libfuzz.so", done.stdout)
        self.assertTrue(done.stdout.endswith("fuzz: FAILED: requests (did not run)\n"), done.stdout)

    def test_an_unknown_name_is_refused(self):
        done = self.run_it("nothing")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("no fuzzer 'nothing'", done.stderr)

    def test_a_fuzzer_is_run_by_one_at_a_time(self):
        self.fuzzer("requests", f"mkfifo {self.build}/go; read word < {self.build}/go; {DONE}")
        with subprocess.Popen(self.command("requests"), stdout=subprocess.PIPE, text=True) as first:
            self.addCleanup(first.kill)
            while not (self.build / "go").exists():
                time.sleep(0.01)
            second = self.run_it("requests")
            (self.build / "go").write_text("go\n", encoding="ascii")
            reported, _ = first.communicate(timeout=60)
        self.assertEqual(second.returncode, 2, second)
        self.assertIn(f"did not run: another run writes {self.build}/requests.log", second.stdout)
        self.assertEqual(first.returncode, 0, reported)

    def ends_its_fuzzer(self, number, before=None, script=""):
        """Sends a signal to a runner, and returns its status once both have ended."""
        self.fuzzer("requests", f"{script}\necho $$ > {self.build}/id; exec sleep 600")
        running = subprocess.Popen(self.command("requests"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   preexec_fn=before)
        written = self.build / "id"
        try:
            self.wait_until(lambda: written.exists() and written.read_text(encoding="ascii"), "it was not started")
            running.send_signal(number)
            running.communicate(timeout=30)
        finally:
            running.kill()
            running.wait()
        self.wait_until(lambda: self.is_gone(written.read_text(encoding="ascii").strip()), "its fuzzer is gone")
        return running.returncode

    @staticmethod
    def is_gone(process):
        """Or dead and not reaped yet."""
        try:
            return pathlib.Path("/proc", process, "stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    def wait_until(self, holds, otherwise):
        until = time.monotonic() + 30
        while not holds():
            self.assertLess(time.monotonic(), until, otherwise)
            time.sleep(0.01)

    def test_when_it_is_ended_its_fuzzers_are_too(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                self.setUp()
                self.assertEqual(self.ends_its_fuzzer(number), 130)

    def test_ctrl_c_ends_it_in_the_background_of_a_script_too(self):
        def ignore():  # as a shell does for a process that it starts with &
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.assertEqual(self.ends_its_fuzzer(signal.SIGINT, before=ignore), 130)

    def test_a_fuzzer_that_ignores_sigterm_is_killed(self):
        self.assertEqual(self.ends_its_fuzzer(signal.SIGTERM, script="trap '' TERM"), 130)

    def test_a_fuzzer_does_not_outlive_a_runner_that_is_killed(self):
        self.assertEqual(self.ends_its_fuzzer(signal.SIGKILL), -signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
