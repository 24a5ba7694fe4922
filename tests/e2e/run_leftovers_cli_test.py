#!/usr/bin/env python3
"""What `muster run` does with processes that successful workers leave."""

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


if __name__ == "__main__":
    unittest.main()
