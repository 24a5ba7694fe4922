"""A real etcd on this machine, and nodes that meet in it. Not a test itself.

All processes are children of the test, and the kernel kills them if it dies first. All files lie in one folder."""

import collections
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from fleet_of_agents import PATIENCE, until
from needs import skip_or_fail
from ports import free_port
from processes import MUSTER

# A node that does not renew its lease for so long is declared lost. This is half of the default, so that the tests take
# half the time.
LEASE_S = 3
# etcd checks for expired leases twice a second; a leader is elected within some ten milliseconds.
NOTICED_S = LEASE_S + 1
LAST_CALL_S = 1  # the shortest
BUSY_S = 15  # what a machine may need in addition, under sanitizers and other tests

Line = collections.namedtuple("Line", "time text")
Event = collections.namedtuple("Event", "time kind data")


def missing():
    """The reason why there can be no etcd here; empty if there can."""
    for program in ("etcd", "etcdctl", "setpriv"):
        if not shutil.which(program):
            return f"the program '{program}' is missing"
    return ""


def child(command, **options):
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL, **options)


class Etcd:
    """A cluster; all members run when the constructor returns. `places`: prefixes for the commands of each member, and
    its address there."""

    COMMAND = ("--dial-timeout", "2s", "--command-timeout", "5s")

    def __init__(self, folder, places=(((), "127.0.0.1"),), from_where=()):
        self._folder, self._places, self._from_where = folder, places, from_where
        self._user = ()
        self._ports = [(free_port() if not place else 2379, free_port() if not place else 2380)
                       for place, _ in places]
        self._processes = [None] * len(places)
        for member in self.members:
            self.start(member)

    @property
    def members(self):
        return range(len(self._places))

    def address(self, member):
        return f"{self._places[member][1]}:{self._ports[member][0]}"

    @property
    def endpoint(self):
        return "etcd://" + ",".join(self.address(member) for member in self.members)

    def start(self, member):
        """Starts a member, or restarts it with its data."""
        place, _ = self._places[member]
        client = f"http://{self.address(member)}"
        command = [*place, "etcd", *self._identity(member), "--listen-client-urls", client,
                   "--advertise-client-urls", client, "--listen-peer-urls", self._peer(member), "--unsafe-no-fsync"]
        with open(self._log(member), "ab") as log:
            self._processes[member] = child(command, stdout=log, stderr=log)

    def _peer(self, member):
        return f"http://{self._places[member][1]}:{self._ports[member][1]}"

    def _identity(self, member):
        return ["--name", f"m{member}", "--data-dir", os.path.join(self._folder, f"m{member}"),
                "--initial-advertise-peer-urls", self._peer(member),
                "--initial-cluster", ",".join(f"m{number}={self._peer(number)}" for number in self.members)]

    def back_up(self):
        """Returns a file with all data of the cluster of one member."""
        file = os.path.join(self._folder, f"backup-{len(os.listdir(self._folder))}")
        done = self.control("snapshot", "save", file)
        if done.returncode != 0:
            raise AssertionError(f"etcdctl snapshot save: {done.stderr}")
        return file

    def restore(self, file, *more):
        """Ends the cluster of one member, and restarts it with the data of that file. `more`: flags of the restore."""
        self.kill(0)
        shutil.rmtree(os.path.join(self._folder, "m0"))
        subprocess.run(["etcdctl", "snapshot", "restore", file, *self._identity(0), *more], capture_output=True, text=True,
                       timeout=PATIENCE, check=True, env={**os.environ, "ETCDCTL_API": "3"})
        self.start(0)

    def _log(self, member):
        return os.path.join(self._folder, f"m{member}.log")

    def log(self, member):
        with open(self._log(member), encoding="utf-8", errors="replace") as file:
            return file.read()

    def await_health(self):
        until(lambda: self.control("endpoint", "health").returncode == 0,
              lambda: "etcd is well:\n" + "\n".join(self.log(member)[-2000:] for member in self.members))

    def kill(self, *members):
        """When this returns they are gone."""
        for member in members:
            self._processes[member].kill()
        for member in members:
            self._processes[member].wait()

    def end(self):
        self.kill(*self.members)

    def log_in(self, user):
        """From now on, control() uses this user ("name:password")."""
        self._user = ("--user", user)

    def control(self, *words, members=None):
        """The output of etcdctl for these members, by default all."""
        endpoints = ",".join(self.address(member) for member in (self.members if members is None else members))
        return subprocess.run([*self._from_where, "etcdctl", "--endpoints", endpoints, *self.COMMAND, *self._user, *words],
                              capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**os.environ, "ETCDCTL_API": "3"})

    def put(self, key, value):
        done = self.control("put", key, value)
        if done.returncode != 0:
            raise AssertionError(f"etcdctl put {key}: {done.stderr}")

    def get(self, key):
        """The value of the key; None: there is none, or no answer."""
        done = self.control("get", key, "--print-value-only")
        return done.stdout.rstrip("\n") or None

    def leader(self):
        """The member that leads the etcd cluster (not the rendezvous)."""
        def leads(member):
            done = self.control("endpoint", "status", "-w", "json", members=[member])
            if done.returncode != 0:
                return False
            status = json.loads(done.stdout)[0]["Status"]
            return status["header"]["member_id"] == status.get("leader")
        return until(lambda: [member for member in self.members if leads(member)], "one member of etcd leads")[0]


