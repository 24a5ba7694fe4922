#!/usr/bin/env python3
"""Failures of real processes, and what the others do then: nodes that die, stand still or lose their network, servers
that come back or come late, spares that take a place.

Networks are namespaces of this machine, joined by a cable of their own. Without permission for these the tests are
skipped.
"""

import atexit
import collections
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from needs import skip_or_fail

MUSTER = os.environ["MUSTER_BIN"]
PATIENCE = 60

# A node that is silent for so long is declared lost. It is short, because these tests wait for it, and long enough for
# a node on a busy machine.
INTERVAL_S, ATTEMPTS = 0.4, 3
WINDOW_MS = 1000 * INTERVAL_S * ATTEMPTS
# The loss is noticed within a tenth of the window. If other work delays the server for longer than this, it forgives
# all nodes that time, and does not count it.
NOISE_MS = 250
# From a death to the next round, without a last call.
PROMISE_S = 1
LAST_CALL_S = 1  # the shortest
BUSY_S = 8  # what a machine may need in addition, under sanitizers and other tests

Line = collections.namedtuple("Line", "time text")


class Process:
    """Keeps every line that a program prints, with its time."""

    def __init__(self, command):
        self.printed = {"stdout": [], "stderr": []}
        self._ended = set()  # stdout, stderr or both
        self._changed = threading.Condition()
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True)
        atexit.register(self.kill)  # whatever happens to the test
        self.pid = self._process.pid
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self.printed]
        for reader in self._readers:
            reader.start()

    def _read(self, name):
        with getattr(self._process, name) as stream:
            for text in stream:
                with self._changed:
                    self.printed[name].append(Line(time.monotonic(), text.rstrip("\n")))
                    self._changed.notify_all()
        with self._changed:
            self._ended.add(name)
            self._changed.notify_all()

    def line(self, name, is_it, what):
        """The first matching line, as soon as it is there."""
        def found():
            return next((line for line in self.printed[name] if is_it(line.text)), None)
        with self._changed:
            self._changed.wait_for(lambda: found() or name in self._ended, PATIENCE)
            line = found()
            if line is None:
                raise AssertionError(f"{what}: it has ended, or {PATIENCE} s have passed; it printed {self.printed}")
            return line

    def error(self, pattern):
        return self.line("stderr", lambda text: re.search(pattern, text), f"a line with '{pattern}'")

    def result(self, is_it=lambda result: True):
        """The time of the first matching result, and the result."""
        line = self.line("stdout", lambda text: is_it(json.loads(text)), "such a result")
        return line.time, json.loads(line.text)

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """When this returns it is gone, and nothing was notified."""
        atexit.unregister(self.kill)
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()


def rounds_above(number, world_size=None):
    return lambda result: result["round"] > number and world_size in (None, result["world_size"])


