"""Faults of victims. A fault draws its victims and its details when it is created; then it begins, and is healed."""


class Fault:
    """The first sentence of a class describes the fault. One object is for one strike on one fleet."""

    touches = ()  # names of processes to which no time limit applies meanwhile
    cable = False  # whether the network of these processes suffers
    silences = ()  # names of nodes from which the server receives nothing meanwhile
    label = ""  # for people: the fault and its victims

    def __init__(self, fleet, rng, lasts):
        self.fleet, self.rng, self.lasts = fleet, rng, lasts

    @classmethod
    def fits(cls, fleet):
        """Whether the fault makes sense in this fleet."""
        del fleet
        return True

    def begin(self):
        raise NotImplementedError

    def heal(self):
        raise NotImplementedError

    def some_nodes(self, among=None):
        """Mostly one of them, sometimes half."""
        among = among or self.fleet.nodes
        count = self.rng.choice((1, 1, 1, 2, 3, len(among) // 2))
        return sorted(self.rng.sample(among, min(max(1, count), len(among))), key=lambda node: node.name)

    def __str__(self):
        return f"{self.label} {self.lasts:.1f} s"


def names(victims):
    return tuple(victim.name for victim in victims)


def together(victims):
    return " ".join(names(victims))


def has_server(fleet):
    return fleet.server.wanted


def has_network(fleet):
    return has_server(fleet) or fleet.run.store == "etcd"


def may_strike_server(fleet):
    return fleet.server.wanted and not fleet.server.spared
