#!/usr/bin/env python3
"""Idle connections of one address do not use up the descriptors of `muster serve`: other addresses, and sessions, get
in."""

import json
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

import raw_store as raw
from launching import PATIENCE, eventually
from processes import MUSTER, Processes

VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
SET, ADD, WAIT, PING = (bytes([number]) for number in (1, 4, 6, 13))
DESCRIPTORS = 400
RUNS = 1000
HOME, STRANGER = "127.0.0.1", "127.0.0.2"


def blob(data):
    return struct.pack("<Q", len(data)) + data


class Peer:
    """A client of the store with an address of its own and a deadline for each answer."""

    def __init__(self, port, address, mentions=VALIDATE):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(address, 0))
        self.socket.sendall(mentions)

    def receive(self, count):
        received = b""
        while len(received) < count:
            part = self.socket.recv(count - len(received))
            if not part:
                raise ConnectionError("closed")
            received += part
        return received

    def ping(self):
        self.socket.sendall(PING + b"abcd")
        return self.receive(4) == b"abcd"

    def add(self, key):
        self.socket.sendall(ADD + blob(key) + struct.pack("<q", 1))
        return struct.unpack("<q", self.receive(8))[0]

    def is_closed(self):
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        finally:
            self.socket.settimeout(PATIENCE)

    def close(self):
        self.socket.close()


