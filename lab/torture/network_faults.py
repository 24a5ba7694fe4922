"""Cables that are cut, pulled or bad. A server's cable is every node's."""

from torture.faults import Fault, has_network, may_strike_server, names, together
from torture.network import Condition

CUT, WHOLE = Condition(cut=True), Condition()


class CableFault(Fault):
    """Of some nodes, or of the server."""

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
        """Of what they send, and of what they hear."""
        raise NotImplementedError

    def begin(self):
        sends, hears = self.conditions()
        self._ends = [victim.machine.trouble(sends, hears) for victim in self._victims]

    def heal(self):
        for end in self._ends:
            end()
        self._ends = []


class Cut(CableFault):
    """Nothing comes through, either way."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.silences = () if self._victims == [self.fleet.server] else self.touches
        self.says = f"cut {together(self._victims)}"

    def conditions(self):
        return CUT, CUT


class CutOneWay(CableFault):
    """What they send comes through, what they should hear does not; or the other way round."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._deaf = self.rng.random() < 0.5
        self.says = f"cut {'towards' if self._deaf else 'from'} {together(self._victims)}"

    def conditions(self):
        return (WHOLE, CUT) if self._deaf else (CUT, WHOLE)


class BadCable(CableFault):
    """Packets are late, out of order, and some are lost."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._condition = Condition(delay_s=self.rng.uniform(0, 0.2), jitter_s=self.rng.uniform(0, 0.2),
                                    loss=self.rng.uniform(0, 0.25))
        condition = self._condition
        self.says = (f"bad cable of {together(self._victims)} (each way {1000 * condition.delay_s:.0f} to "
                     f"{1000 * (condition.delay_s + condition.jitter_s):.0f} ms, {100 * condition.loss:.0f} % lost)")

    def conditions(self):
        return self._condition, self._condition


class InterfaceDown(CableFault):
    """The machine itself has no network, and its processes are told so (no route) instead of waiting."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.silences = () if self._victims == [self.fleet.server] else self.touches
        self.says = f"interface down {together(self._victims)}"

    def begin(self):
        for victim in self._victims:
            victim.machine.interface_down()

    def heal(self):
        for victim in self._victims:
            victim.machine.interface_up()
