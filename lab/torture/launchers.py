"""Launchers (`muster run`) as victims, with workers that are victims, too."""

import contextlib
import os
import re
import signal
import subprocess
import sys

from torture import processes, promises
from torture.victims import Victim

MARK = "MUSTER_TORTURE_AGENT"  # in the environment of a launcher and all its descendants: its name and its life
WORKER = os.path.join(processes.ROOT, "torture", "worker.py")
FORMED = re.compile(r"muster: round (\d+): (\d+) nodes?, (\d+) workers?, formed in (\d+) ms")
AGAIN = "muster: begins again: "


class Launcher(Victim):
    """The output of a launcher and of its workers is one stream, and therefore in the right order."""

    def __init__(self, number, muster, run, finish, words, workers, *rest, **more):
        super().__init__(f"agent-{number}", *rest, **more)
        self._muster, self._run, self._finish = muster, run, finish
        self._words, self.workers = words, workers
        self._round = None  # the round that formed last, in this life
        self._with_timeout = False

    def command(self):
        run = self._run
        worker = ("env", "-u", "LD_PRELOAD", sys.executable, "-I", "-S", WORKER, self._finish, *self._words)
        return ("env", f"{MARK}={self.mark}", f"TMPDIR={self._folder}", self._muster, "run", "--verbose",
                "--nnodes", f"{run.min_nodes}:{run.max_nodes}", "--nproc-per-node", str(self.workers), "--rdzv-endpoint",
                run.endpoint, "--rdzv-id", run.id, "--rdzv-conf", run.conf, "--local-addr", self.machine.address,
                "--max-restarts", "1000000", "--shutdown-timeout", str(promises.SHUTDOWN_S), "--no-python", *worker)

    @property
    def mark(self):
        return f"{self._folder}:{self.name}.{self.life}"

    @property
    def node_name(self):
        """The name that other nodes see, without the random number at its end."""
        return f"{self.machine.address}_{self.pid}_"

    def identity(self):
        return {**super().identity(), "node": self.node_name, "workers": self.workers}

    # --- What it reports

    def streams(self, stderr):
        del stderr
        return {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}

    def start(self):
        self._round = None
        self._with_timeout = False
        super().start()

    def _read(self, stream, life):
        with open(self._errors, "a", encoding="utf-8") as errors:
            def plain_lines():
                for line in stream:
                    if line.startswith("{"):
                        yield line
                    else:
                        errors.write(line)
                        errors.flush()
                        self._receive(line, life)
            self.read_objects(plain_lines(), life)

    def _receive(self, line, life):
        formed = FORMED.match(line)
        if formed:
            number, nodes, workers, took = map(int, formed.groups())
            self._round = number
            self._record.add(self.name, life, "formed", round=number, nodes=nodes, workers=workers, took_ms=took)
        elif line.startswith(AGAIN):
            self._record.add(self.name, life, "again", why=line[len(AGAIN):].strip())

    def on_report(self, report, life):
        super().on_report({**report, "round": self._round}, life)

    # --- How it may end

    def ask_to_end(self):
        self._with_timeout = self._with_timeout or self.alive
        super().ask_to_end()

    def may_end(self, status, errors):
        if self._with_timeout:
            return status == 1  # after a signal, status 0 would be wrong
        return status == 0 and os.path.exists(self._finish)

    # --- Its workers

    def processes(self):
        """pids of all processes of this life: the launcher, its workers, what these have started, the guardian."""
        return marked(self.mark)

    def worker_pids(self):
        """pids of workers that reported themselves in the last round, and live."""
        events = [event for event in self._record.events()
                if event.who == self.name and event.life == self.life and event.kind in ("worker", "formed")]
        formed = max((index for index, event in enumerate(events) if event.kind == "formed"), default=len(events))
        living = set(self.processes()) if self.alive else set()
        return [event.data["pid"] for event in events[formed + 1:] if event.data["pid"] in living]

    def strike_workers(self, pids, number):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL:
            self._record.add(self.name, self.life, "workers_killed", pids=pids)


def marked(mark):
    """pids of living processes with this mark; a mark that ends in a colon stands for all marks that begin with it."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as environ:
            entries = environ.read().split(b"\0")
            carries = (any(entry.startswith(wanted) for entry in entries) if mark.endswith(":") else wanted in entries)
            if carries and _lives(name):
                found.append(int(name))
    return found


def _lives(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
