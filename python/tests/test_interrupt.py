"""Ctrl-C ends a waiting call, and the store works afterwards."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from servers import child, etcd_server, until

# For each store: the statement that makes it; the waiting call; the call after it.
STORES = {
    "tcp": "store = muster.TCPStore('127.0.0.1', 0, is_master=True)",
    "file": "store = muster.FileStore(folder + '/store')",
    "hash": "store = muster.HashStore()",
    "prefix": "store = muster.PrefixStore('p', muster.TCPStore('127.0.0.1', 0, is_master=True))",
    "etcd": "store = muster.EtcdStore(os.environ['ENDPOINT'], prefix=f'/interrupt/{os.getpid()}')",
}
WAITS = {
    "get": "store.get('absent')",
    "wait": "store.wait(['absent'], 0)",
    "multi_get": "store.multi_get(['absent', 'gone'])",
    "barrier": "store.barrier('meet', 2, 600)",
    "queue_pop": "store.queue_pop('empty')",
    "utils.barrier": "muster.utils.barrier(store, 2, 'meet')",
    "synchronize": "muster.utils.synchronize(store, 'd', 0, 2, 'swap')",
}
CONNECTS = {
    "connecting": "muster.TCPStore('127.0.0.1', muster.utils.get_free_port(), timeout=600)",
    "world": "muster.TCPStore('127.0.0.1', 0, 2, True)",
    "etcd": "muster.EtcdStore(f'127.0.0.1:{muster.utils.get_free_port()}', timeout=600)",
}
PROGRAM = """
import os, sys, time
import muster, muster.utils
folder = sys.argv[1]
{make}
open(folder + '/waiting', 'w').close()
try:
    {wait}
    print('returned')
except KeyboardInterrupt:
    interrupted = time.clock_gettime(time.CLOCK_MONOTONIC)
    print(interrupted)
{after}
"""
AFTER = "store.set('k', 'works'); assert store.get('k') == b'works'; assert store.add('n', 2) == 2"


def interrupt(tmp_path: pathlib.Path, program: str, endpoint: str = "") -> float:
    """Returns how long KeyboardInterrupt took."""
    started = child(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "ENDPOINT": endpoint},
    )
    try:
        until(lambda: (tmp_path / "waiting").exists() or started.poll() is not None, "it waits")
        until(lambda: is_asleep(started.pid) or started.poll() is not None, "it sleeps")
        asked = now()
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=60)
    finally:
        started.kill()
        started.wait()
    assert started.returncode == 0, err.decode()
    assert b"nanobind" not in err
    return float(out) - asked


def now() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def is_asleep(pid: int) -> bool:
    """Whether it sleeps for some time: it can only wait."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    if fields[0] != "S":
        return False
    before = fields[11:13]
    time.sleep(0.2)
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    # It checks for signals regularly, which takes a tick or two.
    return sum(map(int, fields[11:13])) - sum(map(int, before)) <= 3


@pytest.fixture(scope="module")
def etcd() -> Iterator[str]:
    with etcd_server() as endpoint:
        yield endpoint


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("kind", STORES)
def test_a_wait_ends_within_a_second(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, kind: str, wait: str
) -> None:
    if kind == "file" and wait == "queue_pop":
        pytest.skip("a FileStore has no queues")
    endpoint = request.getfixturevalue("etcd") if kind == "etcd" else ""
    program = PROGRAM.format(make=STORES[kind], wait=WAITS[wait], after=AFTER)
    took = interrupt(tmp_path, program, endpoint)
    print(f"{kind} {wait}: {took * 1e3:.0f} ms")
    assert took < 1


@pytest.mark.parametrize("wait", CONNECTS)
def test_so_does_a_constructor(tmp_path: pathlib.Path, wait: str) -> None:
    program = PROGRAM.format(make="store = muster.HashStore()", wait=CONNECTS[wait], after=AFTER)
    assert interrupt(tmp_path, program) < 1


def test_what_a_handler_raises_comes_through(tmp_path: pathlib.Path) -> None:
    make = """
import signal
def handler(number, frame):
    raise LookupError("own")
signal.signal(signal.SIGINT, handler)
store = muster.HashStore()
"""
    program = PROGRAM.format(make=make, wait=WAITS["get"], after=AFTER)
    assert interrupt(tmp_path, program.replace("KeyboardInterrupt", "LookupError")) < 1


def test_a_handler_that_raises_nothing_leaves_the_call_alone(tmp_path: pathlib.Path) -> None:
    make = """
import signal, threading
store = muster.HashStore()
signal.signal(signal.SIGINT, lambda number, frame: store_later())
def store_later():
    threading.Thread(target=lambda: store.clone().set('absent', 'here')).start()
"""
    wait = "assert store.get('absent') == b'here'; raise KeyboardInterrupt"
    program = PROGRAM.format(make=make, wait=wait, after=AFTER)
    assert interrupt(tmp_path, program) < 10
