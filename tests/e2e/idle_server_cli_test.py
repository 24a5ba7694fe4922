#!/usr/bin/env python3
"""An idle server does not wake up: no thread of it runs or makes a system call."""

import pathlib
import re
import socket
import time
import unittest

from processes import Processes
from raw_store import WAIT, Client, listed, session_open

PATIENCE = 60
QUIET = 2.5  # seconds: more than any period of a server's timers


class IdleServer(Processes, unittest.TestCase):
    def setUp(self):
        self.server, address = self.start_server()
        self.port = int(address.rsplit(":", 1)[1])

    def wakeups(self):
        """How often the server's threads have been scheduled."""
        statuses = pathlib.Path(f"/proc/{self.server.pid}/task").glob("*/status")
        return sum(int(count) for status in statuses
                   for count in re.findall(r"ctxt_switches:\t(\d+)", status.read_text(encoding="ascii")))

    def assert_becomes_quiet(self):
        give_up = time.monotonic() + PATIENCE
        while True:
            before = self.wakeups()
            time.sleep(QUIET)
            if self.wakeups() == before:
                return
            self.assertLess(time.monotonic(), give_up, "the server wakes up again and again")

    def client(self):
        client = Client(self.port)
        self.addCleanup(client.close)
        return client

    def test_without_clients(self):
        self.assert_becomes_quiet()

    def test_with_a_client_that_is_silent_and_one_that_waits(self):
        silent, waiting = self.client(), self.client()
        self.assertEqual(silent.add(b"/key"), 1)
        waiting.send(listed(WAIT, b"/never"))
        self.assert_becomes_quiet()
        self.assertEqual(silent.add(b"/key"), 2)
        self.assert_becomes_quiet()

    def test_after_the_last_node_has_gone(self):
        for _ in range(2):  # it becomes idle, and then busy again
            node = self.client()
            node.send(session_open(b"run", patience_ms=200))
            node.receive_session()
            node.close()
            self.assert_becomes_quiet()

    def test_a_client_without_handshake_is_still_closed_in_time(self):
        server = self.start("serve", "--listen", "127.0.0.1:0", "--json", "--handshake-seconds", "0.5")
        port = int(re.search(r'"port":(\d+)', server.stdout.readline())[1])
        self.server = server
        self.assert_becomes_quiet()
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as late:
            late.sendall(b"\x00")  # the first byte of VALIDATE
            self.assertEqual(late.recv(1), b"")


if __name__ == "__main__":
    unittest.main()
