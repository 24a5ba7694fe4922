"""Workers that die or stand still under their launchers."""

import contextlib
import os
import signal

from torture.faults import Fault, together


def has_workers(fleet):
    return fleet.has_workers


class WorkerFault(Fault):
    """Strikes workers of some launchers: one of each, or all."""

    fits = staticmethod(has_workers)

    def __init__(self, *rest):
        super().__init__(*rest)
        self._victims = self.some_nodes()
        self._all = self.rng.random() < 0.3
        self._choice = self.rng.random()
        self._struck = []

    @property
    def _whose(self):
        return f"{'all workers' if self._all else 'a worker'} of {together(self._victims)}"

    def chosen(self):
        for victim in self._victims:
            pids = victim.worker_pids() if victim.alive else []
            if pids:
                yield victim, pids if self._all else [pids[int(self._choice * len(pids))]]


class KillWorkers(WorkerFault):
    """kill -9: each of their nodes spends a restart, and all begin again."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.label = f"kill -9 {self._whose}, watched for"

    def begin(self):
        for victim, pids in self.chosen():
            victim.strike_workers(pids, signal.SIGKILL)

    def heal(self):
        pass


class PauseWorkers(WorkerFault):
    """They stand still. No process is notified, and nothing follows from it."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.label = f"pause {self._whose}"

    def begin(self):
        for victim, pids in self.chosen():
            victim.strike_workers(pids, signal.SIGSTOP)
            self._struck += pids

    def heal(self):
        for pid in self._struck:
            with contextlib.suppress(ProcessLookupError):  # its agent may have ended it meanwhile
                os.kill(pid, signal.SIGCONT)
        self._struck = []
