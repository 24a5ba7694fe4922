"""What all processes reported, and what was done to them, in one order and on one clock (that of this process)."""

import dataclasses
import json
import threading
import time


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of `who`, in its life number `life` (a restarted process begins another one).

    Kinds that nodes report: joining, round, member_lost, nodes_waiting, place_lost, closed, left, closing. Kinds that
    launchers report: formed (a round), again (they leave it); their workers: worker. Kinds that the harness adds:
    orphan (a process is alive and its launcher is not), workers_killed, started, up (a server accepts), killed,
    signalled, ended, measured. With "world" as `who`: fault, begun (it is active on all its victims), healed, rest,
    and beat (how busy the machine is).
    """
    at: float
    who: str
    life: int
    kind: str
    data: dict = dataclasses.field(default_factory=dict)

    def __str__(self):
        return f"{self.at:9.3f}  {self.who:>8}.{self.life}  {self.kind:<13} {json.dumps(self.data)}"


class Record:
    """All events of an episode, also written to a file with a line for each. Any thread may add."""

    def __init__(self, path):
        self._began = time.monotonic()
        self._events = []
        self._lock = threading.Lock()
        self._file = open(path, "w", encoding="utf-8")  # closed by close()

    def now(self):
        return time.monotonic() - self._began

    def add(self, who, life, kind, /, **data):
        with self._lock:
            event = Event(self.now(), who, life, kind, data)
            self._events.append(event)
            self._file.write(json.dumps(dataclasses.asdict(event)) + "\n")
        return event

    def events(self):
        with self._lock:
            return list(self._events)

    def close(self):
        with self._lock:
            self._file.close()
