#!/usr/bin/env python3
"""What `muster run` does with processes that successful workers leave, and how workers of --run-path end together."""

import signal
import unittest

from launching import Launching

# Leaves a process that has its own session, writes "termed" for a SIGTERM, and ends after it or when it may.
LEAVES = """
cat > "$SEEN/left.sh" <<'END'
trap 'echo > "$SEEN/termed"; [ -n "$DEAF" ] || exit 0' TERM
echo > "$SEEN/left"
while [ ! -e "$SEEN/go" ]; do sleep 0.05; done
echo > "$SEEN/finished"
echo finished
END
setsid sh "$SEEN/left.sh" </dev/null 2>/dev/null &
while [ ! -e "$SEEN/left" ]; do sleep 0.02; done
"""


class Leftovers(Launching, unittest.TestCase):

    def has(self, name):
        return (self.seen / name).exists()

    def started(self, *options, text, env=None):
        """A job whose worker leaves a process; everything of its stderr up to the line with `text` has been read."""
        job = self.launch(*options, "--no-python", self.script(LEAVES), env=env, text=False)
        line = b""
        while text not in line:
            line = job.stderr.readline()
            self.assertTrue(line, f"no line with {text}")
        return job, line.decode()

    def test_they_are_named_and_may_end_in_order(self):
        outcome = self.run_job("--no-python", self.script(LEAVES))
        self.assertRegex(outcome.err, r"left processes: sh \S+/left\.sh \(pid \d+\)")
        self.assertTrue(self.has("termed"))
        self.assertFalse(self.has("finished"))

    def test_they_are_killed_after_the_time_for_it_and_that_is_reported(self):
        outcome = self.run_job("--shutdown-timeout=1", "--no-python", self.script(LEAVES), env={"DEAF": "1"})
        self.assertRegex(outcome.err, r"kills what the workers left: sh \S+/left\.sh")
        self.assertTrue(self.has("termed"))

    def test_they_are_waited_for_if_that_is_wanted(self):
        job, _ = self.started("--wait-for-children", "--tee=1", text=b"waits for them")
        (self.seen / "go").touch()
        outcome = self.ended(job)
        self.assertEqual((outcome.status, outcome.out), (0, "[default0]:finished\n"), "its output is shown, too")
        self.assertTrue(self.has("finished"))
        self.assertFalse(self.has("termed"))

    def test_a_signal_ends_the_wait_and_a_second_one_kills(self):
        job, _ = self.started("--wait-for-children", text=b"waits for them", env={"DEAF": "1"})
        job.send_signal(signal.SIGTERM)
        self.wait_for_seen("termed")
        job.send_signal(signal.SIGTERM)
        self.assertIn("kills what the workers left", self.ended(job).err)

    def test_nothing_is_said_where_nothing_is_left(self):
        self.assertEqual(self.run_job("--no-python", self.script("sleep 0.1 & exit 0")).err, "")


class RunPath(Launching, unittest.TestCase):

    def test_a_worker_is_torn_down_after_the_scripts_of_all_have_ended(self):
        script = self.python_script(
            "import atexit, os, pathlib, sys, time\n"
            "seen, rank = pathlib.Path(os.environ['SEEN']), os.environ['RANK']\n"
            "def note(what): (seen / (what + rank)).write_text(str(time.monotonic_ns()))\n"
            "atexit.register(note, 'torn')\n"
            "if rank == '0' and os.fork() == 0: time.sleep(600)\n"  # holds nothing up
            "if rank == '1':\n"
            "    while not (seen / 'done0').exists(): time.sleep(0.01)\n"
            "    time.sleep(0.5)\n"
            "note('done')\n"
            "if rank == '2': sys.exit(0)\n")
        self.run_job("--nproc-per-node=3", "--run-path", script)
        times = {path.name: int(path.read_text()) for path in self.seen.iterdir()}
        self.assertEqual(len(times), 6)
        for rank in range(3):
            self.assertGreater(times[f"torn{rank}"], times["done1"])

    def test_forked_processes_end_as_in_any_script_and_keep_their_own_descriptors(self):
        script = self.python_script(
            "import os\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    ends = os.pipe()\n"  # they have the numbers of those that the fork closed
            "    grandchild = os.fork()\n"
            "    if grandchild == 0: os.write(ends[1], b'x'); os._exit(0)\n"
            "    assert os.read(ends[0], 1) == b'x'\n"
            "    assert os.waitpid(grandchild, 0)[1] == 0\n"
            "else: assert os.waitpid(child, 0)[1] == 0\n")
        self.run_job("--nproc-per-node=2", "--run-path", script)

    def test_a_failed_worker_is_not_waited_for(self):
        script = self.python_script("import os, sys\nif os.environ['RANK'] == '1': sys.exit(3)\n")
        outcome = self.run_job("--nproc-per-node=2", "--run-path", script, status=1)
        self.assertIn("rank 1 (local rank 1", outcome.err)
        self.assertEqual(self.run_job("--run-path", self.python_script("")).err, "", "one has nobody to wait for")


if __name__ == "__main__":
    unittest.main()
