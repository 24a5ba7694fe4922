"""Handlers and their process: Ctrl-C, fork, threads, its end, its memory."""

from __future__ import annotations

import gc
import os
import pathlib
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import servers
from rendezvous_nodes import PATIENCE_S, Meeting, etcd_endpoint, store_server

import muster
from muster import rendezvous
from muster.rendezvous import RendezvousParameters

__all__ = ["etcd_endpoint", "store_server"]

PYTHON_BACKEND = """
import threading
import muster
from muster.rendezvous import *

class Cell:
    name = "cell"
    state = None
    def get_state(self):
        return self.state
    def set_state(self, state, token=None):
        was_set = token is (self.state and self.state[1])
        if was_set:
            self.state = (state, object())
        return (*self.state, was_set)

def handler(nodes=1, interval=0.01):
    return DynamicRendezvousHandler.from_backend(
        "run", muster.HashStore(), Cell(), nodes, nodes, "localhost", keep_alive_interval=interval)
"""


def python(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(program: str) -> str:
    """Its output to its end, which must be in order and without messages on stderr."""
    with python(program) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    return out


# --- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("muster", "is_host=False"),
        ("c10d", "is_host=False"),
        ("static", "rank=0"),
        ("etcd", ""),
        ("etcd-v2", ""),
        ("own", ""),
    ],
)
def test_ctrl_c_ends_a_wait_for_a_round(
    backend: str, options: str, store_server: str, request: pytest.FixtureRequest
) -> None:
    endpoint = f"127.0.0.1:{servers.free_port()}" if backend == "static" else store_server
    if backend.startswith("etcd"):
        endpoint = request.getfixturevalue("etcd_endpoint")
    make = (
        "handler(nodes=2)"
        if backend == "own"
        else f"get_rendezvous_handler(RendezvousParameters('{backend}', '{endpoint}', "
        f"'ctrl-c-{backend}', 2, 2, '127.0.0.1', {options}))"
    )
    program = f"""
        handler = {make}
        def when_it_waits():
            while handler.describe_wait().phase != WaitReport.Phase.FORMING:
                threading.Event().wait(0.01)
            print("waits", flush=True)
        watching = threading.Thread(target=when_it_waits, daemon=True)
        watching.start()
        try:
            handler.next_rendezvous()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        watching.join()
        print(handler.describe_wait().phase.name, handler.get_backend(), flush=True)
    """
    with python(PYTHON_BACKEND + textwrap.dedent(program)) as process:
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], PATIENCE_S)[0]
            printed = process.stdout.readline()
            if printed != "waits\n":
                process.kill()
                raise AssertionError(printed + process.communicate()[1])
            process.send_signal(signal.SIGINT)
            sent = time.monotonic()
            out, err = process.communicate(timeout=PATIENCE_S)
            took = time.monotonic() - sent
        finally:
            process.kill()
    assert "interrupted\n" in out, err
    assert (process.returncode, err) == (0, "")
    assert took < 5  # with the end of the process, on a busy machine; otherwise below 1 s


