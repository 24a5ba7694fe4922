#!/usr/bin/env python3
"""An unread standard error: the long-running commands serve, join and end nevertheless."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import unittest

from launching import PATIENCE, eventually
from processes import Processes

VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
ADD = b"\x04"


def full_pipe(test):
    """A reading end, and a writing end that is full."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    test.addCleanup(os.close, reading)
    return reading, writing


class Client:
    """A client of the store, with a deadline for each answer."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.sendall(VALIDATE)

    def add(self, key, delta):
        self.socket.sendall(ADD + struct.pack("<Q", len(key)) + key + struct.pack("<q", delta))
        received = b""
        while len(received) < 8:
            part = self.socket.recv(8 - len(received))
            if not part:
                raise AssertionError("the server has closed the connection")
            received += part
        return struct.unpack("<q", received)[0]

    def close(self):
        self.socket.close()


def offend(port):
    """A client that the server logs a line about, and has disconnected when this returns."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        try:
            while stranger.recv(4096):
                pass
        except ConnectionResetError:
            pass


class Serve(Processes, unittest.TestCase):
    def setUp(self):
        self.reading, writing = full_pipe(self)
        self.server = self.start("serve", "--listen", "127.0.0.1:0", "--json", "--threads", "2", stderr=writing)
        os.close(writing)
        self.port = json.loads(self.server.stdout.readline())["port"]

    def client(self):
        made = Client(self.port)
        self.addCleanup(made.close)
        return made

    def test_service_continues_and_sigterm_ends_it_with_0(self):
        before = [self.client() for _ in range(4)]
        for turn in range(1, 20):
            offend(self.port)
            for client in before + [self.client()]:
                client.add(b"n", 1)
            self.assertEqual(before[0].add(b"turns", 1), turn)
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(PATIENCE), 0)

    def test_its_lines_come_once_a_reader_reads(self):
        offend(self.port)
        received = b""
        while b"starts with byte" not in received:
            part = os.read(self.reading, 65536)
            self.assertTrue(part, received[-200:])
            received += part
        last = received.decode().splitlines()[-1].lstrip("x")
        self.assertRegex(last, r"^\S+Z warning closed 127\.0\.0\.1:\d+: starts with byte 71, not with VALIDATE$")

    def test_a_reader_that_goes_away_does_not_end_it(self):
        reading, writing = os.pipe()
        server = self.start("serve", "--listen", "127.0.0.1:0", "--json", stderr=writing)
        os.close(writing)
        os.close(reading)
        port = json.loads(server.stdout.readline())["port"]
        for _ in range(4):
            offend(port)
        client = Client(port)
        self.addCleanup(client.close)
        self.assertEqual(client.add(b"n", 1), 1)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(PATIENCE), 0)


class Journal:
    """A node's journal, with a deadline for each line."""

    def __init__(self, node):
        self.node = node
        self.received = b""

    def line(self):
        def whole():
            ready, _, _ = select.select([self.node.stdout], [], [], 0)
            if ready:
                self.received += os.read(self.node.stdout.fileno(), 65536)
            return b"\n" in self.received

        eventually(whole, "the node prints a line")
        line, self.received = self.received.split(b"\n", 1)
        return json.loads(line)

    def round(self):
        while (line := self.line())["event"] != "round":
            pass
        return line


class Rendezvous(Processes, unittest.TestCase):
    def node(self, endpoint, *arguments, **options):
        return self.start("rendezvous", "--endpoint", endpoint, "--id", "quiet", "--nodes", "1:2", "--last-call", "1",
                          "--hold", "600", "--follow", "--journal", *arguments, text=False, **options)

    def test_a_node_follows_rounds_and_ends_with_its_signal(self):
        _, endpoint = self.start_server()
        _, writing = full_pipe(self)
        node = self.node(endpoint, "--events", "-", stderr=writing)
        os.close(writing)
        journal = Journal(node)
        self.assertEqual(journal.round()["world_size"], 1)
        other = self.node(endpoint, stderr=subprocess.DEVNULL)
        self.assertEqual(journal.round()["world_size"], 2)
        other.kill()
        self.assertEqual(journal.round()["world_size"], 1)
        node.send_signal(signal.SIGTERM)
        self.assertEqual(node.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
