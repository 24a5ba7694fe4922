#!/usr/bin/env python3
"""The five ways of docs/internals/architecture.md, confirmed by a debugger: in a real run the listed functions are
called in the listed order, few rooms appear on the stacks between them, and no room calls back to a room above it."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from etcd_nodes import Etcd
from etcd_nodes import missing as etcd_missing
from fleet_of_agents import until
from needs import skip_or_fail
from ports import free_port
from processes import MUSTER, Processes

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "tools"))
import documents  # noqa: E402
import tidy  # noqa: E402

ARCHITECTURE = ROOT / "docs" / "internals" / "architecture.md"
PATIENCE_S = 120
# Every room uses these two. os also calls every room, through its ports: a loop calls what waits for its sockets.
BELOW_ALL = {"os", "base"}


class Step:
    """A line of a way: a function, and the process that calls it ("node" or "server"; "" if there is one process)."""

    def __init__(self, process, file, function):
        self.process, self.file, self.function = process, file, function
        self._name = re.compile(rf"\b{re.escape(function)}\(")

    def __str__(self):
        return f"{self.file}: {self.function}()"

    def is_frame(self, frame):
        function, file = frame
        return file.endswith(f"src/{self.file}") and self._name.search(function) is not None


def ways():
    """The steps of each way, by its heading."""
    found, way, process, inside = {}, None, "", False
    for _, line in documents.Document(ROOT, ARCHITECTURE).text_lines():
        if line.startswith("## "):
            inside = line == "## The five ways"
        if not inside:
            continue
        if line.startswith("### "):
            way, process = line.removeprefix("### "), ""
            found[way] = []
        # "In the server:", "The node calls, ... In the node:"
        named = re.search(r"\bIn the (\w+)(?: again)?:$", line)
        if named:
            process = named[1]
        step = documents.STEP.match(line)
        if step:
            found[way].append(Step(process, *step.groups()))
    return found


def room(frame):
    """The room of the frame's file; None for what is not part of the product."""
    for folder in re.findall(r"(?:^|/)src(?=/(\w+)/)", frame[1]):
        if folder in tidy.ARROWS:
            return folder
    return None


def no_debugger():
    """The reason why gdb cannot be used here; empty if it can."""
    if not shutil.which("gdb"):
        return "the program 'gdb' is missing"
    tried = subprocess.run(["gdb", "-nx", "-batch", "-ex", "run", "--args", "true"], capture_output=True, text=True)
    return "" if "exited normally" in tried.stdout else f"gdb cannot run programs: {tried.stderr.strip()}"


class Rules:
    """What must be true of the hits of a way. A mixin for a TestCase."""

    def confirm(self, steps, hits):
        """The hits of all processes show the way."""
        self.assert_order(steps, sorted(hits, key=lambda hit: hit[0]))
        rooms = {step.process: set() for step in steps}
        for _, step, frames in hits:
            self.assert_no_call_back(step, frames)
            of_process = [other for other in steps if other.process == step.process]
            rooms[step.process] |= self.rooms_between(of_process, frames)
        for process, visited in rooms.items():
            self.assertLessEqual(len(visited), documents.ROOMS_MAX, f"{process}: {sorted(visited)}")

    def assert_order(self, steps, hits):
        left = list(steps)
        for _, step, _ in hits:
            if left and step is left[0]:
                del left[0]
        if left:
            before = steps[len(steps) - len(left) - 1] if len(left) < len(steps) else "the start"
            self.fail(f"after {before} there was no call of {left[0]}; all calls:\n  " +
                      "\n  ".join(str(step) for _, step, _ in hits))

    @staticmethod
    def rooms_between(steps, frames):
        """The rooms on the stack, from its outermost step on."""
        outermost = max(index for index, frame in enumerate(frames)
                        if index == 0 or any(step.is_frame(frame) for step in steps))
        return {room(frame) for frame in frames[:outermost + 1]} - BELOW_ALL - {None}

    def assert_no_call_back(self, step, frames):
        calls = [(frame, room(frame)) for frame in reversed(frames) if room(frame) not in BELOW_ALL | {None}]
        for (caller, below), (callee, above) in zip(calls, calls[1:]):
            self.assertNotIn(below, tidy.ARROWS[above],
                             f"{step}: {caller[0]} in {below} calls back {callee[0]} in {above}")


