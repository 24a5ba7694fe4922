"""Processes that die, stand still, or leave."""

import time

from torture.faults import Fault, may_strike_server, names, together


class KillNodes(Fault):
    """They die without a message; other nodes come to their machines later."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = self.some_nodes()
        self.touches = names(self._victims)
        self.label = f"kill -9 {together(self._victims)}, back after"

    def begin(self):
        for victim in self._victims:
            victim.rests_until = time.monotonic() + self.lasts
            victim.kill()

    def heal(self):
        for victim in self._victims:
            victim.rests_until = 0.0


class KillServer(KillNodes):
    """It comes back at the same address, without its data."""

    fits = staticmethod(may_strike_server)

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = [self.fleet.server]
        self.touches = ("server",)
        self.label = "kill -9 server, back after"


class PauseNodes(Fault):
    """They stand still, and continue later."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = self.some_nodes()
        self.touches = self.silences = names(self._victims)
        self.label = f"pause {together(self._victims)}"
        self._paused = []

    def begin(self):
        for victim in self._victims:
            if victim.alive:
                victim.pause()
                self._paused.append((victim, victim.life))

    def heal(self):
        for victim, life in self._paused:
            if victim.life == life:
                victim.resume()


class PauseServer(PauseNodes):
    """The same for the server: no node may be declared lost because of its pause."""

    fits = staticmethod(may_strike_server)

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = [self.fleet.server]
        self.touches, self.silences = ("server",), ()
        self.label = "pause server"


class Leave(Fault):
    """Nodes leave in order (SIGTERM), and others come."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = self.some_nodes([node for node in self.fleet.nodes if node is not self.fleet.closer])
        self.touches = names(self._victims)
        self.label = f"leave {together(self._victims)}, back after"

    def begin(self):
        for victim in self._victims:
            victim.rests_until = time.monotonic() + self.lasts
            victim.ask_to_end()

    def heal(self):
        for victim in self._victims:
            victim.rests_until = 0.0
