"""After a fork: clear errors for objects with threads and connections, no hang, no effect on the
parent."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Callable

import pytest
from servers import etcd_server

import muster

PATIENCE_S = 60


def in_fork(check: Callable[[], None], *, leave: Callable[[int], object] = os._exit) -> None:
    """Runs `check` in a fork of this process and reports its errors."""
    reported, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reported)
            signal.alarm(PATIENCE_S)  # a process that hangs is ended
            check()
            status = 0
        except BaseException:
            os.write(tell, traceback.format_exc().encode())
        finally:
            os.close(tell)
            leave(status)
    os.close(tell)
    with os.fdopen(reported, "rb") as pipe:
        trouble = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, trouble or f"status {status}"


@pytest.fixture(scope="module")
def etcd() -> Iterator[str]:
    with etcd_server() as endpoint:
        yield endpoint


def refused(call: Callable[[], object], kind: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        call()
    message = str(raised.value)
    assert (
        f"this {kind} was made in process" in message and "make a new one after the fork" in message
    )
    assert not isinstance(raised.value, muster.DistError)


def test_stores_with_a_connection_are_refused() -> None:
    server = muster.StoreServer("127.0.0.1")
    own = muster.TCPStore("127.0.0.1", 0, is_master=True)
    client = muster.TCPStore("127.0.0.1", server.port)
    part = muster.PrefixStore("p", client)

    def check() -> None:
        for store, kind in ((own, "TCPStore"), (client, "TCPStore"), (part, "PrefixStore")):
            refused(lambda store=store: store.set("k", "v"), kind)
            refused(lambda store=store: store.get("k"), kind)
            refused(store.clone, kind)
            refused(lambda store=store: store.timeout, kind)
            refused(lambda store=store: muster.PrefixStore("q", store), kind)
            assert repr(store)
        refused(server.close, "StoreServer")
        assert server.port and client.port == server.port

    in_fork(check)
    client.set("k", "v")
    assert own.add("n", 1) == 1 and part.add("n", 1) == 1


def test_etcd_store_is_refused(etcd: str) -> None:
    store = muster.EtcdStore(etcd, prefix="/fork")
    in_fork(lambda: refused(lambda: store.set("k", "v"), "EtcdStore"))
    store.set("k", "v")
    assert store.get("k") == b"v"


def test_objects_dropped_in_the_fork_do_no_harm() -> None:
    things = [muster.StoreServer("127.0.0.1")]
    port = things[0].port
    stores = [muster.TCPStore("127.0.0.1", port), muster.TCPStore("127.0.0.1", 0, is_master=True)]

    def check() -> None:
        things.clear()
        stores.clear()
        gc.collect()

    in_fork(check)
    for store in stores:
        store.set("k", "v")
        assert store.get("k") == b"v"
    assert muster.TCPStore("127.0.0.1", port).get("k") == b"v"


def test_a_with_block_left_in_the_fork_leaves_the_server_alone() -> None:
    with muster.StoreServer("127.0.0.1") as server:

        def check() -> None:
            with server:
                pass

        in_fork(check)
        muster.TCPStore("127.0.0.1", server.port).set("k", "v")


def test_new_ones_work_in_the_fork() -> None:
    server = muster.StoreServer("127.0.0.1")
    parent = muster.TCPStore("127.0.0.1", server.port)

    def check() -> None:
        client = muster.TCPStore("127.0.0.1", server.port, timeout=PATIENCE_S)
        client.set("from the fork", "hello")
        own = muster.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE_S)
        own.set("k", "v")
        with muster.StoreServer("127.0.0.1") as mine:
            muster.TCPStore("127.0.0.1", mine.port).set("k", "v")

    in_fork(check)
    assert parent.get("from the fork") == b"hello"


def test_file_and_hash_stores_keep_working(tmp_path: pathlib.Path) -> None:
    file = muster.FileStore(tmp_path / "store", 1)
    hashed = muster.HashStore()
    part = muster.PrefixStore("p", file)
    hashed.set("before", "1")
    stores = [file, hashed, part]

    def check() -> None:
        nonlocal file, part, hashed
        file.set("from the fork", "hello")
        part.set("k", "v")
        assert hashed.get("before") == b"1"
        hashed.set("after", "in the fork alone")
        del file, part, hashed
        stores.clear()
        gc.collect()
        assert (tmp_path / "store").exists()  # a copy in a fork does not count

    in_fork(check)
    assert file.get("from the fork") == b"hello" and part.get("k") == b"v"
    assert not hashed.check(["after"])


def work(port: int, number: int) -> None:
    store = muster.TCPStore("127.0.0.1", port, timeout=PATIENCE_S)
    store.add("sum", number)
    store.barrier("met", 4, PATIENCE_S)


def test_multiprocessing_by_fork() -> None:
    store = muster.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE_S)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(store.port, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
        assert worker.exitcode == 0
    assert store.add("sum", 0) == 6


def test_a_fork_that_ends_as_python_does_hangs_nowhere() -> None:
    """With finalizers and atexit: a child program forks and leaves through sys.exit()."""
    program = """
import os, sys, muster
server = muster.StoreServer("127.0.0.1")
store = muster.TCPStore("127.0.0.1", server.port)
own = muster.TCPStore("127.0.0.1", 0, is_master=True)
pid = os.fork()
if pid == 0:
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
store.set("k", "v")
assert own.add("n", 1) == 1
"""
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "nanobind" not in ended.stderr, ended.stderr
    assert time.monotonic() - started < 30


def test_fork_while_another_thread_waits() -> None:
    store = muster.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE_S)
    waiting = store.clone()
    thread = threading.Thread(target=lambda: waiting.get("late"))
    thread.start()
    time.sleep(0.1)

    def check() -> None:
        muster.TCPStore("127.0.0.1", store.port, timeout=PATIENCE_S).set("late", "now")

    in_fork(check)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
