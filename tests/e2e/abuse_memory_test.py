#!/usr/bin/env python3
"""Attacks on the server's memory, together with ordinary clients, with --store-bytes-max.

    abuse_memory_test.py [--full] [-v]

The bound always holds: the server stays below 400 MiB with 256 MiB allowed (with --full; otherwise a quarter of
everything). Ordinary clients are served throughout, and the log names each offender once."""

import contextlib
import json
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import raw_store as raw
from launching import eventually
from processes import MUSTER, Processes

FULL = "--full" in sys.argv
if FULL:
    sys.argv.remove("--full")
SCALE = 4 if FULL else 1
MIB = 1 << 20
BOUND = 64 * MIB * SCALE
PEAK = 400 * MIB if FULL else 124 * MIB


class Ordinary(threading.Thread):
    """Counts, stores and reads small values of its own, creates keys and waits for some, until it is stopped."""

    def __init__(self, port, name):
        super().__init__()
        self.port, self.key = port, f"/ordinary/{name}".encode()
        self.stop, self.rounds, self.failure = threading.Event(), 0, None

    def run(self):
        try:
            client, waiting = raw.Client(self.port), raw.Client(self.port)
            while not self.stop.is_set():
                self.rounds += 1
                counted = client.add(self.key + b"/n")
                assert counted == self.rounds, (counted, self.rounds)
                value = b"value %d" % self.rounds
                client.send(raw.request(raw.SET, self.key + b"/%d" % (self.rounds % 100), value))
                got = client.get(self.key + b"/%d" % (self.rounds % 100))
                assert got == value, got
                new, gate = (b"%s/%s/%d" % (self.key, kind, self.rounds) for kind in (b"new", b"gate"))
                assert client.add(new) == 1
                waiting.send(raw.listed(raw.WAIT, new, gate))
                assert client.add(gate) == 1
                assert waiting.receive(1) == b"\0"
                assert [client.delete(key) for key in (new, gate)] == [1, 1]
            client.close()
            waiting.close()
        except Exception as failure:  # pylint: disable=broad-except
            self.failure = failure


