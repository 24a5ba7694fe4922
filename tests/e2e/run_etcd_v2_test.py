#!/usr/bin/env python3
"""Jobs of `muster run` in a real etcd under its other name, "etcd-v2". Etcd is lost and comes back."""

import os
import shutil
import signal
import subprocess
import unittest

from fleet_of_agents import Fleet, until
from needs import skip_or_fail
from ports import free_port


class EtcdJob(Fleet):
    BACKEND = "etcd-v2"
    # A lease that is longer than a restart of etcd.
    CONF = {"last_call_timeout": "1", "join_timeout": "60", "read_timeout": "20", "keep_alive_max_attempt": "8"}

    def setUp(self):
        has_etcd = shutil.which("etcd") and shutil.which("etcdctl")
        skip_or_fail("" if has_etcd else "there are no programs 'etcd' and 'etcdctl' on the PATH", "MUSTER_REQUIRE_ETCD")
        super().setUp()
        self.peers = f"http://127.0.0.1:{free_port()}"
        self.etcd = None
        self.addCleanup(self.end_etcd)
        self.start_etcd()

    def start_etcd(self):
        here = f"http://{self.endpoint}"
        with open(os.path.join(self.folder, "etcd.log"), "ab") as log:
            self.etcd = subprocess.Popen(
                ["etcd", "--name=test", f"--data-dir={self.folder}/etcd", f"--listen-client-urls={here}",
                 f"--advertise-client-urls={here}", f"--listen-peer-urls={self.peers}",
                 f"--initial-advertise-peer-urls={self.peers}", f"--initial-cluster=test={self.peers}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self.etcdctl("endpoint", "health").returncode == 0, "etcd is there")

    def end_etcd(self):
        self.etcd.kill()
        self.etcd.wait()

    def etcdctl(self, *words):
        return subprocess.run(["etcdctl", "--endpoints", self.endpoint, "--command-timeout=3s", *words],
                              capture_output=True, text=True, check=False)

    def finish(self, *agents):
        for agent in agents:
            agent.order("exit 0")
        for agent in agents:
            self.assertEqual(agent.end(), 0, agent.printed())
        self.assert_nothing_left()

    def test_two_nodes_meet_work_and_end(self):
        nodes = [self.agent("--nproc-per-node", "2", nodes="2") for _ in range(2)]
        ranks = sorted(worker.rank for node in nodes for worker in node.workers(2))
        self.assertEqual(ranks, [0, 1, 2, 3])
        self.assertIn("/muster/job/members/", self.etcdctl("get", "--prefix", "/muster/", "--keys-only").stdout)
        self.finish(*nodes)

    def test_the_survivors_of_a_killed_node_meet_without_it(self):
        nodes = [self.agent("--max-restarts", "3", nodes="1:3") for _ in range(3)]
        before = self.one_world(*nodes)
        nodes[2].send(signal.SIGKILL)
        after = self.one_world(*nodes[:2], after=0)
        self.assertEqual(len(before), 3)
        self.assertEqual(sorted(worker.rank for worker in after), [0, 1])
        self.finish(*nodes[:2])

    def test_a_job_survives_that_etcd_is_killed_and_started(self):
        nodes = [self.agent("--max-restarts", "3", nodes="2") for _ in range(2)]
        before = self.one_world(*nodes)
        self.end_etcd()
        self.start_etcd()
        for worker in before:
            self.assertTrue(worker.lives, "work continues without etcd")
        before[0].kill()  # all must meet again
        after = self.one_world(*nodes, after=0)
        self.assertEqual(sorted(worker.rank for worker in after), [0, 1])
        self.finish(*nodes)

    def test_a_cluster_that_is_away_is_named(self):
        self.end_etcd()
        node = self.agent(conf={"join_timeout": "2"})
        self.assertNotEqual(node.end(), 0)
        self.assertIn(self.endpoint, node.printed())


if __name__ == "__main__":
    unittest.main()
