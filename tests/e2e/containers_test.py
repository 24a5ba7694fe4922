"""Nodes in containers: each is process 1 in its PID namespace, and some have one address. They are two nodes
nevertheless."""

import json
import shutil
import subprocess
import unittest

from needs import skip_or_fail
from processes import MUSTER, Processes

PATIENCE = 60
# A PID namespace of its own, and nothing else of a container.
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child")


class Containers(Processes, unittest.TestCase):
    def setUp(self):
        can = shutil.which("unshare") and subprocess.run([*CONTAINER, "true"], check=False).returncode == 0
        skip_or_fail("" if can else "PID namespaces cannot be made", "MUSTER_REQUIRE_NETWORKS")
        _, self.address = self.start_server()

    def meet(self, backend):
        command = [*CONTAINER, MUSTER, "rendezvous", "--backend", backend, "--endpoint", self.address, "--id", "run",
                   "--nodes", "2", "--local-addr", "127.0.0.1", "--conf", "is_host=false", "--json", "--hold", "1",
                   "--journal", "--timeout", str(PATIENCE)]
        nodes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for node in nodes:
            self.addCleanup(self.end, node)
        names, rounds = set(), []
        for node in nodes:
            out, _ = node.communicate(timeout=PATIENCE)
            self.assertEqual(node.returncode, 0, out)
            events = [json.loads(line) for line in out.splitlines()]
            names |= {event["node"] for event in events if event["event"] == "joining"}
            rounds.append(next(event for event in events if event["event"] == "round"))
        for name in names:
            self.assertRegex(name, r"^127\.0\.0\.1_1_\d+$")
        self.assertEqual(len(names), 2, names)
        self.assertEqual(sorted(one["rank"] for one in rounds), [0, 1])
        self.assertEqual({one["world_size"] for one in rounds}, {2})

    def test_two_of_one_address_and_process_id_are_two_with_the_coordinator(self):
        self.meet("muster")

    def test_and_with_a_shared_document(self):
        self.meet("c10d")


if __name__ == "__main__":
    unittest.main()