class Node:
    """`muster rendezvous --follow --journal`, and each line of its output with its time."""

    def __init__(self, command):
        self._lines = {"stdout": [], "stderr": []}
        self._ended = set()  # stdout, stderr or both
        self._changed = threading.Condition()
        self.process = child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._lines]
        for reader in self._readers:
            reader.start()

    def _read(self, name):
        with getattr(self.process, name) as stream:
            for text in stream:
                with self._changed:
                    self._lines[name].append(Line(time.monotonic(), text.rstrip("\n")))
                    self._changed.notify_all()
        with self._changed:
            self._ended.add(name)
            self._changed.notify_all()

    def lines(self, name):
        with self._changed:
            return list(self._lines[name])

    def _once(self, name, find, what):
        with self._changed:
            self._changed.wait_for(lambda: find() or name in self._ended, PATIENCE)
            found = find()
        if not found:
            raise AssertionError(f"{what}: node {self.pid} has ended, or {PATIENCE} s have passed; it printed {self._lines}")
        return found

    def error(self, pattern):
        """The first line with that on its standard error, as soon as it is there."""
        return self._once("stderr", lambda: next((line for line in self._lines["stderr"]
                                                  if re.search(pattern, line.text)), None), f"'{pattern}'")

    @property
    def name(self):
        """The name that other nodes see."""
        return self.event(lambda event: event.kind == "joining", "it is about to join").data["node"]

    @property
    def events(self):
        return [self._event(line) for line in self.lines("stdout")]

    @staticmethod
    def _event(line):
        data = json.loads(line.text)
        return Event(line.time, data.pop("event"), data)

    def event(self, is_it, what, after=0):
        """The first matching event, not counting the first `after`, as soon as it is there."""
        def find():
            return next((event for event in map(self._event, self._lines["stdout"][after:]) if is_it(event)), None)
        return self._once("stdout", find, what)

    def round(self, after=-1, size=None):
        """The first later round of that size, as soon as it is there."""
        return self.event(lambda event: event.kind == "round" and event.data["round"] > after
                          and size in (None, event.data["world_size"]), f"a round after {after} of {size or 'any'}")

    def send(self, number):
        self.process.send_signal(number)

    def outcome(self):
        """Its status and its standard error, once it has ended."""
        status = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        return status, "\n".join(line.text for line in self.lines("stderr"))

    def kill(self):
        """When this returns it is gone, and nothing was notified."""
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()


