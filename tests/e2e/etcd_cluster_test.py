#!/usr/bin/env python3
"""Members of etcd die, are cut off and restarted, all of them or the one that leads. Rendezvous under way complete, and
complete rounds notice nothing.

The members are on machines of their own: network namespaces of this one. Without permission for these the tests are
skipped."""

import os
import sys
import time
import unittest

from etcd_nodes import BUSY_S, Etcd, OnEtcd, skip_or_fail

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "lab"))

from torture import network  # noqa: E402

CUT = network.Condition(cut=True)
# etcd needs 1 to 2 s to have another leader, and a client up to 3 s to notice that a member is silent: the default
# lease is longer.
LEASE_S = 6


class Cluster(OnEtcd):
    """Three members. Two runs in each test: one that has a round, and one that lacks a node."""

    CONF = ""

    @classmethod
    def setUpClass(cls):
        skip_or_fail(network.missing(), "MUSTER_REQUIRE_NETWORKS")
        cls.network = network.Network(["m0", "m1", "m2", "nodes"], 0)
        cls.addClassCleanup(cls.network.remove)
        cls.network.build()
        cls.ADDRESS, cls.PLACE = cls.network.machines["nodes"].address, cls.network.machines["nodes"].inside()
        super().setUpClass()

    @classmethod
    def make_etcd(cls, folder):
        machines = [cls.network.machines[f"m{number}"] for number in range(3)]
        return Etcd(folder, [(machine.inside(), machine.address) for machine in machines], cls.PLACE)

    def setUp(self):
        super().setUp()
        self.running = [self.node(nodes="2:3", run=self.run_id + "-runs") for _ in range(2)]
        self.forming = [self.node(nodes="3", run=self.run_id + "-forms") for _ in range(2)]
        self.agree(*self.running)
        for node in self.forming:
            node.error("2 of 3 nodes are here")
        self.printed = [len(node.events) for node in self.running]
        self.struck = None

    def strike(self, fault):
        self.struck = time.monotonic()
        fault()

    def assert_survived(self, what):
        """Call it while the fault lasts."""
        late = self.node(nodes="3", run=self.run_id + "-forms")
        _, formed = self.agree(*self.forming, late)
        self.assertLess(formed - self.struck, LEASE_S + BUSY_S)
        # The claim that nothing happens is about time.
        time.sleep(max(0.0, self.struck + LEASE_S + 1 - time.monotonic()))
        self.assert_quiet(*self.running, since=self.printed)
        # The nodes then receive what they should.
        began = time.monotonic()
        late = self.node(nodes="2:3", run=self.run_id + "-runs")
        _, grown = self.agree(*self.running, late, after=0)
        self.report(f"{what}: the round that formed was complete {formed - self.struck:.2f} s later; the one that ran "
                    f"was not disturbed for {began - self.struck:.0f} s, and then let a node in within "
                    f"{grown - began:.2f} s")

    def heal(self, fault):
        """Heals the fault at the end of the test, and waits until the cluster is healthy."""
        self.addCleanup(self.etcd.await_health)
        self.addCleanup(fault)

    def test_a_member_is_killed(self):
        victim = next(member for member in self.etcd.members if member != self.etcd.leader())
        self.heal(lambda: self.etcd.start(victim))
        self.strike(lambda: self.etcd.kill(victim))
        self.assert_survived("member of etcd killed")

    def test_the_leader_is_killed(self):
        victim = self.etcd.leader()
        self.heal(lambda: self.etcd.start(victim))
        self.strike(lambda: self.etcd.kill(victim))
        self.assert_survived("leader of etcd killed")

    def test_a_member_is_cut_off(self):
        self.cut_off(next(member for member in self.etcd.members if member != self.etcd.leader()))
        self.assert_survived("member of etcd cut off")

    def test_the_leader_is_cut_off(self):
        self.cut_off(self.etcd.leader())
        self.assert_survived("leader of etcd cut off")

    def cut_off(self, member):
        machine = self.network.machines[f"m{member}"]
        ends = []
        self.heal(lambda: ends[0]())
        self.strike(lambda: ends.append(machine.trouble(CUT, CUT)))

    def test_all_are_started_again(self):
        def again():
            self.etcd.kill(*self.etcd.members)
            for member in self.etcd.members:
                self.etcd.start(member)
        self.strike(again)
        self.assert_survived("all of etcd killed and started again")


if __name__ == "__main__":
    unittest.main()
