"""Members of etcd that die, stand still or are cut off: one of them, mostly, sometimes all. Nodes have their places as
long as their leases; those are renewed by any two members."""

from torture.etcd_fleet import MEMBERS
from torture.faults import names, together
from torture.network_faults import Cut
from torture.process_faults import KillNodes, PauseNodes


class OfMembers:
    """To be mixed into a fault of nodes."""

    @classmethod
    def fits(cls, fleet):
        return fleet.run.store == "etcd" and not fleet.server.spared

    def some_nodes(self, among=None):
        del among
        count = self.rng.choice((1, 1, 1, 2, len(MEMBERS)))
        return sorted(self.rng.sample(self.fleet.members, count), key=lambda member: member.name)


class KillMembers(OfMembers, KillNodes):
    """They come back with what they knew."""


class PauseMembers(OfMembers, PauseNodes):
    """Also for longer than the others wait for their leader."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.silences = ()


class CutMembers(OfMembers, Cut):
    """From nodes, and from each other."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = self.some_nodes()
        self.touches, self.silences = names(self._victims), ()
        self.says = f"cut {together(self._victims)}"
