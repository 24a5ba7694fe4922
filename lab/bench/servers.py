"""Starts the servers that are compared, each in a process of its own, and ends them again.

Standard library only. Every server listens on 127.0.0.1, on a port that is free, and dies with this
process if it cannot be ended in order.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1


def lab_of(muster):
    """The program that measures: muster-lab, in the folder of this muster; older versions of muster measured
    themselves."""
    lab = pathlib.Path(muster).with_name("muster-lab")
    return str(lab if lab.exists() else muster)


class Missing(Exception):
    """There is no such server on this machine; the text says what is needed."""


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Server:
    """A running server: its address, its protocol, and the process whose CPU time counts."""

    protocol = "tcpstore"

    def __init__(self, name, command, **popen):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=_die_with_parent, **popen)
        try:
            self.port = self.await_port()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self):
        return self.process.pid

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def cpu_seconds(self):
        """CPU time that all its threads have used so far."""
        times = pathlib.Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    def await_port(self):
        raise NotImplementedError

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise Missing(f"{self.name} ended before it listened (status {self.process.wait()})")
        return line

    def close(self):
        self.process.stdin.close()  # PyTorch's server ends with its input;
        self.process.terminate()  # the others end on SIGTERM.
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Muster(Server):
    def __init__(self, program, threads):
        name = "muster, 1 thread" if threads == 1 else f"muster, {threads} threads"
        super().__init__(name, [program, "serve", "--listen", "127.0.0.1:0", "--json", "--threads",
                                str(threads)])
        self.threads = threads

    def await_port(self):
        return json.loads(self.line())["port"]


class Torch(Server):
    def __init__(self):
        python = os.environ.get("MUSTER_TORCH_PYTHON")
        if not python:
            raise Missing("MUSTER_TORCH_PYTHON does not name a Python that can import torch")
        # Its loop looks up the name of every client that connects. Where no name server answers, that would take 5 s
        # for each of them, and connecting is not what is compared.
        patience = {"RES_OPTIONS": "attempts:1 timeout:1"}
        super().__init__("PyTorch", [python, str(ROOT / "tests" / "compat" / "torch_server.py")],
                         env={**os.environ, **patience})

    def await_port(self):
        while True:
            line = self.line()
            if line.startswith("PORT="):
                return int(line.split("=")[1])


class Redis(Server):
    protocol = "redis"

    def __init__(self):
        program = shutil.which("redis-server")
        if program is None:
            raise Missing("there is no redis-server")
        self.folder = tempfile.TemporaryDirectory(prefix="muster-compare-")
        # Redis cannot listen on any free port, so it gets one that was free a moment ago.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.chosen = probe.getsockname()[1]
        try:
            super().__init__("Redis", [program, "--port", str(self.chosen), "--bind", "127.0.0.1", "--save", "",
                                       "--appendonly", "no", "--dir", self.folder.name, "--maxclients",
                                       "15000", "--logfile", ""])
        except BaseException:
            self.folder.cleanup()
            raise

    def await_port(self):
        while "eady to accept connections" not in self.line():
            pass
        return self.chosen

    def close(self):
        super().close()
        self.folder.cleanup()
