"""The processes of one episode: a server, nodes on machines of their own, and the supervisor that restarts them."""

import dataclasses
import json
import os
import subprocess
import time

from torture import promises
from torture.invariants import Rules, Story, one_round_of_all
from torture.victims import Node, Server, await_end

RESTART_S = 0.3  # the time in which a supervisor restarts a process


@dataclasses.dataclass(frozen=True)
class Run:
    """The options of an episode's nodes. `store`: muster (the coordinator), c10d, file (c10d without server), or etcd
    (etcd_fleet.py)."""
    id: str
    store: str
    nodes: int
    min_nodes: int
    max_nodes: int
    endpoint: str

    @property
    def backend(self):
        return "muster" if self.store == "muster" else "c10d"

    @property
    def conf(self):
        if self.store == "muster":
            return (f"is_host=false,grace={promises.GRACE_S},keep_alive_interval={promises.INTERVAL_S},"
                    f"keep_alive_max_attempt={promises.ATTEMPTS},rejoin_window={promises.REJOIN_S}")
        store = "store_type=file" if self.store == "file" else "is_host=false"
        return (f"{store},keep_alive_interval={promises.C10D_INTERVAL_S},"
                f"keep_alive_max_attempt={promises.C10D_ATTEMPTS},read_timeout={promises.C10D_READ_S}")

    @property
    def recovery_s(self):
        return promises.RECOVERY_S if self.store == "muster" else promises.C10D_RECOVERY_S

    @property
    def settles_s(self):
        """How long all nodes must have been in one round before one of them closes the rendezvous."""
        return 0.0

    @property
    def rules(self):
        return Rules(self.min_nodes, self.max_nodes, reports_losses=self.store == "muster")


class Fleet:
    has_workers = False

    def __init__(self, run, muster, network, site, record, folder, rng):
        self.run, self.record, self.site = run, record, site
        self._muster, self._network = muster, network
        self.stranger = network.machines["stranger"]
        self.server = Server(muster, os.path.join(site.disk.path, "port"), network.machines["server"], record, folder,
                             environment=site.clocks.environment("server"))
        self.closer = None  # the node that closes the rendezvous for all, if any
        self.nodes = self.make_nodes(rng, folder)
        if run.store == "file":
            self.server.wanted = False

    def make_nodes(self, rng, folder):
        closer = rng.randrange(self.run.nodes)
        nodes = [Node(number, self._muster, self.run, number == closer,
                      os.path.join(self.site.disk.path, f"events-{number}"), self._network.machines[f"node-{number}"],
                      self.record, folder, environment=self.site.clocks.environment(f"node-{number}"))
                 for number in range(self.run.nodes)]
        self.closer = nodes[closer]
        return nodes

    @property
    def victims(self):
        """The processes that are to be running."""
        return [victim for victim in (self.server, *self.nodes) if victim.wanted]

    def supervise(self):
        """Restarts processes that have ended. To be called often."""
        now = time.monotonic()
        for victim in self.victims:
            if victim.reap():
                victim.rests_until = max(victim.rests_until, now + RESTART_S)
            if not victim.alive and now >= victim.rests_until:
                victim.start()

    def wait(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.supervise()
            time.sleep(min(0.05, max(0, until - time.monotonic())))

    def story(self):
        return Story(self.record.events(), self.run.rules)

    # --- One round of all nodes

    def converge(self, check, steady_s=0.0):
        """Waits until all nodes are in one complete round, those above the maximum spares, and stay there for
        `steady_s`. Returns how long it took, or None: the time limit has passed. Calls `check` repeatedly."""
        began = checked = time.monotonic()
        since = None  # when they were first together
        while time.monotonic() - began < self.run.recovery_s:
            self.wait(0.1)
            now = time.monotonic()
            since = (since or now) if self._all_in_one_round() else None
            if since is not None and now - since >= steady_s:
                return since - began
            if now - checked > 1:
                check()
                checked = time.monotonic()
        return None

    def _all_in_one_round(self):
        return all(victim.alive for victim in self.victims) and self.is_in_place()

    def is_in_place(self):
        number = one_round_of_all(self.story(), [(node.name, node.life) for node in self.nodes])
        return number is not None and self.is_confirmed(number)

    def is_confirmed(self, number):
        """Whether nodes that are in no round are spares of it. (c10d and file have no spares.)"""
        return self.run.store != "muster" or self.server_reports_it(number)

    def server_reports_it(self, number):
        stands = self.status()
        if not stands or stands["phase"] != "complete" or stands["round"] != number or stands["waiting"]:
            return False
        # Names end in a random number.
        there = {member["node"].rpartition("_")[0] + "_" for role in ("participants", "spares") for member in stands[role]}
        return there == {node.node_name for node in self.nodes}

    def status(self):
        """The server's status of the run; None if it does not answer."""
        command = [*self.server.machine.inside(), self._muster, "status", "--server", self.run.endpoint, "--run",
                   self.run.id, "--json", "--timeout", "5"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return json.loads(done.stdout)["runs"][0] if done.returncode == 0 else None

    def measure(self):
        """Measures the resources of all processes, once the server has closed the attackers' connections. Truncates
        logs, as log rotation would."""
        self.site.disk.empty()
        if self.server.wanted:
            at_rest = [event.data["descriptors"] for event in self.story().lives["server", self.server.life]
                       if event.kind == "measured"]
            until = time.monotonic() + promises.SEEN_OFF_S
            while at_rest and self.server.descriptors() > at_rest[0] and time.monotonic() < until:
                self.wait(0.1)
        for victim in self.victims:
            victim.measure()

    # --- The end

    def close(self):
        """One node closes the rendezvous for all. None: it is not in a round now, and cannot. Otherwise whether all
        other nodes were notified in time."""
        self.closer.wanted = False
        self.closer.ask_to_end()
        await_end([self.closer], promises.END_S)
        if not any(event.kind == "closing" for event in self.story().lives[self.closer.name, self.closer.life]):
            return None
        others = [node for node in self.nodes if node is not self.closer]
        until = time.monotonic() + promises.CLOSED_S
        while time.monotonic() < until:
            for victim in self.victims:
                victim.reap()
            lives = self.story().lives
            if all(not node.alive or any(event.kind == "closed" for event in lives[node.name, node.life])
                   for node in others):
                return True
            time.sleep(0.05)
        return False

    def newcomer_is_refused(self):
        """A node that comes after the end: whether it is refused."""
        command = [word for word in self.closer.command() if word != "--close"]
        try:
            done = subprocess.run([*self.closer.machine.inside(), *command], stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=promises.CLOSED_S, check=False)
        except subprocess.TimeoutExpired:  # run() has killed it
            return False
        return done.returncode == 5

    def end(self):
        """Ends all processes with SIGTERM. Returns those that did not end."""
        for node in self.nodes:
            node.wanted = False
            node.ask_to_end()
        left = await_end(self.nodes, promises.END_S)
        self.server.wanted = False
        self.server.ask_to_end()
        return left + await_end([self.server], promises.END_S)

    def kill(self):
        for victim in (self.server, *self.nodes):
            victim.wanted = False
            victim.kill()
