#!/usr/bin/env python3
"""Opponents who want the server's time: colliding keys, LIST_KEYS, waits and MULTI_SET at the limits, beside ordinary
clients and a rendezvous.

    abuse_freeze_test.py [--full] [-v]

p99 of what ordinary clients ask stays under 50 ms, and no node loses its place. With --full: 200 nodes, 16 ordinary
clients, 131,072 keys in a request; otherwise a share of that."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
import unittest

import raw_store as raw
from processes import MUSTER, Processes

FULL = "--full" in sys.argv
if FULL:
    sys.argv.remove("--full")
KEYS = 131_072 if FULL else 32_768
NODES = 200 if FULL else 8
ORDINARY = 16 if FULL else 4
SECONDS = 30 if FULL else 4
P99 = 0.050
MASK = (1 << 64) - 1


def murmur(data):
    """std::hash of libstdc++ for texts, with its fixed seed: what the table hashed with before. Of whole words."""
    mul = 0xC6A4A7935BD1E995
    digest = (0xC70F6907 ^ (len(data) * mul)) & MASK
    for (word,) in struct.iter_unpack("<Q", data):
        word = (word * mul) & MASK
        word ^= word >> 47
        digest = ((digest ^ ((word * mul) & MASK)) * mul) & MASK
    digest = ((digest ^ (digest >> 47)) * mul) & MASK
    return digest ^ (digest >> 47)


def colliding_keys(count):
    """Keys of 16 bytes with one hash of all 64 bits. Each word goes through a mixture that can be undone, so for any
    first word there is a second one that leads to the digest that is wanted."""
    mul = 0xC6A4A7935BD1E995
    inverse = pow(mul, -1, 1 << 64)

    def mix(word):
        word = (word * mul) & MASK
        return ((word ^ (word >> 47)) * mul) & MASK

    def unmix(word):
        word = (word * inverse) & MASK
        return ((word ^ (word >> 47)) * inverse) & MASK

    start = (0xC70F6907 ^ (16 * mul)) & MASK
    wanted = 0x123456789ABCDEF0
    keys = []
    for i in range(count):
        first = struct.unpack("<Q", b"/k" + struct.pack("<Q", i)[:6])[0]
        digest = ((start ^ mix(first)) * mul) & MASK
        second = unmix(((wanted * inverse) & MASK) ^ digest)
        keys.append(struct.pack("<QQ", first, second))
    return keys


# One of the ordinary clients, in a process of its own so that nobody's interpreter makes it wait.
ORDINARY_CLIENT = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
import raw_store as raw
client = raw.Client(int(sys.argv[2]))
key = sys.argv[3].encode()
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
print("ready", flush=True)
took, count = [], 0
while not stop:
    began = time.perf_counter()
    count += 1
    if client.add(key) != count:
        raise SystemExit("a wrong count")
    took.append(time.perf_counter() - began)
    time.sleep(0.002)
took.sort()
print(len(took), took[len(took) * 99 // 100], took[-1], flush=True)
"""


class Freeze(Processes, unittest.TestCase):
    def setUp(self):
        self.server = self.start("serve", "--listen", "127.0.0.1:0", "--json", "--store-bytes-max", "1GiB",
                                 stderr=subprocess.DEVNULL)
        self.port = json.loads(self.server.stdout.readline())["port"]

    def ordinary(self, name):
        process = subprocess.Popen([sys.executable, "-c", ORDINARY_CLIENT, os.path.dirname(os.path.abspath(__file__)),
                                    str(self.port), f"/ordinary/{name}"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def node(self):
        return self.start("rendezvous", "--backend", "muster", "--endpoint", f"127.0.0.1:{self.port}", "--id", "run",
                          "--nodes", str(NODES), "--hold", "600", "--conf", "is_host=false",
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def flood(self, attack, nodes=0):
        """Plays the attack again and again beside everybody else; returns their worst p99."""
        members = [self.node() for _ in range(nodes)]
        placed = [member.stdout.readline() for member in members]
        self.assertTrue(all(placed))
        clients = [self.ordinary(i) for i in range(ORDINARY)]
        began, rounds = time.monotonic(), 0
        while time.monotonic() < began + SECONDS or rounds < 2:
            attack()
            rounds += 1
        slowest = 0.0
        for client in clients:
            client.send_signal(signal.SIGTERM)
            count, p99, most = client.stdout.readline().split()
            print(f"{count} requests, p99 {float(p99) * 1e3:.1f} ms, most {float(most) * 1e3:.1f} ms, "
                  f"{rounds} attacks", file=sys.stderr)
            slowest = max(slowest, float(p99))
        for member in members:
            self.assertIsNone(member.poll(), "a node lost its place")
        return slowest

    def test_the_hash_that_is_attacked_is_the_old_one(self):
        keys = colliding_keys(1000)
        self.assertEqual(len(set(keys)), 1000)
        self.assertEqual(len({murmur(key) for key in keys}), 1)

    def test_colliding_keys(self):
        message = raw.multi_set([(key, b"") for key in colliding_keys(KEYS)])
        client = raw.Client(self.port)
        self.addCleanup(client.close)

        def attack():
            client.send(message)
            client.add(b"/n")

        self.assertLess(self.flood(attack, NODES), P99)

    def test_sets_lists_and_reads_at_the_limits(self):
        keys = [b"/flood/%d" % i for i in range(KEYS)]
        write, read = raw.multi_set([(key, b"value") for key in keys]), raw.listed(raw.MULTI_GET, *keys)
        check, wait = raw.listed(raw.CHECK, *keys), raw.listed(raw.WAIT, *(key + b"/never" for key in keys))
        client = raw.Client(self.port)
        self.addCleanup(client.close)

        def attack():
            client.send(write + check)
            self.assertEqual(client.receive(1), b"\0")
            client.send(read)
            client.receive(KEYS * 13)
            client.send(bytes([raw.LIST_KEYS]))
            for _ in range(client.receive_number()):
                client.receive(client.receive_number())
            waiter = raw.Client(self.port)
            waiter.send(wait)
            waiter.close()

        self.assertLess(self.flood(attack), P99)

    def test_large_values(self):
        pairs = [(b"/large/%d" % i, bytes(8 << 20)) for i in range(30 if FULL else 8)]
        write, read = raw.multi_set(pairs), raw.listed(raw.MULTI_GET, *(key for key, _ in pairs))
        client = raw.Client(self.port)
        self.addCleanup(client.close)

        def attack():
            client.send(write)
            client.send(read)
            client.receive(len(pairs) * (8 + (8 << 20)))

        self.assertLess(self.flood(attack), P99)


if __name__ == "__main__":
    assert MUSTER
    unittest.main()