class TheRules(Rules, unittest.TestCase):
    """They find what they are there for."""

    STEPS = [Step("", "server/a.cc", "A::Read"), Step("", "store/b.cc", "B::Set"), Step("", "server/a.cc", "A::Send")]
    CALLS = {"Read": ["muster::A::Read(int)", "../../src/server/a.cc"],
             "Set": ["muster::B::Set()", "/x/src/store/b.cc"], "Send": ["muster::A::Send()", "src/server/a.cc"],
             "Run": ["muster::Loop::Run()", "src/os/uv/loop.cc"], "main": ["main", "src/cli/main.cc"],
             "std": ["std::invoke()", "/usr/include/c++/12/functional"]}

    def hits(self, *stacks):
        """Of stacks such as "main Read Set", outermost first."""
        for time, stack in enumerate(stacks):
            frames = [self.CALLS[name] for name in reversed(stack.split())]
            yield time, next(step for step in self.STEPS if step.is_frame(frames[0])), frames

    def broken(self, *stacks):
        with self.assertRaises(AssertionError) as raised:
            self.confirm(self.STEPS, list(self.hits(*stacks)))
        return str(raised.exception)

    def test_a_way_in_order(self):
        self.confirm(self.STEPS, list(self.hits("Run Read", "Run Read std Set", "main Run Send")))
        self.confirm(self.STEPS, list(self.hits("Send", "Read", "Read Set", "Set", "Read", "Send", "Read")))

    def test_a_function_that_is_not_called_in_its_turn(self):
        self.assertIn("after server/a.cc: A::Read() there was no call of store/b.cc: B::Set()",
                      self.broken("Read", "Send"))
        self.assertIn("after store/b.cc: B::Set() there was no call of server/a.cc: A::Send()",
                      self.broken("Send", "Read", "Read Set"))
        self.assertIn("after the start there was no call of server/a.cc: A::Read()", self.broken())

    def test_a_call_back_to_a_room_above(self):
        self.assertIn("muster::B::Set() in store calls back muster::A::Send() in server",
                      self.broken("Read", "Read Set", "Read Set std Send"))

    def test_a_way_through_too_many_rooms(self):
        for file in ("launch/c.cc", "rendezvous/d.cc", "etcd/e.cc"):
            self.assertLessEqual(len(self.rooms_between(self.STEPS, [self.CALLS["Set"], ["f()", f"src/{file}"],
                                                                     self.CALLS["Read"], self.CALLS["main"]])), 3)
        frames = [self.CALLS["Set"], ["f()", "src/launch/c.cc"], ["g()", "src/etcd/e.cc"], self.CALLS["Read"]]
        self.assertEqual(self.rooms_between(self.STEPS, frames), {"store", "launch", "etcd", "server"})


