"""Launchers (`muster run`) as nodes of one job on this machine, with workers that take orders.

Every process of a job has a unique variable in its environment, so that /proc shows what is left of it."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from ports import free_port
from processes import MUSTER

PATIENCE = 60  # for what must happen, on a busy machine
SOON = 15  # for what must be gone
TOKEN = "MUSTER_TEST_JOB"
# Variables that a user may have set, and that a launcher would read.
FOREIGN = ("PET_", "TORCH", "CUDA_", "OMP_", "MUSTER_AGENT", "PYTHON_EXEC", "LOGLEVEL")
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "obedient_worker.py")
# Short, so that a test does not wait long for a loss to be noticed.
QUICK = {"keep_alive_interval": "0.2", "keep_alive_max_attempt": "5", "grace": "0.2", "last_call_timeout": "1",
         "rejoin_window": "0.5", "join_timeout": "60", "contact_timeout": "3"}
# For c10d: whole seconds; nodes notice changes only by checking.
QUICK_C10D = {"keep_alive_interval": "1", "keep_alive_max_attempt": "3", "last_call_timeout": "1", "join_timeout": "60",
              "read_timeout": "20", "contact_timeout": "3"}

# Workers die of many signals, and core files would be useless.
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def until(condition, what, patience=PATIENCE):
    """Waits until `condition` returns something, and returns it."""
    give_up = time.monotonic() + patience
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {patience} s: {what() if callable(what) else what}")
        time.sleep(0.01)


def state_of(pid):
    """The state, as in ps; None: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def lives(pid):
    return state_of(pid) not in (None, "Z", "X")


def is_stopped(pid):
    return state_of(pid) == "T"


class Worker:
    """A worker, as it reported itself."""

    def __init__(self, folder, account):
        self._folder = folder
        self.pid, self.parent, self.at = account["pid"], account["parent"], account["at"]
        self.group, self.session = account["group"], account["session"]
        self.children, self.dispositions = account["children"], account["dispositions"]
        self.environment = account["environment"]

    def __getitem__(self, name):
        return self.environment[name]

    @property
    def rank(self):
        return int(self["RANK"])

    @property
    def master(self):
        return f"{self['MASTER_ADDR']}:{self['MASTER_PORT']}"

    @property
    def restarts(self):
        return int(self["TORCHELASTIC_RESTART_COUNT"])

    def order(self, text):
        path = os.path.join(self._folder, f"order.{self.pid}")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.rename(path + ".new", path)

    def signals(self):
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(self._folder, f"signals.{self.pid}"), encoding="utf-8") as file:
                return file.read().splitlines()
        return []

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)

    @property
    def lives(self):
        return lives(self.pid)


