#!/usr/bin/env python3
"""`muster run --rdzv-backend=etcd`: jobs whose nodes meet in a real etcd, and lose one of them."""

import os
import shutil
import signal
import tempfile
import time
import unittest
import uuid

import etcd_nodes
from etcd_nodes import BUSY_S, LAST_CALL_S, LEASE_S, NOTICED_S, Etcd, skip_or_fail
from fleet_of_agents import Fleet, until


class JobsInEtcd(Fleet):
    BACKEND = "etcd"
    CONF = {"last_call_timeout": str(LAST_CALL_S), "join_timeout": "60", "keep_alive_max_attempt": str(LEASE_S)}

    @classmethod
    def setUpClass(cls):
        skip_or_fail(etcd_nodes.missing(), "MUSTER_REQUIRE_ETCD")
        folder = tempfile.mkdtemp(prefix="muster-etcd-")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.etcd = Etcd(folder)
        cls.addClassCleanup(cls.etcd.end)
        cls.etcd.await_health()

    def setUp(self):
        super().setUp()
        self.prefix = f"/{uuid.uuid4().hex}"  # all jobs have one name
        self.endpoint = self.etcd.endpoint + self.prefix

    def script(self, text):
        path = os.path.join(self.folder, "worker.sh")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o700)
        return path

    def leader_first(self, agents):
        value = until(lambda: self.etcd.get(f"{self.prefix}/job/leader"), "a launcher leads the rendezvous")
        return sorted(agents, key=lambda agent: f'"127.0.0.1_{agent.pid}_' not in value)

    def test_two_nodes_with_two_workers_each(self):
        done = os.path.join(self.folder, "done")
        os.makedirs(done)
        worker = self.script(f'echo "$GROUP_RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT" > {done}/$RANK')
        agents = [self.agent("--nproc-per-node", "2", nodes="2", worker=(worker,)) for _ in range(2)]
        self.assert_ends(0, *agents)
        printed = {}
        for rank in range(4):
            with open(os.path.join(done, str(rank)), encoding="utf-8") as file:
                printed[rank] = file.read().split()
        self.assertEqual([printed[rank][:3] for rank in range(4)],
                         [["0", "0", "4"], ["0", "1", "4"], ["1", "0", "4"], ["1", "1", "4"]])
        self.assertEqual(len({place for *_, place in printed.values()}), 1, printed)
        self.assert_nothing_left()

    def lose(self, which, signal_number=signal.SIGKILL):
        """A job of two nodes. The one that leads the rendezvous (0) or the other one (1) receives the signal."""
        agents = [self.agent("--verbose", nodes="1:2") for _ in range(2)]
        workers = self.one_world(*agents)
        victim = self.leader_first(agents)[which]
        survivor = next(agent for agent in agents if agent is not victim)
        before = survivor.round()[0]
        victim.process.send_signal(signal_number)
        died = time.monotonic()
        worker, = self.one_world(survivor, after=before)
        took_s = time.monotonic() - died
        self.assertNotIn(worker.pid, [one.pid for one in workers])
        self.assertEqual((worker["WORLD_SIZE"], worker.restarts), ("1", 0), survivor.printed())
        worker.order("exit 0")
        self.assert_ends(0, survivor)
        self.assert_nothing_left()
        self.assertLess(took_s, NOTICED_S + LAST_CALL_S + BUSY_S)
        return f"the other one worked on after {took_s:.2f} s"

    def test_a_launcher_is_killed(self):
        print(f"\n    launcher killed: {self.lose(1)}")

    def test_the_launcher_that_leads_the_rendezvous_is_killed(self):
        print(f"\n    launcher that leads the rendezvous killed: {self.lose(0)}")

    def test_a_launcher_is_signalled(self):
        print(f"\n    launcher signalled: {self.lose(1, signal.SIGTERM)}")

    def test_etcd_is_started_again_while_a_job_runs(self):
        agents = [self.agent(nodes="2") for _ in range(2)]
        workers = self.one_world(*agents)
        self.etcd.kill(0)
        self.etcd.start(0)
        self.etcd.await_health()
        for worker in workers:
            worker.order("exit 0")
        self.assert_ends(0, *agents)
        for agent, worker in zip(agents, workers):
            self.assertEqual([one.pid for one in agent.all_workers()], [worker.pid], agent.printed())


if __name__ == "__main__":
    unittest.main()
