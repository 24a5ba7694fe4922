"""The processes of an episode whose nodes meet in etcd: a cluster of three members instead of a server."""

import dataclasses
import os
import shutil

from torture import promises
from torture.fleet import Fleet, Run
from torture.invariants import Rules
from torture.losses import stands_in
from torture.victims import Victim, await_end

MEMBERS = ("etcd-0", "etcd-1", "etcd-2")
CLIENTS, PEERS = 2379, 2380  # their ports


def missing():
    """The reason why there can be no such fleet here; empty if there can."""
    return "" if shutil.which("etcd") else "the program 'etcd' is missing"


def endpoint(network):
    return "etcd://" + ",".join(f"{network.machines[name].address}:{CLIENTS}" for name in MEMBERS)


@dataclasses.dataclass(frozen=True)
class EtcdRun(Run):
    @property
    def backend(self):
        return "etcd"

    @property
    def conf(self):
        return (f"keep_alive_interval={promises.ETCD_INTERVAL_S},keep_alive_max_attempt={promises.ETCD_ATTEMPTS},"
                f"close_timeout={promises.ETCD_CLOSE_S},rejoin_window={promises.REJOIN_S}")

    @property
    def recovery_s(self):
        return promises.ETCD_RECOVERY_S

    @property
    def settles_s(self):
        return promises.ETCD_SETTLED_S

    @property
    def rules(self):
        return Rules(self.min_nodes, self.max_nodes, in_etcd=True)


class Member(Victim):
    """A member of etcd. When it is restarted, it still has the data that it confirmed."""

    has_clock = False  # it reads the clock by its own system calls

    def __init__(self, name, network, *rest, **more):
        super().__init__(name, network.machines[name], *rest, **more)
        self._network = network

    def command(self):
        def peer(name):
            return f"http://{self._network.machines[name].address}:{PEERS}"
        client = f"http://{self.machine.address}:{CLIENTS}"
        return ("etcd", "--name", self.name, "--data-dir", os.path.join(self._folder, self.name),
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer(self.name), "--initial-advertise-peer-urls", peer(self.name),
                "--initial-cluster", ",".join(f"{name}={peer(name)}" for name in MEMBERS), "--unsafe-no-fsync")

    def measure(self):
        """Nothing is measured: etcd's resources are not under test."""


class EtcdFleet(Fleet):
    def __init__(self, run, muster, network, site, record, folder, rng):
        self.members = [Member(name, network, record, folder) for name in MEMBERS]
        super().__init__(run, muster, network, site, record, folder, rng)
        self.server.wanted = False

    @property
    def victims(self):
        return [*(member for member in self.members if member.wanted), *super().victims]

    def is_confirmed(self, number):
        """A node that is in no round may not have been started yet, or may have lost its lease. A leader does not know
        that before the lease has ended: the node itself does."""
        living = [(node, self.story().lives[node.name, node.life]) for node in self.nodes]
        return all(stands_in(events, float("inf")) == number or node.is_spare_of(number) for node, events in living)

    def newcomer_is_refused(self):
        """Nothing to check: the end is known only while nodes that received it are registered, and they leave at once."""
        return True

    def end(self):
        left = super().end()
        for member in self.members:
            member.wanted = False
            member.ask_to_end()
        return left + await_end(self.members, promises.END_S)

    def kill(self):
        super().kill()
        for member in self.members:
            member.wanted = False
            member.kill()