class Agent:
    """A launcher and its output."""

    def __init__(self, process, folder, errors):
        self.process, self.folder, self._errors = process, folder, errors

    @property
    def pid(self):
        return self.process.pid

    @property
    def ended(self):
        return self.process.poll() is not None

    def printed(self):
        with open(self._errors, encoding="utf-8", errors="replace") as file:
            return file.read()

    def await_output(self, pattern, patience=PATIENCE):
        """Waits until its output matches; returns the match."""
        return until(lambda: re.search(pattern, self.printed()),
                     lambda: f"'{pattern}'; {self.pid} ({self.process.poll()}) printed:\n{self.printed()}", patience)

    def round(self):
        """Number and size, in nodes, of the last round that formed, from its output; None: none has."""
        formed = re.findall(r"round (\d+): (\d+) nodes?, \d+ workers?, formed", self.printed())
        return (int(formed[-1][0]), int(formed[-1][1])) if formed else None

    def send(self, number):
        self.process.send_signal(number)

    def end(self, patience=PATIENCE):
        """Its status, once it has ended."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.pid} has not ended within {patience} s; it printed:\n{self.printed()}") from None

    def all_workers(self):
        """In the order of their reports."""
        accounts = []
        for name in os.listdir(self.folder):
            if re.fullmatch(r"worker\.\d+\.json", name):
                with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                    accounts.append(json.load(file))
        return [Worker(self.folder, account) for account in sorted(accounts, key=lambda one: one["at"])]

    def workers(self, count=1, but=()):
        """`count` of them, by local rank, once they are there and alive; not those in `but`."""
        others = {worker.pid for worker in but}

        def there():
            living = [one for one in self.all_workers() if one.pid not in others and one.lives]
            return living if len(living) == count else None
        found = until(there, lambda: f"{count} workers of {self.pid} ({self.process.poll()}), which printed:\n{self.printed()}")
        return sorted(found, key=lambda worker: int(worker["LOCAL_RANK"]))

    def worker(self, but=()):
        return self.workers(1, but)[0]

    def order(self, text):
        """To all workers, including later ones."""
        path = os.path.join(self.folder, "order.all")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.rename(path + ".new", path)


class Fleet(unittest.TestCase):
    """Starts agents and servers, and checks that nothing of them is left."""

    BACKEND = "muster"
    CONF = QUICK

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="muster-fleet-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.token = uuid.uuid4().hex
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
        self.environment |= {TOKEN: self.token, "TMPDIR": self.folder, "OMP_NUM_THREADS": "1"}
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.agents = []
        self.addCleanup(self.end_all)

    def end_all(self):
        """Also after a failed test. Launchers first: their guardians end what they leave behind."""
        for agent in self.agents:
            if not agent.ended:
                agent.process.kill()
            agent.process.wait()
        give_up = time.monotonic() + SOON
        while self.left() and time.monotonic() < give_up:
            time.sleep(0.02)
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # --- Processes of the job

    def left(self):
        """Pids of all living processes with the job's variable."""
        mark = f"{TOKEN}={self.token}".encode()
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/environ", "rb") as file:
                    carries = mark in file.read().split(b"\0")
                if carries and lives(name):
                    found.append(int(name))
        return found

    def describe(self, pids):
        printed = []
        for pid in pids:
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    printed.append(f"{pid} {state_of(pid)} {file.read().replace(bytes(1), b' ').decode(errors='replace')}")
        return "\n".join(printed)

    def assert_nothing_left(self, but=(), patience=SOON):
        """No other process of the job is alive, guardians included."""
        but = {one.pid for one in but}

        def gone():
            for agent in self.agents:
                agent.process.poll()
            return not set(self.left()) - but
        until(gone, lambda: "gone: " + self.describe(set(self.left()) - but), patience)

    # --- Starting

    def agent(self, *options, words=(), nodes="1", host=None, conf=(), environment=(), wrapper=(), worker=None, **more):
        """`host`: whether it serves the rendezvous; by default the first one does."""
        settings = {**self.CONF, **dict(conf)}
        if host is not None:
            settings["is_host"] = "true" if host else "false"
        number = len(self.agents)
        folder = os.path.join(self.folder, f"agent-{number}")
        os.makedirs(folder)
        errors = os.path.join(folder, "stderr")
        where = () if self.BACKEND is None else (
            "--rdzv-backend", self.BACKEND, "--rdzv-endpoint", self.endpoint, "--rdzv-id", "job", "--rdzv-conf",
            ",".join(f"{key}={value}" for key, value in settings.items()), "--local-addr", "127.0.0.1")
        worker = worker or (sys.executable, "-I", "-S", WORKER, folder, *words)
        command = [*wrapper, MUSTER, "run", "--nnodes", nodes, *where, *options, "--no-python", *worker]
        with open(errors, "wb") as stderr:
            streams = {"stdin": subprocess.DEVNULL, "stdout": stderr, "stderr": stderr}
            process = subprocess.Popen(command, env={**self.environment, **dict(environment)}, **{**streams, **more})
        self.agents.append(Agent(process, folder, errors))
        return self.agents[-1]

    def serve(self, wait=True, options=()):
        """A separate server, at the endpoint."""
        folder = os.path.join(self.folder, f"agent-{len(self.agents)}")
        os.makedirs(folder)
        errors = os.path.join(folder, "stderr")
        with open(errors, "wb") as stderr:
            process = subprocess.Popen([MUSTER, "serve", "--listen", self.endpoint, *options], env=self.environment,
                                       stdout=stderr, stderr=stderr, stdin=subprocess.DEVNULL)
        server = Agent(process, folder, errors)
        self.agents.append(server)
        if wait:
            server.await_output("serving on")
        return server

    # --- Checks

    def store(self, server, *operation):
        """The output of `muster store --json`."""
        done = subprocess.run([MUSTER, "store", "--server", server, "--json", *operation], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def prefix_of(self, round_number):
        """The prefix of the keys of a round of the job, on a muster server that coordinates it."""
        done = subprocess.run([MUSTER, "status", "--server", self.endpoint, "--run", "job", "--json"],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        (run,) = json.loads(done.stdout)["runs"]
        return f"muster.run/{run['generation']}/{round_number}/"

    def one_world(self, *agents, after=-1):
        """Waits until they, and no others, are in a later round; returns their workers."""
        def there():
            rounds = {agent.round() for agent in agents}
            if len(rounds) != 1 or None in rounds:
                return None
            number, size = rounds.pop()
            if number <= after or size != len(agents):
                return None
            living = [[one for one in agent.all_workers() if one.lives] for agent in agents]
            found = [workers[0] for workers in living if len(workers) == 1]
            stays = all(agent.round() == (number, size) for agent in agents)
            return found if stays and len(found) == len(agents) else None
        return until(there, lambda: "one world:\n" + "\n---\n".join(agent.printed() for agent in agents))

    def assert_ends(self, status, *agents, patience=PATIENCE):
        for agent in agents:
            self.assertEqual(agent.end(patience), status, agent.printed())
