"""Members of etcd that die, stand still or are cut off: mostly one of them, sometimes all. Nodes have their places as
long as their leases, and any two members renew these."""

from torture.etcd_fleet import MEMBERS
from torture.faults import names, together
from torture.network_faults import Cut
from torture.process_faults import KillNodes, PauseNodes


class OfMembers:
    """A mixin for faults of nodes: it strikes members of etcd instead."""

    @classmethod
    def fits(cls, fleet):
        return fleet.run.store == "etcd" and not fleet.server.spared

    def some_nodes(self, among=None):
        del among
        count = self.rng.choice((1, 1, 1, 2, len(MEMBERS)))
        return sorted(self.rng.sample(self.fleet.members, count), key=lambda member: member.name)


class KillMembers(OfMembers, KillNodes):
    """The members are restarted with their data."""


class PauseMembers(OfMembers, PauseNodes):
    """The pause may be longer than the others wait for their leader."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.silences = ()


class CutMembers(OfMembers, Cut):
    """Cut off from nodes, and from each other."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = self.some_nodes()
        self.touches, self.silences = names(self._victims), ()
        self.label = f"cut {together(self._victims)}"