class Shares(Processes, unittest.TestCase):
    def setUp(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.log = tempfile.TemporaryFile(mode="w+", encoding="utf-8")
        self.addCleanup(self.log.close)
        self.server = self.start("serve", "--listen", "127.0.0.1:0", "--json", "--threads", "2", "--runs-max", str(RUNS),
                                 stderr=self.log,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS,) * 2))
        self.port = json.loads(self.server.stdout.readline())["port"]

    def peer(self, address, mentions=VALIDATE):
        made = Peer(self.port, address, mentions)
        self.addCleanup(made.close)
        return made

    def served(self, address):
        """A peer that was answered; nothing if it was refused."""
        try:
            made = self.peer(address)
            return made if made.ping() else None
        except ConnectionError:
            return None

    def flood(self, address, asks, parks=False):
        """Opens connections until the server has no descriptor left. Without `asks` they have sent only VALIDATE; with
        `parks` each waits for a key of its own."""
        if not asks:
            held = [self.peer(address) for _ in range(DESCRIPTORS)]
            eventually(lambda: "out of file descriptors" in self.logged(), "no descriptor is left")
            return held
        held = []
        while made := self.served(address):
            held.append(made)
            if parks:
                made.socket.sendall(WAIT + struct.pack("<Q", 1) + blob(b"/never/%d" % len(held)))
                self.assertTrue(made.ping())
            self.assertLess(len(held), DESCRIPTORS)
        self.assertGreater(len(held), DESCRIPTORS // 2)
        return held

    def logged(self):
        self.log.seek(0)
        return self.log.read()

    def assert_served(self, asks):
        self.flood(STRANGER, asks)
        clients = []
        for number in range(1, 61):
            clients.append(self.peer(HOME))
            self.assertEqual(clients[-1].add(b"n"), number)
        for client in clients:
            self.assertTrue(client.ping())

    def test_a_store_client_of_another_address_is_served(self):
        self.assert_served(asks=True)

    def test_also_if_the_others_have_sent_no_request(self):
        self.assert_served(asks=False)

    def test_no_stranger_ends_a_parked_wait(self):
        """Workers of a large job wait at one address; connections of another one do not end them."""
        session = self.peer(STRANGER, VALIDATE + raw.session_open(b"run", patience_ms=3_600_000))
        session.receive(struct.unpack("<I", session.receive(5)[1:])[0])
        flood = self.flood(STRANGER, True, parks=True)
        silent = [self.peer(HOME, b"") for _ in range(100)]
        eventually(lambda: " holds " in self.logged(), "descriptors are asked back")
        for peer in silent:
            peer.close()
        node = subprocess.run([MUSTER, "rendezvous", "--endpoint", f"127.0.0.1:{self.port}", "--id", "r", "--nodes", "1",
                               "--hold", "0", "--json"], capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(node.returncode, 0, node.stderr)
        self.assertFalse(session.is_closed())
        self.assertFalse(any(peer.is_closed() for peer in flood))

    def test_one_address_leaves_a_quarter_to_others_whatever_it_does(self):
        """Also if all of its connections wait, or are sessions. Nodes get in when two addresses hold all that they can.
        """
        flood = self.flood(STRANGER, True, parks=True)
        self.assertLess(len(flood), DESCRIPTORS * 3 // 4)
        clients = [self.peer(HOME) for _ in range(40)]
        for number, client in enumerate(clients, 1):
            self.assertEqual(client.add(b"n"), number)
        while self.served(HOME):
            pass
        self.assert_nodes_get_in(8)
        self.assertFalse(any(peer.is_closed() for peer in flood))

    def test_nor_can_sessions_of_one_address_keep_others_out(self):
        held = []
        for number in range(DESCRIPTORS):
            node = self.node(STRANGER, number)
            if node is None:
                break
            held.append(node)
        self.assertLess(len(held), DESCRIPTORS * 7 // 8)
        clients = [self.peer(HOME) for _ in range(40)]
        for number, client in enumerate(clients, 1):
            self.assertEqual(client.add(b"n"), number)
        self.assert_nodes_get_in(8)

    def test_runs_of_one_address_leave_some_to_others(self):
        """Runs stay for as long as their nodes ask for, also without a connection."""
        kinds = []
        for number in range(RUNS + 1):
            node = self.peer(STRANGER, VALIDATE + raw.session_open(b"r%d" % number, patience_ms=3_600_000))
            kinds.append(node.receive(struct.unpack("<BI", node.receive(5))[1])[0])
            node.close()
        opened, refused = 0, 1
        self.assertEqual(kinds, [opened] * RUNS + [refused])
        node = subprocess.run([MUSTER, "rendezvous", "--endpoint", f"127.0.0.1:{self.port}", "--id", "r", "--nodes", "1",
                               "--hold", "0", "--json"], capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(node.returncode, 0, node.stderr)

    def node(self, address, number):
        """A node that was answered; nothing if it was refused."""
        try:
            made = self.peer(address, VALIDATE + raw.session_open(b"r%d" % number, patience_ms=3_600_000))
            made.receive(5)
            return made
        except ConnectionError:
            return None

    def assert_nodes_get_in(self, count):
        nodes = [self.node("127.0.0.4", number) for number in range(count)]
        self.assertTrue(all(nodes), nodes)

    def test_many_that_come_at_once_are_served(self):
        self.flood(STRANGER, True)
        clients = [self.peer(HOME) for _ in range(100)]
        for client in clients:
            self.assertTrue(client.ping())

    def test_a_node_of_another_address_gets_its_round(self):
        flood = self.flood(STRANGER, True)
        # All the time another client takes what becomes free.
        for _ in range(5):
            node = subprocess.run([MUSTER, "rendezvous", "--endpoint", f"127.0.0.1:{self.port}", "--id", "r", "--nodes",
                                   "1", "--hold", "0", "--json"], capture_output=True, timeout=PATIENCE, check=False)
            self.assertEqual(node.returncode, 0, node.stderr)
            self.assertEqual(json.loads(node.stdout)["world_size"], 1)
            for _ in range(10):
                if made := self.served(STRANGER):
                    flood.append(made)

    def test_sessions_of_the_same_address_get_in(self):
        self.flood(HOME, True)
        self.assertIsNone(self.served(HOME))
        for _ in range(5):
            status = subprocess.run([MUSTER, "status", "--server", f"127.0.0.1:{self.port}"], capture_output=True,
                                    timeout=PATIENCE, check=False)
            self.assertEqual(status.returncode, 0, status.stderr)
        self.assertIsNone(self.served(HOME))

    def test_a_store_client_of_the_same_address_is_served_if_others_have_sent_no_request(self):
        self.flood(HOME, False)
        clients = []
        for number in range(1, 61):
            clients.append(self.peer(HOME, VALIDATE + PING + b"abcd"))
            self.assertEqual(clients[-1].receive(4), b"abcd")
            self.assertEqual(clients[-1].add(b"n"), number)

    def test_waits_of_the_same_address_stay(self):
        flood = self.flood(HOME, True, parks=True)
        self.assertIsNone(self.served(HOME))
        status = subprocess.run([MUSTER, "status", "--server", f"127.0.0.1:{self.port}"], capture_output=True,
                                timeout=PATIENCE, check=False)
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertFalse(any(peer.is_closed() for peer in flood))

    def test_a_parked_wait_and_the_most_recent_client_stay(self):
        waiter = self.peer(STRANGER, VALIDATE + WAIT + struct.pack("<Q", 1) + blob(b"/gate"))
        flood = self.flood(STRANGER, True)
        self.assertTrue(flood[0].ping())  # it is the most recent one now
        clients = [self.peer(HOME) for _ in range(100)]
        for client in clients:
            self.assertTrue(client.ping())
        self.assertFalse(waiter.is_closed())
        self.assertFalse(flood[0].is_closed())
        clients[0].socket.sendall(SET + blob(b"/gate") + blob(b"open"))
        self.assertEqual(waiter.receive(1), b"\x00")
        eventually(lambda: sum(idle.is_closed() for idle in flood) >= 1, "idle connections give way")

    def test_the_log_names_the_address_once(self):
        self.flood(STRANGER, True)
        for _ in range(40):
            self.assertTrue(self.peer(HOME).ping())
        named = [line for line in self.logged().splitlines() if f"{STRANGER} holds" in line]
        self.assertEqual(len(named), 1, self.logged())

    def test_it_ends_with_0_whichever_clients_are_connected(self):
        self.flood(STRANGER, False)
        self.assertTrue(self.peer(HOME).ping())
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