class Failures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, *arguments, place=()):
        process = Process([*place, MUSTER, *arguments])
        self.addCleanup(process.kill)
        return process

    def serve(self, listen="127.0.0.1:0", place=()):
        server = self.start("serve", "--listen", listen, "--json", "--quiet", place=place)
        _, reported = server.result()
        self.port = reported["port"]
        return server

    def free_port(self):
        """A port that was free a moment ago."""
        self.serve().kill()
        return self.port

    def node(self, *arguments, nodes, run="run", host="127.0.0.1", conf="is_host=false", last_call=LAST_CALL_S,
             place=()):
        """A node that stays until the end of the test and joins every round."""
        # Measured here is how soon nodes are notified, and not how long they are held back.
        conf = (f"keep_alive_interval={INTERVAL_S},keep_alive_max_attempt={ATTEMPTS},rejoin_window=0"
                + ("," + conf if conf else ""))
        return self.start("rendezvous", "--backend", "muster", "--endpoint", f"{host}:{self.port}", "--id", run,
                          "--nodes", nodes, "--last-call", str(last_call), "--hold", "600", "--follow", "--json",
                          "--conf", conf, *arguments, place=place)

    def run_status(self, host="127.0.0.1", place=()):
        done = subprocess.run([*place, MUSTER, "status", "--server", f"{host}:{self.port}", "--run", "run", "--json"],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        return json.loads(done.stdout)["runs"][0] if done.returncode == 0 else None

    def once(self, condition, **where):
        """The status of the run, as soon as the condition holds."""
        give_up = time.monotonic() + PATIENCE
        while True:
            stands = self.run_status(**where)
            if stands and condition(stands):
                return stands
            self.assertLess(time.monotonic(), give_up, f"not within {PATIENCE} s; it stands {stands}")
            time.sleep(0.01)

    def agree(self, *nodes, round=0):
        """All are in one round, with different ranks and one meeting place. Returns their results."""
        reported = [node.result(lambda result: result["round"] == round)[1] for node in nodes]
        self.assertEqual(sorted(one["rank"] for one in reported), list(range(len(nodes))), reported)
        self.assertEqual({one["world_size"] for one in reported}, {len(nodes)}, reported)
        self.assertEqual(len({(one["master_addr"], one["master_port"]) for one in reported}), 1, reported)
        return reported

    def later_round_of(self, *nodes, after=0):
        """Waits until all of them, and no others, are in a later round; there may be some in between. Returns when."""
        return max(node.result(rounds_above(after, len(nodes)))[0] for node in nodes)

    def report(self, text):
        print(f"\n    {text}", flush=True)


class Deaths(Failures):
    def three_of_four_survive(self):
        """Returns the surviving nodes, and how long after the death the last of them was in a new round."""
        self.serve()
        nodes = [self.node(nodes="3:4") for _ in range(4)]
        self.agree(*nodes)
        victim, *survivors = nodes
        victim.kill()
        died = time.monotonic()
        self.agree(*survivors, round=1)
        for node in survivors:
            node.error(rf"round 0 has lost 127\.0\.0\.1_{victim.pid}_\d+: its connection ended, and it did not come back")
        return survivors, max(node.result(rounds_above(0))[0] for node in survivors) - died

    def test_the_others_continue_without_a_killed_node(self):
        _, seconds = self.three_of_four_survive()
        printed = f"kill -9: the last survivor was in a new round after {seconds:.2f} s, {LAST_CALL_S} s of it last call"
        self.report(printed)
        self.assertLess(seconds, PROMISE_S + LAST_CALL_S + BUSY_S, printed)

    def test_the_round_after_a_death_stands(self):
        survivors, _ = self.three_of_four_survive()
        # The claim is about time: nothing happens any more.
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            stands = self.run_status()
            self.assertEqual((stands["round"], stands["phase"]), (1, "complete"), stands)
        for node in survivors:
            self.assertEqual(len(node.printed["stdout"]), 2, node.printed)

    def test_a_spare_takes_the_place_of_the_dead_without_a_last_call(self):
        self.serve()
        last_call_s = 60
        members = [self.node(nodes="1:2", last_call=last_call_s) for _ in range(2)]
        self.agree(*members)
        spare = self.node(nodes="1:2", last_call=last_call_s)
        spare.error("a spare: round 0 is full with 2 nodes")
        stands = self.once(lambda run: run["spares"])
        (only,) = stands["spares"]
        self.assertRegex(only["node"], rf"^127\.0\.0\.1_{spare.pid}_\d+$")
        victim, survivor = members
        victim.kill()
        died = time.monotonic()
        self.agree(survivor, spare, round=1)
        seconds = max(node.result(rounds_above(0))[0] for node in (survivor, spare)) - died
        printed = f"kill -9: the spare was in after {seconds:.2f} s"
        self.report(printed)
        self.assertLess(seconds, PROMISE_S + BUSY_S, printed)

    def test_a_node_that_stands_still_is_declared_lost_in_time_and_notices_it(self):
        self.serve()
        nodes = [self.node(nodes="2:3") for _ in range(3)]
        self.agree(*nodes)
        still, *others = nodes
        still.signal(signal.SIGSTOP)
        self.assert_given_up(f"127.0.0.1_{still.pid}_", others)
        self.later_round_of(*others)
        self.assertEqual(len(still.printed["stdout"]), 1, "it stands still")
        went_on = time.monotonic()
        still.signal(signal.SIGCONT)
        still.error("this node has lost its place in round 0: ")
        seconds = self.later_round_of(*nodes) - went_on
        self.report(f"SIGCONT: it was in a round again after {seconds:.2f} s")

    def assert_given_up(self, name, others):
        """All others are notified of it: not before the window has passed, and not long after."""
        for node in others:
            line = node.error(rf"round \d+ has lost {re.escape(name)}\d+: not heard of for \d+ ms").text
            silent_ms = int(re.search(r"for (\d+) ms", line).group(1))
            self.assertGreaterEqual(silent_ms, WINDOW_MS, line)
            self.assertLessEqual(silent_ms, 1.1 * WINDOW_MS + NOISE_MS, line)
        self.report(f"{line} (the window is {WINDOW_MS:.0f} ms)")


class Servers(Failures):
    def test_nodes_survive_the_death_of_the_server_and_count_on(self):
        server = self.serve()
        nodes = [self.node(nodes="2") for _ in range(2)]
        self.agree(*nodes)
        server.kill()
        self.serve(f"127.0.0.1:{self.port}")
        for node in nodes:
            node.error("this node has lost its place in round 0: ")
        self.later_round_of(*nodes)
        self.once(lambda run: run["phase"] == "complete" and run["round"] > 0)

    def test_a_node_that_comes_before_the_server_reports_it_and_waits(self):
        self.free_port()
        nodes = [self.node(nodes="2") for _ in range(2)]
        for node in nodes:
            node.error(rf"^muster: waiting for .* 'run' .*the server at 127\.0\.0\.1:{self.port} is out of reach "
                       r"\(.+\), trying again; gives up in \d+ s$")
        self.serve(f"127.0.0.1:{self.port}")
        self.agree(*nodes)

    def test_without_a_server_one_of_the_nodes_on_the_endpoints_machine_serves(self):
        self.free_port()
        files = [os.path.join(self.folder, f"events-{number}") for number in range(3)]
        nodes = [self.node("--events", file, nodes="3", host="localhost", conf="") for file in files]
        self.agree(*nodes)
        stands = self.run_status("localhost")
        self.assertEqual((stands["phase"], len(stands["participants"])), ("complete", 3))
        serving = [line for file in files for line in self.lines(file) if "serves the rendezvous" in line]
        self.assertEqual(len(serving), 1, serving)

    def test_a_node_serves_once_the_port_is_free_that_another_program_had(self):
        with socket.socket(socket.AF_INET6) as other:  # it has the port, and does not listen
            other.bind(("::", 0))
            self.port = other.getsockname()[1]
            nodes = [self.node(nodes="2", host="localhost", conf="") for _ in range(2)]
            for node in nodes:
                node.error(r"^muster: waiting for .* 'run' .*Connection refused; and it cannot be served here: "
                           rf".*port: {self.port}: .*Address already in use")
        self.agree(*nodes)

    @staticmethod
    def lines(path):
        with open(path, encoding="utf-8") as lines:
            return lines.readlines()


class Network:
    """Two namespaces as two machines, and a cable between them. Nothing outside them is touched."""

    NEAR, FAR = "198.18.0.1", "198.18.0.2"
    NUMBERS = itertools.count()

    def __init__(self):
        own = f"muster-{os.getpid()}-{next(self.NUMBERS)}"
        self.near, self.far = f"{own}-near", f"{own}-far"

    def build(self):
        atexit.register(self.remove)  # whatever happens to the test
        for name in (self.near, self.far):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        self.ip("-n", self.near, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", self.far)
        for name, address in ((self.near, self.NEAR), (self.far, self.FAR)):
            self.ip("-n", name, "address", "add", f"{address}/30", "dev", "cable")
            self.cable(name, "up")

    def cable(self, name, state):
        self.ip("-n", name, "link", "set", "cable", state)

    def remove(self):
        atexit.unregister(self.remove)
        for name in (self.near, self.far):
            with contextlib.suppress(AssertionError):  # not made yet, or removed already
                self.ip("netns", "delete", name)

    @staticmethod
    def ip(*words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            raise AssertionError(f"ip {' '.join(words)}: {done.stderr}")

    @staticmethod
    def inside(name):
        """A prefix for commands. It becomes the command, with the same process id."""
        return ("ip", "netns", "exec", name)

    @classmethod
    def missing(cls):
        """The reason why there can be no such network; empty if there can."""
        if os.geteuid() != 0:
            return "network namespaces need root"
        if not shutil.which("ip"):
            return "network namespaces need the program 'ip'"
        trial = cls()
        try:
            trial.build()
        except AssertionError as failure:
            return f"no network namespaces here: {failure}"
        finally:
            trial.remove()
        return ""


class Networks(Failures):
    @classmethod
    def setUpClass(cls):
        skip_or_fail(Network.missing(), "MUSTER_REQUIRE_NETWORKS")

    assert_given_up = Deaths.assert_given_up

    def setUp(self):
        super().setUp()
        self.network = Network()
        self.addCleanup(self.network.remove)
        self.network.build()
        self.near = self.network.inside(self.network.near)
        self.far = self.network.inside(self.network.far)

    def assert_workers_can_meet(self, reported):
        """Rank 0's store answers from both sides."""
        self.assertFalse(reported["master_addr"].startswith("127."), reported)
        for place in (self.near, self.far):
            done = subprocess.run([*place, MUSTER, "store", "--server", f"{reported['master_addr']}:{reported['master_port']}",
                                   "ping"], capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, f"from {place[-1]}: {reported}: {done.stderr}")

    def test_a_machine_without_network_is_declared_lost_and_comes_back(self):
        self.serve(f"{self.network.NEAR}:0", place=self.near)
        at = {"host": self.network.NEAR, "nodes": "2:3"}
        here = [self.node(place=self.near, **at) for _ in range(2)]
        there = self.node(place=self.far, **at)
        self.assert_workers_can_meet(self.agree(*here, there)[0])
        self.network.cable(self.network.far, "down")
        self.assert_given_up(f"{self.network.FAR}_{there.pid}_", here)
        self.later_round_of(*here)
        self.network.cable(self.network.far, "up")
        there.error("this node has lost its place in round 0: ")
        self.later_round_of(*here, there)
        self.once(lambda run: run["phase"] == "complete" and len(run["participants"]) == 3, host=self.network.NEAR,
                  place=self.near)
        _, reported = there.result(rounds_above(0, 3))
        self.assert_workers_can_meet(reported)

    def test_a_node_that_connects_through_loopback_can_be_reached_from_elsewhere(self):
        self.serve(":0", place=self.near)
        for first in ("here", "there"):
            with self.subTest(rank_0=first):
                label = {"here": "b", "there": "b", first: "a"}
                conf = "is_host=false,rank_policy=label,label="
                here = self.node(run=first, nodes="2", conf=conf + label["here"], place=self.near)
                there = self.node(run=first, nodes="2", host=self.network.NEAR, conf=conf + label["there"],
                                  place=self.far)
                reported = dict(zip(("here", "there"), self.agree(here, there)))
                self.assertEqual(reported[first]["rank"], 0, reported)
                self.assert_workers_can_meet(reported["here"])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no process stays behind
    unittest.main()
