"""Disks that are full, descriptors that are used up, clocks that jump, attackers at the port.

Victims of these faults keep their connections, and all promises hold for them. One exception: a node without
descriptors cannot reconnect before it has some."""

import sys

from torture import processes
from torture.faults import Fault, has_server, names, together


class FullDisk(Fault):
    """The disk for events and port files is full, and the store's disk where nodes meet in a file. A server that starts
    then reports that and ends."""

    def __init__(self, *rest):
        super().__init__(*rest)
        site = self.fleet.site
        self._disks = [site.disk, site.store_disk] if self.fleet.run.store == "file" else [site.disk]
        self.label = "full disk"

    def begin(self):
        for disk in self._disks:
            disk.fill()

    def heal(self):
        for disk in self._disks:
            disk.free()
        self.fleet.site.disk.empty()


class ClockJump(Fault):
    """The wall clock of some processes is wrong, and stays so. Nothing may depend on it."""

    OFFSETS_S = (-10 * 365 * 86400, -3600, -20, -2, 2, 20, 3600, 10 * 365 * 86400)

    @classmethod
    def fits(cls, fleet):
        return fleet.site.clocks.can_be_moved

    def __init__(self, *rest):
        super().__init__(*rest)
        victims = [victim for victim in self.fleet.victims if victim.has_clock]
        victims = self.rng.sample(victims, self.rng.randint(1, len(victims)))
        self._offsets = {victim.name: self.rng.choice(self.OFFSETS_S) for victim in victims}
        self.label = "clocks " + " ".join(f"{name}{offset:+d}s" for name, offset in sorted(self._offsets.items()))

    def begin(self):
        for name, offset in self._offsets.items():
            self.fleet.site.clocks.set(name, offset)

    def heal(self):
        for name in self._offsets:
            self.fleet.site.clocks.set(name, 0)  # which is another jump


class PortFault(Fault):
    """A foreign program uses the server's port."""

    WHAT = ""
    fits = staticmethod(has_server)

    def __init__(self, *rest):
        super().__init__(*rest)
        self._seed = self.rng.getrandbits(32)
        self._process = None
        self.label = f"{self.WHAT} to the server"

    def begin(self):
        server = self.fleet.server
        self._process = processes.start([*self.fleet.stranger.inside(), sys.executable, "-m", "torture.stranger",
                                         self.WHAT, server.machine.address, str(server.PORT), str(self._seed)])

    def heal(self):
        if self._process:
            processes.end(self._process)
            self._process = None


class Flood(PortFault):
    """As many connections, as fast as one process can open them."""

    WHAT = "flood"


class Garbage(PortFault):
    """Bytes that no client sends."""

    WHAT = "garbage"


class ServerDescriptors(PortFault):
    """Foreign connections take all descriptors that the server may have. Sessions continue; new clients have to retry.
    """

    WHAT = "hold"
    SPARE = 20

    def __init__(self, *rest):
        super().__init__(*rest)
        self._lift = None
        self.label = "no descriptors left for the server"

    def begin(self):
        if self.fleet.server.alive:
            self._lift = self.fleet.server.limit_descriptors(self.fleet.server.descriptors() + self.SPARE)
        super().begin()

    def heal(self):
        super().heal()
        if self._lift:
            self._lift()


class NodeDescriptors(Fault):
    """Nodes cannot open any more descriptors. (A launcher that cannot start its workers ends the job, and reports
    that.)"""

    @classmethod
    def fits(cls, fleet):
        return not fleet.has_workers

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = self.some_nodes()
        self.touches = names(self._victims)
        self.label = f"no descriptors left for {together(self._victims)}"
        self._lifts = []

    def begin(self):
        self._lifts = [victim.limit_descriptors(victim.descriptors()) for victim in self._victims if victim.alive]

    def heal(self):
        for lift in self._lifts:
            lift()
        self._lifts = []
