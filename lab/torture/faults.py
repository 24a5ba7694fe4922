"""What can be done to victims. Each fault draws whom it strikes, and how, when it is made; begins; and is healed."""


class Fault:
    """Its first sentence says what it is. Made for one strike on one fleet."""

    touches = ()  # names of those to whom no promise of time is kept meanwhile
    cable = False  # whether it is their network that suffers
    silences = ()  # names of nodes that the server cannot hear meanwhile
    says = ""  # for people: what, and whom

    def __init__(self, fleet, rng, lasts):
        self.fleet, self.rng, self.lasts = fleet, rng, lasts

    @classmethod
    def fits(cls, fleet):
        """Whether it makes sense there."""
        del fleet
        return True

    def begin(self):
        raise NotImplementedError

    def heal(self):
        raise NotImplementedError

    def some_nodes(self, among=None):
        """One of them, mostly; sometimes half."""
        among = among or self.fleet.nodes
        count = self.rng.choice((1, 1, 1, 2, 3, len(among) // 2))
        return sorted(self.rng.sample(among, min(max(1, count), len(among))), key=lambda node: node.name)

    def __str__(self):
        return f"{self.says} {self.lasts:.1f} s"


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
