"""A process that faults strike. Server and Node are here, Launcher in launchers.py. Every other kind derives from
Victim, and defines how it is started and how it may end."""

import json
import os
import resource
import signal
import subprocess
import threading
import time

from torture import processes, promises


class Victim:
    """One process at a time, through several lives. Used on the main thread."""

    has_clock = True  # whether it has a clock that can be changed

    def __init__(self, name, machine, record, folder, environment=()):
        self.name, self.machine = name, machine
        self.life = 0
        self.wanted = True  # whether it is restarted when it has ended
        self.rests_until = 0.0  # it is not restarted before this (time.monotonic)
        self._record, self._folder = record, folder
        self._environment = environment  # for clocks that can be changed
        self._process = None
        self._reader = None
        self._pauses = 0
        self._limits, self._limit_before = [], None  # limits of descriptors
        self._errors = None

    # --- What each kind of process defines

    def command(self):
        raise NotImplementedError

    def streams(self, stderr):
        """Where its output goes; `stderr` is a file of its own."""
        return {"stdout": subprocess.PIPE, "stderr": stderr, "text": True}

    def on_report(self, report, life):
        """Handles an object from its standard output, on a thread of its own."""
        self._record.add(self.name, life, report.pop("event", "report"), **report)

    def identity(self):
        """The name by which other nodes know it, once it has been started."""
        return {"pid": self.pid}

    def may_end(self, status, errors):
        """Whether it may end with this status by itself, under faults."""
        del status, errors
        return False

    # --- Its life

    def start(self):
        self.life += 1
        errors = os.path.join(self._folder, f"{self.name}.{self.life}.stderr")
        with open(errors, "wb") as stderr:
            self._process = processes.start([*self.machine.inside(), *self._environment, *self.command()],
                                            **self.streams(stderr))
        self._errors = errors
        self._pauses = 0
        self._limits = []
        self._record.add(self.name, self.life, "started", **self.identity())
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, self.life), daemon=True)
        self._reader.start()

    def _read(self, stream, life):
        self.read_objects(stream, life)

    def read_objects(self, lines, life):
        for line in lines:
            try:
                self.on_report(json.loads(line), life)
            except (ValueError, TypeError, AttributeError):  # no JSON, or no object
                self._record.add(self.name, life, "not_json", line=line)

    @property
    def pid(self):
        return self._process.pid

    @property
    def alive(self):
        return self._process is not None and self._process.poll() is None

    def reap(self):
        """To be called often: records the end of its process, once, and returns whether it has just ended."""
        if self._process is None or self._process.poll() is None:
            return False
        self._reader.join(promises.LOAD_S)
        with open(self._errors, encoding="utf-8", errors="replace") as lines:
            errors = lines.read()
        status = self._process.returncode
        self._record.add(self.name, self.life, "ended", status=status, may=self.may_end(status, errors),
                         last_words=errors[-300:])
        processes.forget_clock(self.pid)
        self._process.stdout.close()
        self._process = None
        return True

    def kill(self):
        """When this returns the process is gone, and nothing was notified."""
        if not self.alive:
            return
        self._record.add(self.name, self.life, "killed")
        self._process.kill()
        self._process.wait()
        self.reap()

    def ask_to_end(self):
        if self.alive:
            self._record.add(self.name, self.life, "signalled")
            self._process.send_signal(signal.SIGTERM)

    def pause(self):
        """It continues after as many resume() calls."""
        self._pauses += 1
        if self.alive:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._pauses = max(0, self._pauses - 1)
        if self.alive and self._pauses == 0:
            self._process.send_signal(signal.SIGCONT)

    # --- What it uses

    def measure(self):
        """Records its memory and descriptors."""
        if not self.alive:
            return
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[1])
        self._record.add(self.name, self.life, "measured", rss_bytes=pages * resource.getpagesize(),
                         descriptors=self.descriptors())

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def limit_descriptors(self, count):
        """Open descriptors stay open. Returns a function that removes the limit; the last one to be called does."""
        life, pid = self.life, self.pid
        if not self._limits:
            self._limit_before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        self._limits.append(count)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(self._limits), self._limit_before[1]))

        def lift():
            if not self.alive or self.life != life:
                return
            self._limits.remove(count)
            soft = min(self._limits, default=self._limit_before[0])
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, self._limit_before[1]))
        return lift


class Server(Victim):
    """`muster serve`. A restarted one has no data, and the same address."""

    PORT = 29400
    NO_PORT_FILE = "cannot write the port file"

    def __init__(self, muster, port_file, *rest, **more):
        super().__init__("server", *rest, **more)
        self._muster, self._port_file = muster, port_file
        self.spared = False  # whether it is exempt from faults

    def command(self):
        return (self._muster, "serve", "--listen", f"{self.machine.address}:{self.PORT}", "--json", "--port-file",
                self._port_file, "--handshake-seconds", str(promises.HANDSHAKE_S))

    def on_report(self, report, life):
        self._record.add(self.name, life, "up" if "port" in report else "report", **report)

    def may_end(self, status, errors):
        return status == 1 and self.NO_PORT_FILE in errors and "No space left" in errors


class Node(Victim):
    """`muster rendezvous`, which joins every round."""

    # On c10d a store that does not answer ends a node, as it ends PyTorch's agents: 3 timed out, 4 no server.
    C10D_MAY_END = (3, 4)

    def __init__(self, number, muster, run, closes, events_file, *rest, **more):
        super().__init__(f"node-{number}", *rest, **more)
        self._muster, self._run, self._closes, self._events_file = muster, run, closes, events_file

    def command(self):
        run = self._run
        close = ("--close",) if self._closes else ()
        return (self._muster, "rendezvous", "--backend", run.backend, "--endpoint", run.endpoint, "--id", run.id,
                "--nodes", f"{run.min_nodes}:{run.max_nodes}", "--last-call", str(promises.LAST_CALL_S), "--hold",
                "1000000", "--follow", "--json", "--journal", "--local-addr", self.machine.address, "--events",
                self._events_file, "--conf", run.conf, *close)

    @property
    def node_name(self):
        """The name that other nodes see, without the random number at its end."""
        return f"{self.machine.address}_{self.pid}_"

    def is_spare_of(self, number):
        with open(self._errors, encoding="utf-8", errors="replace") as lines:
            return last_is_a_spare_of(lines.read(), number)

    def identity(self):
        return {**super().identity(), "node": self.node_name}

    def may_end(self, status, errors):
        if status in (1, 4) and "too many open files" in errors.lower():
            return True  # it could not open its log, reach its round's store, or serve its workers, and reported it
        return self._run.backend == "c10d" and status in self.C10D_MAY_END


def last_is_a_spare_of(errors, number):
    """Whether a node waits as a spare of that round. It prints what it waits for whenever that changes."""
    return errors.rpartition("muster: ")[2].startswith(f"a spare: round {number} is full")


def await_end(victims, seconds):
    """Waits until all of them have ended, or the time is over. Returns those that are still alive."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(victim.alive for victim in victims):
        for victim in victims:
            victim.reap()
        time.sleep(0.02)
    for victim in victims:
        victim.reap()
    return [victim for victim in victims if victim.alive]