class Memory(Processes, unittest.TestCase):
    options = ()

    def setUp(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
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

    def finish(self, offenders=(), suspects=()):
        """Ordinary clients have been served and still are. The bound held. The log names each offender once, and no
        other client. Of `suspects`, it names some, once."""
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
        print(f"{self.id()}: peak {peak / MIB:.0f} MiB, {len(self.lines)} lines for {len(offenders)} offenders",
              file=sys.stderr)
        named = [match.group(1) for match in map(re.compile(r"closed (\S+): ").search, self.lines) if match]
        if suspects:
            self.assertGreater(len(named), 0)
            self.assertEqual(len(named), len(set(named) & {client.address for client in suspects}), self.lines)
        else:
            self.assertEqual(sorted(named), sorted(client.address for client in offenders), self.lines)
        self.assertLess(peak, PEAK, f"{peak // MIB} MiB")

    def until(self, condition):
        eventually(condition, "the log names them all")

    def refused(self, client, messages):
        """Sends until the server disconnects."""
        with self.assertRaises(ConnectionError):
            for message in messages:
                client.send(message)
                client.add(b"/n")
        return client

    def test_values_are_refused_above_the_bound(self):
        value = bytes(8 * MIB)
        writes = (raw.request(raw.SET, b"/big/%d" % i, value) for i in range(2 * BOUND // len(value)))
        self.finish(offenders=[self.refused(self.client(), writes)])

    def test_a_value_that_is_overwritten_is_given_back(self):
        client = self.client()
        for i in range(8 * BOUND // (8 * MIB)):
            client.send(raw.request(raw.SET, b"/big/%d" % i, bytes(8 * MIB)))
            client.send(raw.request(raw.SET, b"/big/%d" % i, b"x"))
        self.assertEqual(client.get(b"/big/0"), b"x")
        self.finish()

    def test_gaps_that_freed_small_keys_leave_count(self):
        def name(i):
            return b"/small/%08d" % i

        keys = BOUND // 384
        client = self.client()
        for base in range(0, keys, 4000):
            client.send(raw.multi_set([(name(i), bytes(60)) for i in range(base, base + 4000)]))
        client.add(b"/n")
        gone = [i for i in range(keys) if i % 40]
        for base in range(0, len(gone), 2000):
            part = gone[base:base + 2000]
            client.send(b"".join(raw.request(raw.DELETE, name(i)) for i in part))
            client.receive(8 * len(part))
        value = bytes(2 * MIB)
        writes = (raw.request(raw.SET, b"/big/%d" % i, value) for i in range(2 * BOUND // len(value)))
        large = self.refused(self.client(), writes)
        # An eighth of the limit, or 16 MiB, is allowed in addition.
        self.assertLess(self.peak(), BOUND * 5 // 4 + 20 * MIB)
        self.finish(offenders=[large])

    def test_queues_and_appended_values_count(self):
        self.finish(offenders=[
            self.refused(self.client(), [raw.request(op, b"/grows", bytes(MIB))] * (2 * BOUND // MIB))
            for op in (raw.QUEUE_PUSH, raw.APPEND)])

    def test_waits_on_long_keys(self):
        def wait(i):
            keys = (b"/%d/%d/" % (i, j) + bytes(8000) for j in range(BOUND * 5 // 16 // 8192))
            return raw.listed(raw.WAIT, *keys)

        for i in range(2):
            parked = self.client()
            parked.send(wait(i))
            parked.add(b"/n")
        self.finish(offenders=[self.refused(self.client(), [wait(i)]) for i in range(2, 4)])

    def test_requests_that_are_never_finished(self):
        offenders = []
        for _ in range(5):
            offenders.append(self.client())
            with self.assertRaises(ConnectionError):
                offenders[-1].send(bytes([raw.MULTI_SET]) + raw.number(1000))
                for _ in range(BOUND // (7 * MIB)):
                    offenders[-1].send(raw.blob(b"/k") + raw.blob(bytes(7 * MIB)))
        self.finish(offenders)

    def test_ever_smaller_values_of_one_client(self):
        offenders = []
        for size in (60_000, 60_000, 3_000, 20):
            batch = max(1, 60_000 // (size + 300))
            offenders.append(self.refused(self.client(), (
                b"".join(raw.request(raw.SET, b"/%d/%d/%d" % (len(offenders), i, j), bytes(size)) for j in range(batch))
                for i in range(2 * BOUND // 60_000))))
        self.finish(offenders)

    def test_one_address_that_comes_back_again_and_again(self):
        """None of its clients adds much. Those of another address are served all the same."""
        offenders = []

        def adds_little(size):
            client = self.client(source="127.0.0.2")
            offenders.append(client)
            client.send(b"".join(raw.request(raw.SET, b"/%d/%d" % (len(offenders), i), bytes(size))
                                 for i in range(BOUND // 64 // (size + 400))))
            client.add(b"/n")
            client.close()

        for size in (4000, 300, 20):
            with self.assertRaises(ConnectionError):
                for _ in range(200):
                    adds_little(size)
        self.finish(suspects=offenders)

    def fill(self):
        """Large values, until they are refused."""
        writes = (raw.request(raw.SET, b"/big/%d" % i, bytes(8 * MIB)) for i in range(2 * BOUND // (8 * MIB)))
        return self.refused(self.client(), writes)

    def test_many_small_requests_that_are_never_finished(self):
        offenders = [self.fill()]
        head = bytes([raw.SET]) + raw.blob(b"/k") + raw.number(8 * MIB)
        for _ in range(BOUND // 100_000):
            offenders.append(self.client())
            with contextlib.suppress(ConnectionError):
                offenders[-1].send(head + bytes(60 * 1024))
        self.until(lambda: any("withheld" in line for line in list(self.lines)))
        self.finish(suspects=offenders)

    def test_two_that_hold_most_must_make_haste(self):
        """Neither exceeds its share, and neither is near the time limit of a request. Memory is still scarce when one
        of them has gone."""
        writer = self.client()
        for i in range(BOUND * 3 // 8 // (8 * MIB)):
            writer.send(raw.request(raw.SET, b"/big/%d" % i, bytes(8 * MIB)))
        writer.add(b"/n")
        offenders = [self.client() for _ in range(2)]
        for client in offenders:
            client.send(bytes([raw.MULTI_SET]) + raw.number(1000))
            for _ in range(BOUND * 3 // 16 // MIB):
                client.send(raw.blob(b"/k") + raw.blob(bytes(MIB)))
        began = time.monotonic()
        for client in offenders:
            self.assertTrue(client.is_closed())
        self.assertLess(time.monotonic() - began, 40)
        self.finish(offenders)

    def test_small_replies_that_many_do_not_read(self):
        self.client().send(raw.request(raw.SET, b"/k", bytes(4096)))
        greedy = []
        for _ in range(2 * BOUND // MIB):
            greedy.append(self.client(receive_buffer=4096))
            greedy[-1].send(raw.request(raw.GET, b"/k") * 2000)
        self.client().add(b"/n")
        self.until(lambda: any("store_bytes_max" in line for line in self.lines))
        self.finish(suspects=greedy)

    def test_many_values_in_unread_replies(self):
        self.client().send(raw.request(raw.SET, b"/k", bytes(4097)))
        greedy = []
        for _ in range(BOUND // (2 * MIB)):
            greedy.append(self.client(receive_buffer=4096))
            with contextlib.suppress(ConnectionError):
                greedy[-1].send(raw.listed(raw.MULTI_GET, *[b"/k"] * 60_000))
        self.client().add(b"/n")
        # On a machine so slow that the requests take 10 s, the first ones are closed because they take nothing while
        # memory is scarce, and the bound is never reached.
        self.until(lambda: any("store_bytes_max" in line or "memory is scarce" in line for line in self.lines))
        self.finish(suspects=greedy)

    def test_clients_that_vanish_do_not_hide_an_offender(self):
        for _ in range(100):
            vanishing = self.client()
            vanishing.add(b"/n")
            vanishing.vanish()
        grow = [raw.request(raw.QUEUE_PUSH, b"/grows", bytes(MIB))] * (2 * BOUND // MIB)
        self.finish([self.refused(self.client(), grow)])

    def test_an_offender_that_comes_back_does_not_fill_the_log(self):
        """Each refusal is named or counted, without a further one."""
        grow = [raw.request(raw.QUEUE_PUSH, b"/grows", bytes(MIB))] * (2 * BOUND // MIB)
        offenders = [self.refused(self.client(), grow)]
        for _ in range(200):
            offenders.append(self.refused(self.client(), grow[:8]))  # the unfinished bytes of the first are free

        def reported():
            lines = list(self.lines)
            withheld = sum(int(line.split(" lines like")[0].split()[-1]) for line in lines if "withheld" in line)
            return withheld + sum("store_bytes_max" in line for line in lines)

        self.until(lambda: reported() >= len(offenders))
        self.assertEqual(reported(), len(offenders))
        self.assertLess(len(self.lines), len(offenders) // 2)
        self.finish(suspects=offenders)


class Stalled(Memory):
    """With a short limit: slow clients are disconnected, which frees their memory."""

    options = ("--stall-seconds", "2")

    def finish_when_named(self, offenders, reason):
        self.until(lambda: sum(reason in line for line in list(self.lines)) >= len(offenders))
        self.finish(offenders)

    def test_a_request_that_is_sent_too_slowly_is_not_waited_for(self):
        client = self.client()
        client.send(bytes([raw.SET]) + raw.blob(b"/k") + raw.number(8 * MIB) + bytes(MIB))
        self.assertTrue(client.is_closed())
        self.finish_when_named([client], "a second of the request that it has begun")

    def test_a_small_request_is_not_waited_for_forever_either(self):
        client = self.client()
        client.send(bytes([raw.SET]) + raw.blob(b"/k") + raw.number(1000) + bytes(10))
        self.assertTrue(client.is_closed())
        self.finish_when_named([client], "has not finished a request that it has begun")

    def test_unread_compare_set_replies(self):
        writer = self.client()
        for _ in range(BOUND // (16 * MIB)):
            writer.send(raw.request(raw.APPEND, b"/big", bytes(8 * MIB)))
        writer.add(b"/n")
        greedy = []
        for _ in range(9):
            greedy.append(self.client(receive_buffer=4096))
            greedy[-1].send(raw.request(raw.COMPARE_SET, b"/big", b"something else", b"") * 3)
            writer.add(b"/n")
        self.finish_when_named(greedy, "a second of the replies queued for it")

    def test_two_slow_readers_do_not_deny_large_replies(self):
        writer = self.client()
        for i in range(3):
            writer.send(raw.request(raw.SET, b"/big/%d" % i, bytes(8 * MIB)))
        writer.add(b"/n")
        keys = [b"/big/%d" % (i % 3) for i in range(12)]
        slow = [self.client(receive_buffer=4096) for _ in range(2)]
        for client in slow:
            client.send(raw.listed(raw.MULTI_GET, *keys))
        for _ in range(3):
            self.assertEqual(len(writer.get(b"/big/1")), 8 * MIB)
        self.finish_when_named(slow, "a second of the replies queued for it")


class OutOfMemory(Processes, unittest.TestCase):
    """A machine that has less memory than --store-bytes-max."""

    LIMIT = 1500 * MIB

    def setUp(self):
        self.log = tempfile.TemporaryFile(mode="w+", encoding="utf-8")
        self.addCleanup(self.log.close)
        self.server = self.start("serve", "--listen", "127.0.0.1:0", "--json", "--threads", "2", "--store-bytes-max",
                                 "1TiB", stderr=self.log,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (self.LIMIT,) * 2))
        self.port = json.loads(self.server.stdout.readline())["port"]

    def flood(self, message):
        """Sends it repeatedly, on new connections where the server disconnects, together with ordinary clients, some of
        which wait or vanish, and a node: all are served."""
        node = self.start("rendezvous", "--backend", "muster", "--endpoint", f"127.0.0.1:{self.port}", "--id", "run",
                          "--nodes", "1", "--hold", "600", "--conf", "is_host=false", stderr=subprocess.DEVNULL)
        self.assertTrue(node.stdout.readline())
        ordinary, greedy = raw.Client(self.port), raw.Client(self.port)
        ordinary.add(b"/gate")
        refusals = count = 0
        while refusals < 20:
            count += 1
            self.assertLess(count, 2000)
            waiting = raw.Client(self.port)
            waiting.send(raw.listed(raw.WAIT, b"/never"))
            waiting.add(b"/gate")
            try:
                greedy.send(message(count))
                greedy.add(b"/gate")
            except ConnectionError:
                refusals += 1
                greedy.close()
                greedy = raw.Client(self.port)
            waiting.vanish()
            self.assertGreater(ordinary.add(b"/gate"), count)
        self.assertIsNone(node.poll())
        eventually(lambda: "out of memory" in self.logged(), "the log has the line")
        ordinary.close()
        greedy.close()
        self.server.terminate()
        self.assertEqual(self.server.wait(60), 0)

    def logged(self):
        self.log.seek(0)
        return self.log.read()

    def test_large_values(self):
        self.flood(lambda i: raw.request(raw.SET, b"/big/%d" % i, bytes(8 * MIB)))

    def test_small_values(self):
        self.flood(lambda i: raw.multi_set([(b"/small/%d/%d" % (i, j), bytes(100)) for j in range(50_000)]))


for inherited in [name for name in dir(Memory) if name.startswith("test_")]:
    setattr(Stalled, inherited, None)  # running them once is enough

if __name__ == "__main__":
    assert MUSTER
    unittest.main()
