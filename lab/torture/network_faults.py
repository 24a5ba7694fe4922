"""Cables that are cut, down or bad. The cable of a server concerns every node."""

from torture.faults import Fault, has_network, may_strike_server, names, together
from torture.network import Condition

CUT, WHOLE = Condition(cut=True), Condition()


class CableFault(Fault):
    """A fault of the cables of some nodes, or of the server."""

    SERVER_SHARE = 0.2
    cable = True
    fits = staticmethod(has_network)  # nodes that meet in a file need no network

    def __init__(self, *rest):
        super().__init__(*rest)
        server = self.rng.random() < self.SERVER_SHARE and may_strike_server(self.fleet)
        self._victims = [self.fleet.server] if server else self.some_nodes()
        self.touches = names(self._victims)
        self._ends = []

    def conditions(self):
        """(what they send, what they receive)."""
        raise NotImplementedError

    def begin(self):
        sends, receives = self.conditions()
        self._ends = [victim.machine.trouble(sends, receives) for victim in self._victims]

    def heal(self):
        for end in self._ends:
            end()
        self._ends = []


class Cut(CableFault):
    """Nothing comes through, in either direction."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.silences = () if self._victims == [self.fleet.server] else self.touches
        self.label = f"cut {together(self._victims)}"

    def conditions(self):
        return CUT, CUT


class CutOneWay(CableFault):
    """What they send comes through and what they should receive does not, or the other way round."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._receives_nothing = self.rng.random() < 0.5
        self.label = f"cut {'towards' if self._receives_nothing else 'from'} {together(self._victims)}"

    def conditions(self):
        return (WHOLE, CUT) if self._receives_nothing else (CUT, WHOLE)


class BadCable(CableFault):
    """Packets are late, out of order, and some are lost."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._condition = Condition(delay_s=self.rng.uniform(0, 0.2), jitter_s=self.rng.uniform(0, 0.2),
                                    loss=self.rng.uniform(0, 0.25))
        condition = self._condition
        self.label = (f"bad cable of {together(self._victims)} (each way {1000 * condition.delay_s:.0f} to "
                     f"{1000 * (condition.delay_s + condition.jitter_s):.0f} ms, {100 * condition.loss:.0f} % lost)")

    def conditions(self):
        return self._condition, self._condition


class InterfaceDown(CableFault):
    """The machine itself has no network, and its processes get errors (no route) instead of waiting."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.silences = () if self._victims == [self.fleet.server] else self.touches
        self.label = f"interface down {together(self._victims)}"

    def begin(self):
        for victim in self._victims:
            victim.machine.interface_down()

    def heal(self):
        for victim in self._victims:
            victim.machine.interface_up()
