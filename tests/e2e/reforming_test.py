#!/usr/bin/env python3
"""Of four launchers with default options two are killed, and two others come."""

import signal
import time
import unittest

from fleet_of_agents import Fleet

# From the kill to the survivors' new workers: 0.3 s until the loss is noticed, 0.5 s in which the nodes may come back, and
# what this machine needs to end and start processes. Not a measurement: lab/bench/recovery.py is that.
BACK_WITHIN = 2


class Reforming(Fleet):
    CONF = {"join_timeout": "60"}  # Everything else has its default.

    def start(self):
        return self.agent("--max-restarts", "0", nodes="2:4", host=False)

    def test_lost_nodes_cost_no_last_call_and_come_back_together(self):
        self.serve()
        agents = [self.start() for _ in range(4)]
        self.one_world(*agents)
        killed_at = time.monotonic()
        for agent in agents[2:]:
            agent.send(signal.SIGKILL)
        workers = self.one_world(*agents[:2], after=0)
        self.assertLess(max(worker.at for worker in workers) - killed_at, BACK_WITHIN, agents[0].printed())
        self.assertEqual([worker.restarts for worker in workers], [0, 0], "no worker failed")
        # One of the two is back soon after: the others keep running for a while, or until the second one is there, too.
        others = [self.start()]
        others[0].await_output(r"held back for up to \d+ s more: the round re-formed \d+ s ago")
        self.assertTrue(all(worker.lives for worker in workers))
        others.append(self.start())
        self.one_world(*agents[:2], *others, after=1)


if __name__ == "__main__":
    unittest.main()
