#!/usr/bin/env python3
"""A real etcd is restored from an older backup while nodes run, wait and lead: all of them notice."""

import time
import unittest

from etcd_nodes import BUSY_S, LAST_CALL_S, OnEtcd

# A client whose etcd is back reconnects within a second or two.
RECONNECTED_S = 3


class Restored(OnEtcd):
    CONF = ""  # leases of 6 s: these tests are not about expired leases

    def assert_place_lost_and_met_again(self, nodes, number, restored):
        """Every node reports that its place in that round is lost, because etcd has gone back, and all meet again."""
        received = [node.event(lambda event: event.kind not in ("joining", "round", "nodes_waiting"), "word of the restore")
                 for node in nodes]
        for event in received:
            self.assertEqual((event.kind, event.data["round"]), ("place_lost", number), received)
        _, formed = self.agree(*nodes, after=number)
        noticed_s, formed_s = max(event.time for event in received) - restored, formed - restored
        self.assertLess(noticed_s, RECONNECTED_S + BUSY_S)
        self.assertLess(formed_s, RECONNECTED_S + LAST_CALL_S + BUSY_S)
        self.report(f"etcd restored from an older backup: all were notified after {noticed_s:.2f} s, and were in a round after "
                    f"{formed_s:.2f} s")
        return received

    def second_round(self):
        """Three nodes in their second round, and an earlier backup in which they are registered."""
        nodes = [self.node(nodes="2:3") for _ in range(2)]
        self.agree(*nodes)
        backup = self.etcd.back_up()
        nodes.append(self.node(nodes="2:3"))
        number, _ = self.agree(*nodes)
        return nodes, number, backup

    def test_members_that_the_backup_knows(self):
        nodes, number, backup = self.second_round()
        self.etcd.restore(backup)
        received = self.assert_place_lost_and_met_again(nodes, number, time.monotonic())
        for event in received[:2]:  # the third one's lease is not in the backup
            self.assertIn("older data", event.data["why"])
        self.leader_among(nodes)

    def test_a_restored_cluster_with_another_id(self):
        nodes, number, backup = self.second_round()
        self.etcd.restore(backup, "--initial-cluster-token", "another")
        self.assert_place_lost_and_met_again(nodes, number, time.monotonic())

    def test_a_backup_from_before_the_run(self):
        backup = self.etcd.back_up()
        nodes = [self.node(nodes="3") for _ in range(3)]
        number, _ = self.agree(*nodes)
        self.etcd.restore(backup)
        self.assert_place_lost_and_met_again(nodes, number, time.monotonic())

    def test_a_node_that_waits(self):
        first = self.node(nodes="3")
        first.error("1 of 3 nodes are here")
        backup = self.etcd.back_up()
        second = self.node(nodes="3")
        second.error("2 of 3 nodes are here")
        self.etcd.restore(backup)
        third = self.node(nodes="3")
        self.agree(first, second, third)


if __name__ == "__main__":
    unittest.main()
