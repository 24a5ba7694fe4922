#!/usr/bin/env python3
"""What `make run` shows, without its build: an elastic job that loses a node, and that the others finish."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["MUSTER_BIN"]).parent
PATIENCE = 120


def those_with(text):
    """Pids of processes with this text in their environments."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


class ElasticJob(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, *arguments):
        # A group of its own, so that no other process gets its signals. All its files are in the folder.
        job = subprocess.Popen([ROOT / "scripts" / "elastic_job", *arguments], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": self.folder},
                               start_new_session=True)
        self.addCleanup(self.end, job)
        return job

    @staticmethod
    def end(job):
        if job.poll() is None:
            job.terminate()  # It ends what it has started.
        job.wait(PATIENCE)
        job.stdout.close()

    def nothing_is_left(self):
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual([pid for pid in those_with(f"TMPDIR={self.folder}") if pid != os.getpid()], [])

    def test_a_killed_node_costs_no_step_and_leaves_no_process(self):
        job = self.start(BUILD)
        printed, _ = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 0, printed)
        for line in (r"elastic_job: 3 nodes of 2 workers, at least 2 needed; .*",
                     r"muster: round 0: 3 nodes, 6 workers, formed in \d+ ms, 0 restarts left",
                     r"elastic_job: kill -9 \d+: the launcher of node 2, with 2 workers",
                     r"elastic_job: its workers are gone, too",
                     r"muster: round 1: 2 nodes, 4 workers, formed in \d+ ms, 0 restarts left",
                     r"  \[node \d, rank 0\] the sum of 1 to 24000 is 288012000, as it has to be",
                     r"elastic_job: the job has ended with status 0 on the remaining nodes, .*; no process is left"):
            self.assertRegex(printed, re.compile(f"^{line}$", re.MULTILINE))
        steps = [int(number) for number in re.findall(r"step (\d+) of 24:", printed)]
        self.assertEqual(sorted(set(steps)), list(range(1, 25)), "each step is reported")
        self.nothing_is_left()

    def test_nothing_is_left_after_an_interruption_either(self):
        job = self.start(BUILD)
        printed = ""
        for line in job.stdout:
            printed += line
            if "step 2 of 24" in line:
                break
        job.send_signal(signal.SIGINT)
        printed += job.communicate(timeout=PATIENCE)[0]
        self.assertEqual(job.returncode, 130, printed)
        self.nothing_is_left()

    def test_missing_programs_are_reported(self):
        job = self.start(self.folder)
        printed, _ = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 2)
        self.assertIn("has no muster and elastic_worker", printed)


if __name__ == "__main__":
    unittest.main()
