"""Servers for the tests that use PyTorch: `muster serve`, a real etcd. Not a test itself."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

import muster

PATIENCE_S = 90.0  # for a machine that is busy with other tests
Found = TypeVar("Found")


def until(look: Callable[[], Found | None], what: object, patience: float = PATIENCE_S) -> Found:
    """Calls `look` until its result is true, and returns that result."""
    deadline = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(
                f"not within {patience:.0f} s: {what() if callable(what) else what}"
            )
        time.sleep(0.02)


def free_port() -> int:
    """A free port outside the ephemeral range: the kernel could assign a port of that range to
    another test before this test's server binds it."""
    given_away = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    while True:
        port = random.randrange(10_000, int(given_away.split()[0]))
        with socket.socket() as probe:
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port


def child(command: list[str], **options: object) -> subprocess.Popen[bytes]:
    """Starts `command`; the kernel kills it if the test dies first."""
    program = ["setpriv", "--pdeathsig", "KILL", *command]
    return subprocess.Popen(program, stdin=subprocess.DEVNULL, **options)  # type: ignore[call-overload,no-any-return]


def muster_program() -> str:
    """The path of the program `muster` that the package under test installed."""
    package = pathlib.Path(muster.__file__).parent
    folders = [package.parent / "bin", pathlib.Path(sys.executable).parent]
    found = shutil.which("muster", path=os.pathsep.join([*map(str, folders), os.environ["PATH"]]))
    assert found, "the program `muster` is not installed"
    return found


@contextlib.contextmanager
def muster_server(port: int = 0) -> Iterator[int]:
    """Runs `muster serve` and yields its port."""
    with tempfile.TemporaryDirectory() as folder:
        reported = pathlib.Path(folder, "port")
        with pathlib.Path(folder, "log").open("wb") as log:
            server = child(
                [
                    muster_program(),
                    "serve",
                    "--listen",
                    f"127.0.0.1:{port}",
                    "--port-file",
                    str(reported),
                ],
                stdout=log,
                stderr=log,
            )
        try:
            text = until(
                lambda: reported.exists() and reported.read_text().strip(), "muster serve is up"
            )
            yield int(text)
        finally:
            server.kill()
            server.wait()


@contextlib.contextmanager
def etcd_server() -> Iterator[str]:
    """Runs a real etcd and yields its endpoint, etcd://127.0.0.1:PORT. Skips if etcd is missing."""
    if not shutil.which("etcd"):
        if os.environ.get("MUSTER_REQUIRE_ETCD") == "1":
            raise AssertionError("the program 'etcd' is missing")
        pytest.skip("the program 'etcd' is missing")
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    address = client.removeprefix("http://")
    host, port = address.split(":")
    with tempfile.TemporaryDirectory() as folder:
        log_file = pathlib.Path(folder, "log")
        with log_file.open("wb") as log:
            server = child(
                [
                    *("etcd", "--name", "m0", "--data-dir", f"{folder}/data", "--unsafe-no-fsync"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", f"m0={peer}"),
                ],
                stdout=log,
                stderr=log,
            )

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return "ready to serve client requests" in log_file.read_text(errors="replace")
            return False

        try:
            until(answers, lambda: "etcd is up:\n" + log_file.read_text(errors="replace")[-2000:])
            yield f"etcd://{address}"
        finally:
            server.kill()
            server.wait()
