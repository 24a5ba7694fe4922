#!/usr/bin/env python3
"""Three launchers with default options lose one of them, and get another one."""

import signal
import time
import unittest

from fleet_of_agents import Fleet

# From the kill to the survivors' new workers: 0.3 s until the loss is noticed, 0.5 s in which the node may come back, and
# what this machine needs to end and start processes. Not a measurement: lab/bench/recovery.py is that.
BACK_WITHIN = 2


class Reforming(Fleet):
    CONF = {"join_timeout": "60"}  # All that concerns this test is as a user gets it.

    def start(self):
        return self.agent("--max-restarts", "0", nodes="2:3", host=False)

    def test_a_lost_node_costs_no_last_call_and_its_replacement_is_held_back(self):
        self.serve()
        agents = [self.start() for _ in range(3)]
        self.one_world(*agents)
        killed_at = time.monotonic()
        agents[2].send(signal.SIGKILL)
        workers = self.one_world(*agents[:2], after=0)
        self.assertLess(max(worker.at for worker in workers) - killed_at, BACK_WITHIN, agents[0].said())
        self.assertEqual([worker.restarts for worker in workers], [0, 0], "nobody's worker failed")
        # It is back soon after: the others are left alone for a while.
        replacement = self.start()
        replacement.await_word(r"held back for up to \d+ s more: the round re-formed \d+ s ago")
        held = self.one_world(*agents[:2], replacement, after=1)
        waited = min(worker.at for worker in held) - max(worker.at for worker in workers)
        self.assertGreater(waited, 9, "the rejoin window is 10 s")


if __name__ == "__main__":
    unittest.main()