class OnEtcd(unittest.TestCase):
    """Nodes in one etcd, each test with a run of its own. Their reports must never contradict each other."""

    ADDRESS = "127.0.0.1"  # of the nodes
    PLACE = ()  # a prefix for their commands
    CONF = f"keep_alive_max_attempt={LEASE_S},rejoin_window=0"

    @classmethod
    def setUpClass(cls):
        skip_or_fail(missing(), "MUSTER_REQUIRE_ETCD")
        folder = tempfile.mkdtemp(prefix="muster-etcd-")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.etcd = cls.make_etcd(folder)
        cls.addClassCleanup(cls.etcd.end)
        cls.etcd.await_health()

    @classmethod
    def make_etcd(cls, folder):
        return Etcd(folder)

    def setUp(self):
        self.run_id = self.id().rpartition(".")[2]
        self.nodes = []

    def tearDown(self):
        self.assert_no_contradiction()

    def key(self, name, run=None):
        return f"/muster/{run or self.run_id}/{name}"

    def node(self, *arguments, nodes, run=None, conf="", endpoint=None, follow=True):
        """A node that stays until the end of the test and joins every round. Not `follow`: it stays in its first round.
        """
        run = run or self.run_id
        conf = ",".join(part for part in (self.CONF, conf) if part)
        command = [*self.PLACE, MUSTER, "rendezvous", "--backend", "etcd", "--endpoint", endpoint or self.etcd.endpoint,
                   "--id", run, "--nodes", nodes, "--hold", "600", "--journal", "--local-addr", self.ADDRESS, *(("--follow",) if follow else ()),
                   *(() if "--last-call" in arguments else ("--last-call", str(LAST_CALL_S))),
                   *(("--conf", conf) if conf else ()), *arguments]
        node = Node(command)
        self.nodes.append(node)
        self.addCleanup(node.kill)
        return node

    def leader_among(self, nodes, run=None):
        """The node that leads the rendezvous, once there is one. It is started first, and the others later."""
        def find():
            value = self.etcd.get(self.key("leader", run)) or ""
            return [node for node in nodes if f'"{node.name}"' in value]
        leader = until(find, "one of the nodes leads")[0]
        return leader, [node for node in nodes if node is not leader]

    def agree(self, *nodes, after=-1):
        """All of them, and no others, are in a round after that. Returns its number, and when the last one joined."""
        reports = [node.round(after, len(nodes)) for node in nodes]
        self.assertEqual(len({report.data["round"] for report in reports}), 1, reports)
        self.assertEqual(sorted(report.data["rank"] for report in reports), list(range(len(nodes))), reports)
        return reports[0].data["round"], max(report.time for report in reports)

    def assert_no_contradiction(self):
        """No rank occurs twice; the members of a round agree on it; rounds only grow; no node is in a round that it did
        not join."""
        reported = collections.defaultdict(list)
        for node in self.nodes:
            last, joins = -1, False
            for event in node.events:
                if event.kind == "round":
                    self.assertTrue(joins, node.events)
                    self.assertGreater(event.data["round"], last, node.events)
                    last = event.data["round"]
                    reported[event.data["store_prefix"]].append(event.data)
                joins = event.kind == "joining"
        for where, reports in reported.items():
            ranks = [report["rank"] for report in reports]
            self.assertEqual(len(ranks), len(set(ranks)), f"{where}: {reports}")
            self.assertEqual(len({(report["world_size"], report["master_addr"], report["master_port"])
                                  for report in reports}), 1, f"{where}: {reports}")

    def assert_quiet(self, *nodes, since):
        """They have printed nothing since then (the number of events of each). The round continues."""
        for node, count in zip(nodes, since):
            self.assertEqual(node.events[count:], [], node.lines("stderr"))

    @staticmethod
    def report(text):
        print(f"\n    {text}", flush=True)
