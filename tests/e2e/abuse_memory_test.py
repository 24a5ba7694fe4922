#!/usr/bin/env python3
"""Opponents who want the server's memory: each attack beside ordinary clients, with --store-bytes-max.

    abuse_memory_test.py [--full] [-v]

The bound holds whatever they do: the server stays below 400 MiB with 256 MiB allowed (with --full; otherwise a quarter
of everything), ordinary clients are served throughout, and the log names each offender once."""

import json
import re
import resource
import subprocess
import sys
import threading
import unittest

import raw_store as raw
from processes import MUSTER, Processes

FULL = "--full" in sys.argv
if FULL:
    sys.argv.remove("--full")
SCALE = 4 if FULL else 1
MIB = 1 << 20
BOUND = 64 * MIB * SCALE
PEAK = 400 * MIB if FULL else 124 * MIB


class Ordinary(threading.Thread):
    """Counts, and stores and reads small values of its own, until told to stop."""

    def __init__(self, port, name):
        super().__init__()
        self.port, self.key = port, f"/ordinary/{name}".encode()
        self.stop, self.rounds, self.failure = threading.Event(), 0, None

    def run(self):
        try:
            client = raw.Client(self.port)
            while not self.stop.is_set():
                self.rounds += 1
                counted = client.add(self.key + b"/n")
                assert counted == self.rounds, (counted, self.rounds)
                value = b"value %d" % self.rounds
                client.send(raw.request(raw.SET, self.key + b"/%d" % (self.rounds % 100), value))
                got = client.get(self.key + b"/%d" % (self.rounds % 100))
                assert got == value, got
            client.close()
        except Exception as failure:  # pylint: disable=broad-except
            self.failure = failure