def test_ctrl_c_ends_a_wait_for_events(store_server: str) -> None:
    handler = rendezvous.get_rendezvous_handler(
        RendezvousParameters("muster", store_server, "events", 1, 1, "127.0.0.1", is_host=False)
    )
    handler.next_rendezvous()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        handler.await_event(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert handler.await_event(0) is None
    assert handler.next_rendezvous().round == 1


# --- Fork -----------------------------------------------------------------------------------------


def in_fork(work: Callable[[], object]) -> str:
    """What it raises there, or returns."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            printed = repr(work())
        except BaseException as error:  # noqa: BLE001  Told to the parent.
            printed = f"{type(error).__name__}: {error}"
        os.write(writable, printed.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        assert select.select([pipe], [], [], PATIENCE_S)[0], "the fork hangs"
        printed = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return printed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_handler_does_not_work_in_a_fork_and_reports_it(store_server: str) -> None:
    handler = rendezvous.get_rendezvous_handler(
        RendezvousParameters("muster", store_server, "fork", 1, 1, "127.0.0.1", is_host=False)
    )
    handler.next_rendezvous()
    for call in (
        handler.next_rendezvous,
        handler.is_closed,
        handler.num_nodes_waiting,
        handler.describe_wait,
        handler.shutdown,
        handler.get_run_id,
        lambda: handler.await_event(1),
    ):
        printed = in_fork(call)
        assert printed.startswith("RuntimeError: ")
        assert f"made in process {os.getpid()} and cannot be used in its fork" in printed
    assert not handler.is_closed()
    assert handler.next_rendezvous().round == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_drops_a_handler_without_hanging_and_makes_its_own(store_server: str) -> None:
    params = RendezvousParameters("muster", store_server, "own", 1, 1, "127.0.0.1", is_host=False)
    handlers = [rendezvous.get_rendezvous_handler(params)]
    handlers[0].next_rendezvous()

    def drop_and_make() -> int:
        handlers.clear()
        other = RendezvousParameters(
            "muster", store_server, "own-2", 1, 1, "127.0.0.1", is_host=False
        )
        return rendezvous.get_rendezvous_handler(other).next_rendezvous().rank

    assert in_fork(drop_and_make) == "0"
    assert handlers[0].next_rendezvous().round == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_python_backend_does_not_hold_a_fork_up() -> None:
    names: dict[str, Any] = {}
    exec(PYTHON_BACKEND, names)
    kept = [names["handler"](interval=0.001)]
    kept[0].next_rendezvous()
    c10d = [rendezvous.C10dRendezvousBackend(muster.HashStore(), "run")]
    assert "cannot be used in its fork" in in_fork(kept[0].is_closed)
    assert "cannot be used in its fork" in in_fork(c10d[0].get_state)

    def drop() -> str:
        kept.clear()
        c10d.clear()
        gc.collect()
        return "dropped"

    assert in_fork(drop) == "'dropped'"
    assert kept[0].next_rendezvous().round == 1


def test_a_member_that_is_killed_is_an_event(store_server: str) -> None:
    program = f"""
        from muster.rendezvous import *
        params = RendezvousParameters(
            "muster", "{store_server}", "killed", 2, 2, "127.0.0.1", is_host=False)
        handler = get_rendezvous_handler(params)
        handler.next_rendezvous()
        print(handler.node, flush=True)
        handler.await_event(600)
    """
    handler = rendezvous.get_rendezvous_handler(
        RendezvousParameters("muster", store_server, "killed", 2, 2, "127.0.0.1", is_host=False)
    )
    with python(program) as process:
        try:
            handler.next_rendezvous()
            assert process.stdout is not None
            node = process.stdout.readline().strip()
        finally:
            process.kill()
    event = handler.await_event(PATIENCE_S)
    assert event is not None and event.kind == rendezvous.MembershipEvent.Kind.MEMBER_LOST
    assert event.who == node


# --- The end of Python ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    [
        "kept = handler(); kept.next_rendezvous()",
        "kept = [handler() for _ in range(5)]; [h.next_rendezvous() for h in kept]",
        # The garbage collector finds an object that refers to itself, or leaves it to the end.
        "kept = handler(); kept.me = kept; kept.next_rendezvous()",
        "c = Cell(); c.me = DynamicRendezvousHandler.from_backend("
        "'run', muster.HashStore(), c, 1, 1, 'localhost'); c.me.next_rendezvous(); del c",
        "threading.Thread(target=handler(nodes=2).next_rendezvous, daemon=True).start(); "
        "import time; time.sleep(0.3)",
        "set_event_sink(print and (lambda event: None)); kept = handler(); kept.next_rendezvous()",
    ],
)
def test_python_ends_quietly_while_handlers_live(ending: str) -> None:
    began = time.monotonic()
    assert output_of(f"{PYTHON_BACKEND}\n{ending}\nprint('end')") == "end\n"
    assert time.monotonic() - began < 30


def test_a_cycle_of_handler_and_backend_is_collected() -> None:
    program = """
        import gc, weakref
        cell = Cell()
        cell.handler = DynamicRendezvousHandler.from_backend(
            "run", muster.HashStore(), cell, 1, 1, "localhost", keep_alive_interval=0.01)
        cell.handler.next_rendezvous()
        gone = weakref.ref(cell)
        del cell
        gc.collect()
        print(gone() is None)
    """
    assert output_of(PYTHON_BACKEND + textwrap.dedent(program)) == "True\n"


# --- Threads and memory ---------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["muster", "c10d"])
def test_many_threads_ask_one_handler_meanwhile(backend: str, store_server: str) -> None:
    meeting = Meeting(backend, store_server)
    handler = meeting.node(1, 1)
    stop = threading.Event()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                handler.describe_wait()
                handler.is_closed()
                handler.num_nodes_waiting()
                handler.await_event(0)
        except BaseException as error:  # noqa: BLE001  Told below.
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        rounds = [handler.next_rendezvous().round for _ in range(5)]
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert rounds == [0, 1, 2, 3, 4]
    assert errors == []
    meeting.end()


def resident_kib() -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_a_thousand_rounds_leave_nothing_behind(store_server: str) -> None:
    meeting = Meeting("muster", store_server)
    handler = meeting.node(1, 1)
    for _ in range(300):
        handler.next_rendezvous()
    before = resident_kib()
    for _ in range(1000):
        handler.next_rendezvous().store.set("key", "value")
    # A few pages come and go; a leak of one small object in each round would be more. The server is
    # in this process, too, and keeps one key of each round.
    assert resident_kib() - before < 1500
    meeting.end()