class Trace:
    """A process under gdb, and the hits of its steps."""

    def __init__(self, test, steps, *arguments):
        self.steps = steps
        self._output = pathlib.Path(test.folder, f"trace-{len(os.listdir(test.folder))}")
        self._log = self._output.with_suffix(".log")
        self._test = test
        environment = {**os.environ, "WAYS_FUNCTIONS": json.dumps([[step.file, step.function] for step in steps]),
                       "WAYS_OUTPUT": str(self._output)}
        with open(self._log, "wb") as log:
            # Reading the program's symbols takes most of the time; the first gdb leaves an index for the others.
            self._gdb = test.start("-nx", "-batch", "-iex", f"set index-cache directory {test.indexes}",
                                   "-iex", "set index-cache enabled on",
                                   "-x", pathlib.Path(__file__).parent / "ways_gdb.py", "--args", MUSTER, *arguments,
                                   program="gdb", env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid = until(self._pid, f"gdb starts {arguments}", PATIENCE_S)

    def _pid(self):
        if self._gdb.poll() is not None:
            self._test.fail(f"gdb has ended: {self._log.read_text()}")
        return next((entry["pid"] for entry in self._entries() if "pid" in entry), None)

    def _entries(self):
        if not self._output.exists():
            return []
        return [json.loads(line) for line in self._output.read_text(encoding="utf-8").splitlines(keepends=True)
                if line.endswith("\n")]

    def has_hit(self, step):
        return any(entry.get("step") == self.steps.index(step) for entry in self._entries())

    def await_end(self):
        """Waits for the end of the process; returns (time, step, frames) of each hit."""
        self._gdb.wait(PATIENCE_S)
        entries = self._entries()
        for entry in entries:
            if "missing" in entry:
                self._test.fail(f"the program has no {self.steps[entry['missing']]}, or no debug information")
        return [(entry["time"], self.steps[entry["step"]], entry["frames"]) for entry in entries if "step" in entry]

    def end(self):
        os.kill(self.pid, signal.SIGTERM)
        return self.await_end()


class Ways(Rules, Processes, unittest.TestCase):
    """One test for each way. Processes of another kind than the traced ones run without gdb."""

    @classmethod
    def setUpClass(cls):
        skip_or_fail(no_debugger(), "MUSTER_REQUIRE_GDB")
        cls.ways = ways()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.indexes = folder.name

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def way(self, heading):
        self.assertIn(heading, self.ways, "the architecture has no such way: it needs another run here")
        return self.ways[heading]

    def serve(self, steps):
        """A server under gdb, and its address."""
        port_file = pathlib.Path(self.folder, "port")
        server = Trace(self, steps, "serve", "--listen", "127.0.0.1:0", "--port-file", port_file)
        port = until(lambda: port_file.exists() and port_file.read_text().strip(), "the server has a port", PATIENCE_S)
        return server, f"127.0.0.1:{port}"

    def rendezvous(self, backend, endpoint, *options, nodes=1):
        return ("rendezvous", "--backend", backend, "--endpoint", endpoint, "--id", "way", "--nodes", str(nodes),
                "--hold", "0", "--local-addr", "127.0.0.1", *options)

    def test_set(self):
        steps = self.way("SET, from the socket to the key and back")
        server, address = self.serve(steps)
        client = self.start("store", "--server", address, "set", "key", "value")
        self.assertEqual(client.wait(PATIENCE_S), 0)
        self.confirm(steps, server.end())

    def test_next_rendezvous_on_muster(self):
        steps = self.way("NextRendezvous() on muster")
        server, address = self.serve([step for step in steps if step.process == "server"])
        node = Trace(self, [step for step in steps if step.process == "node"],
                     *self.rendezvous("muster", address, "--conf", "is_host=false"))
        self.confirm(steps, [*node.await_end(), *server.end()])

    def test_next_rendezvous_on_etcd(self):
        skip_or_fail(etcd_missing(), "MUSTER_REQUIRE_ETCD")
        etcd = Etcd(self.folder)
        self.addCleanup(etcd.end)
        steps = self.way("NextRendezvous() on etcd")
        of_leader = [step for step in steps if step.process == "leader"]
        leader = Trace(self, of_leader, *self.rendezvous("etcd", etcd.endpoint, nodes=2))
        until(lambda: any(leader.has_hit(step) for step in of_leader), "the first node leads", PATIENCE_S)
        node = Trace(self, [step for step in steps if step.process == "node"],
                     *self.rendezvous("etcd", etcd.endpoint, nodes=2))
        self.confirm(steps, [*node.await_end(), *leader.await_end()])

    def test_next_rendezvous_on_c10d(self):
        steps = self.way("NextRendezvous() on c10d")
        _, address = self.start_server()
        node = Trace(self, steps, *self.rendezvous("c10d", address, "--conf", "is_host=false"))
        self.confirm(steps, node.await_end())

    def test_muster_run(self):
        steps = self.way("muster run")
        launcher = Trace(self, steps, "run", "--nnodes", "1", "--rdzv-id", "way", "--rdzv-endpoint",
                         f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1", "--no-python", "true")
        self.confirm(steps, launcher.await_end())

    def test_every_way_is_confirmed(self):
        self.assertEqual(len(self.ways), 5)
        for heading, steps in self.ways.items():
            self.assertGreater(len(steps), 5, heading)


if __name__ == "__main__":
    unittest.main()