class Memory(Processes, unittest.TestCase):
    options = ()

    def setUp(self):
        self.server = self.start("serve", "--listen", "127.0.0.1:0", "--json", "--store-bytes-max",
                                 f"{BOUND // MIB}MiB", *self.options)
        self.port = json.loads(self.server.stdout.readline())["port"]
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.server.stderr))
        self.reader.start()
        self.ordinary = [Ordinary(self.port, i) for i in range(4)]
        for client in self.ordinary:
            client.start()
        self.clients = []

    def client(self, **options):
        self.clients.append(raw.Client(self.port, **options))
        return self.clients[-1]

    def peak(self):
        with open(f"/proc/{self.server.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmHWM:\s+(\d+) kB", status.read()).group(1)) * 1024

    def finish(self, offenders=None, saying="store_bytes_max"):
        """Ordinary clients have been served and still are; the bound held; each offender has its line."""
        before = [client.rounds for client in self.ordinary]
        while any(client.rounds < rounds + 10 and not client.failure for client, rounds in zip(self.ordinary, before)):
            pass
        for client in self.ordinary:
            client.stop.set()
        for client in self.ordinary:
            client.join()
            self.assertIsNone(client.failure)
        peak = self.peak()
        for client in self.clients:
            client.close()
        self.server.terminate()
        self.assertEqual(self.server.wait(60), 0)
        self.reader.join()
        said = [line for line in self.lines if saying in line]
        if offenders is not None:
            self.assertEqual(len(said), offenders, self.lines)
            peers = [re.search(r"127\.0\.0\.1:\d+", line).group(0) for line in said]
            self.assertEqual(len(set(peers)), offenders, said)
        self.assertLess(peak, PEAK, f"{peak // MIB} MiB")

    def test_values_are_refused_above_the_bound(self):
        client = self.client()
        value = bytes(8 * MIB)
        with self.assertRaises(ConnectionError):
            for i in range(2 * BOUND // len(value)):
                client.send(raw.request(raw.SET, b"/big/%d" % i, value))
                client.add(b"/n")
        self.finish(offenders=1)

    def test_a_value_that_is_overwritten_is_given_back(self):
        client = self.client()
        for i in range(8 * BOUND // (8 * MIB)):
            client.send(raw.request(raw.SET, b"/big/%d" % i, bytes(8 * MIB)))
            client.send(raw.request(raw.SET, b"/big/%d" % i, b"x"))
        self.assertEqual(client.get(b"/big/0"), b"x")
        self.finish(offenders=0)

    def test_queues_and_appended_values_count(self):
        for op in (14, raw.APPEND):
            client = self.client()
            with self.assertRaises(ConnectionError):
                for _ in range(2 * BOUND // MIB):
                    client.send(raw.request(op, b"/grows", bytes(MIB)))
                    client.add(b"/n")
        self.finish(offenders=2)

    def test_compare_set_replies_that_nobody_reads(self):
        writer = self.client()
        for _ in range(BOUND // (16 * MIB)):
            writer.send(raw.request(raw.APPEND, b"/big", bytes(8 * MIB)))
        writer.add(b"/n")
        for _ in range(9):
            greedy = self.client(receive_buffer=4096)
            greedy.send(raw.request(raw.COMPARE_SET, b"/big", b"something else", b"") * 3)
            writer.add(b"/n")
        self.finish(offenders=0)

    def test_waits_on_long_keys(self):
        for i in range(4):
            client = self.client()
            keys = [b"/%d/%d/" % (i, j) + bytes(8000) for j in range(BOUND // 8000 // 2)]
            try:
                client.send(raw.listed(raw.WAIT, *keys))
            except ConnectionError:
                pass
            self.client().add(b"/n")
        while not any("store_bytes_max" in line for line in self.lines):
            self.client().add(b"/n")
        self.finish()

    def test_requests_that_are_never_finished(self):
        beginning = bytes([raw.MULTI_SET]) + raw.number(1000) + raw.blob(b"/k") + raw.blob(bytes(7 * MIB))
        for _ in range(5):
            client = self.client()
            try:
                client.send(beginning)
                for _ in range(BOUND // (8 * MIB)):
                    client.send(raw.blob(b"/k") + raw.blob(bytes(7 * MIB)))
            except ConnectionError:
                pass
            self.client().add(b"/n")
        self.finish()
        self.assertTrue(any("store_bytes_max" in line for line in self.lines), self.lines)

    def test_two_slow_readers_do_not_deny_large_replies(self):
        writer = self.client()
        for i in range(3):
            writer.send(raw.request(raw.SET, b"/big/%d" % i, bytes(8 * MIB)))
        keys = [b"/big/%d" % (i % 3) for i in range(12)]
        for _ in range(2):
            self.client(receive_buffer=4096).send(raw.listed(raw.MULTI_GET, *keys))
        for _ in range(3):
            self.assertEqual(len(writer.get(b"/big/1")), 8 * MIB)
        self.finish(offenders=0)


class Stalled(Memory):
    """With little patience: those who are slow are closed, which gives their memory back."""

    options = ("--stall-seconds", "1")

    def test_a_request_that_is_sent_too_slowly_is_not_waited_for(self):
        client = self.client()
        client.send(bytes([raw.SET]) + raw.blob(b"/k") + raw.number(8 * MIB) + bytes(MIB))
        self.assertTrue(client.is_closed())
        self.finish(offenders=1, saying="a second of the request that it has begun")

    def test_a_reader_that_is_too_slow_is_closed(self):
        client = self.client(receive_buffer=4096)
        client.send(raw.request(raw.SET, b"/big", bytes(8 * MIB)) + raw.request(raw.GET, b"/big") * 4)
        while not any("a second of the replies queued for it" in line for line in self.lines):
            self.client().add(b"/n")
        self.finish(offenders=1, saying="a second of the replies queued for it")


class OutOfMemory(Processes, unittest.TestCase):
    def test_an_allocation_that_fails_costs_one_client(self):
        limit = 1500 * MIB
        server = self.start("serve", "--listen", "127.0.0.1:0", "--json", "--threads", "1", "--store-bytes-max", "1TiB",
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
                            stderr=subprocess.PIPE)
        port = json.loads(server.stdout.readline())["port"]
        ordinary = raw.Client(port)
        greedy = raw.Client(port)
        with self.assertRaises(ConnectionError):
            for i in range(2 * limit // (8 * MIB)):
                greedy.send(raw.request(raw.SET, b"/big/%d" % i, bytes(8 * MIB)))
                ordinary.add(b"/n")
                greedy.add(b"/g")
        before = ordinary.add(b"/n")
        self.assertEqual(ordinary.add(b"/n"), before + 1)
        server.terminate()
        self.assertEqual(server.wait(60), 0)
        self.assertIn("out of memory", server.stderr.read())
        ordinary.close()
        greedy.close()


for inherited in [name for name in dir(Memory) if name.startswith("test_")]:
    setattr(Stalled, inherited, None)  # once is enough

if __name__ == "__main__":
    assert MUSTER
    unittest.main()
