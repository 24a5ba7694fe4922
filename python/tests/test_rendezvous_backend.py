"""A user's Python class as the backend of a dynamic rendezvous, and c10d's backend in Python."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Optional

import pytest
import servers

import muster
from muster import rendezvous
from muster.rendezvous import DynamicRendezvousHandler, RendezvousBackend, RendezvousTimeout

PATIENCE_S = 60.0


class Token:
    """Any object can be a token."""


class DictBackend(RendezvousBackend):
    """A dict and a lock, shared by all handlers of one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.cell: Optional[tuple[bytes, Token]] = None
        self.gets = 0
        self.threads: set[int] = set()

    @property
    def name(self) -> str:
        return "dict"

    def get_state(self) -> Optional[tuple[bytes, Any]]:
        with self.lock:
            self.gets += 1
            self.threads.add(threading.get_ident())
            return self.cell

    def set_state(self, state: bytes, token: Any = None) -> Optional[tuple[bytes, Any, bool]]:
        with self.lock:
            present = None if self.cell is None else self.cell[1]
            was_set = token is present
            if was_set:
                self.cell = (state, Token())
            assert self.cell is not None
            return (*self.cell, was_set)


def handler_on(
    backend: RendezvousBackend,
    store: muster.Store,
    nodes: int = 1,
    join: float = PATIENCE_S,
    interval: float = 1,
) -> DynamicRendezvousHandler:
    return DynamicRendezvousHandler.from_backend(
        "run",
        store,
        backend,
        nodes,
        nodes,
        "127.0.0.1",
        RendezvousTimeout(
            join=timedelta(seconds=join),
            last_call=timedelta(seconds=1),
            close=timedelta(seconds=5),
        ),
        keep_alive_interval=interval,
    )


def test_two_nodes_meet_through_a_dict() -> None:
    backend, store = DictBackend(), muster.HashStore()
    handlers = [handler_on(backend, store, nodes=2) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        for round in range(3):
            infos = list(threads.map(lambda handler: handler.next_rendezvous(), handlers))
            assert sorted(info.rank for info in infos) == [0, 1]
            assert {info.round for info in infos} == {round}
            infos[0].store.set("key", "value")
            assert infos[1].store.get("key") == b"value"
    assert handlers[0].get_backend() == "dict"
    assert handlers[0].cost.writes > 0
    handlers[0].set_closed()
    servers.until(handlers[1].is_closed, "it is closed")
    with pytest.raises(rendezvous.RendezvousClosedError):
        handlers[1].next_rendezvous()


def test_heartbeats_come_from_another_thread() -> None:
    backend = DictBackend()
    handler = handler_on(backend, muster.HashStore(), interval=0.05)
    handler.next_rendezvous()
    servers.until(lambda: len(backend.threads) > 1, "a heartbeat")


def test_handler_and_backend_go_while_heartbeats_run() -> None:
    for _ in range(30):
        backend = DictBackend()
        handler = handler_on(backend, muster.HashStore(), interval=0.001)
        handler.next_rendezvous()
        gone = weakref.ref(backend)
        token = weakref.ref(backend.cell[1]) if backend.cell else None
        time.sleep(0.005)
        del handler, backend
        assert gone() is None
        assert token is not None and token() is None


class SilentBackend(DictBackend):
    """set_state() returns None after every write."""

    def set_state(self, state: bytes, token: Any = None) -> None:  # type: ignore[override]
        super().set_state(state, token)


def test_after_a_write_that_tells_nothing_the_state_is_read() -> None:
    backend, store = SilentBackend(), muster.HashStore()
    handlers = [handler_on(backend, store, nodes=2) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        infos = list(threads.map(lambda handler: handler.next_rendezvous(), handlers))
    assert sorted(info.rank for info in infos) == [0, 1]
    assert backend.gets >= sum(handler.cost.writes for handler in handlers)


def test_no_reference_stays_behind() -> None:
    state = b"x" * 1000
    backend = DictBackend()
    handler = handler_on(backend, muster.HashStore())
    for _ in range(5):
        handler.next_rendezvous()
    before = sys.getrefcount(backend), sys.getrefcount(state)
    for _ in range(50):
        handler.next_rendezvous()
    assert (sys.getrefcount(backend), sys.getrefcount(state)) == before
    assert len([o for o in gc.get_objects() if type(o) is Token]) <= 3


class Failing(DictBackend):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def get_state(self) -> Optional[tuple[bytes, Any]]:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        rendezvous.RendezvousConnectionError("the cell is far away"),
        rendezvous.RendezvousStateError("the cell is full of sand"),
    ],
)
def test_rendezvous_errors_of_a_backend_come_out_as_they_are(error: Exception) -> None:
    handler = handler_on(Failing(error), muster.HashStore())
    for call in (handler.next_rendezvous, handler.is_closed, handler.num_nodes_waiting):
        with pytest.raises(type(error), match=str(error)) as raised:
            call()
        assert raised.value is error
    assert handler.shutdown() is False


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (KeyError("lost"), rendezvous.RendezvousStateError),
        (ZeroDivisionError("oops"), rendezvous.RendezvousStateError),
        (TimeoutError("slow"), rendezvous.RendezvousConnectionError),
        (ConnectionRefusedError("no"), rendezvous.RendezvousConnectionError),
    ],
)
def test_other_errors_of_a_backend_are_the_cause(error: Exception, becomes: type) -> None:
    handler = handler_on(Failing(error), muster.HashStore())
    with pytest.raises(becomes, match=rf"'dict'.*get_state\(\): {type(error).__name__}") as raised:
        handler.next_rendezvous()
    assert raised.value.__cause__ is error


def test_what_is_no_exception_passes_through() -> None:
    handler = handler_on(Failing(KeyboardInterrupt()), muster.HashStore())
    with pytest.raises(KeyboardInterrupt):
        handler.next_rendezvous()
    with pytest.raises(KeyboardInterrupt):
        handler.is_closed()


@pytest.mark.parametrize("answer", [3, (b"",), ("text", 1), (b"", 1, True), [b"", 1]])
def test_invalid_answers_are_type_errors(answer: object) -> None:
    class Odd(DictBackend):
        def get_state(self) -> Any:
            return answer

    handler = handler_on(Odd(), muster.HashStore())
    with pytest.raises(rendezvous.RendezvousStateError, match="get_state") as raised:
        handler.next_rendezvous()
    assert isinstance(raised.value.__cause__, TypeError)


def test_a_foreign_state_is_reported() -> None:
    backend = DictBackend()
    backend.set_state(b"sand")
    handler = handler_on(backend, muster.HashStore())
    with pytest.raises(rendezvous.RendezvousStateError):
        handler.next_rendezvous()


def test_heartbeats_outlive_failures_of_the_backend() -> None:
    class Moody(DictBackend):
        moods = itertools.count()
        is_moody = False

        def get_state(self) -> Optional[tuple[bytes, Any]]:
            if self.is_moody and next(self.moods) < 5:
                raise RuntimeError("not now")
            return super().get_state()

    backend = Moody()
    handler = handler_on(backend, muster.HashStore(), interval=0.02)
    handler.next_rendezvous()
    seen = backend.gets
    backend.is_moody = True
    servers.until(lambda: backend.gets > seen + 3, "heartbeats go on")


# --- What it reports ------------------------------------------------------------------------------


def test_a_spare_that_gets_a_place_is_an_event() -> None:
    backend, store = DictBackend(), muster.HashStore()
    member, spare = (handler_on(backend, store) for _ in range(2))
    member.next_rendezvous()
    names: list[str] = []
    rendezvous.set_event_sink(lambda event: names.append(event.name.rpartition(".")[2]))
    try:
        with ThreadPoolExecutor(1) as threads:
            joining = threads.submit(spare.next_rendezvous)
            try:
                servers.until(lambda: "_add_to_redundancy_list" in names, "it is a spare")
                assert "_remove_from_redundancy_list" not in names
            finally:
                member.leave()  # A spare waits without limit.
            assert joining.result(PATIENCE_S).round == 1
    finally:
        rendezvous.set_event_sink(None)
    leaving = names.index("_remove_from_redundancy_list")
    assert names.index("_add_to_redundancy_list") < leaving < names.index("_add_to_participants")


def test_rounds_and_ends_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    handler = handler_on(DictBackend(), muster.HashStore())
    failing = handler_on(Failing(rendezvous.RendezvousConnectionError("far")), muster.HashStore())
    failing.shutdown()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.messages == [f"node '{failing.node}' failed to shut down the rendezvous 'run'"]
    caplog.clear()
    caplog.set_level("INFO", "muster.rendezvous")
    handler.next_rendezvous()
    handler.set_closed()
    handler.shutdown()
    assert caplog.messages == [
        f"node '{handler.node}' {step} the rendezvous 'run'"
        for step in (
            "attempts to join the next round of",
            "is rank 0 of 1: it has joined round 0 of",
            "has closed",
            "has ended",
        )
    ]
    assert {(record.name, record.levelname) for record in caplog.records} == {
        ("muster.rendezvous", "INFO")
    }


# --- c10d's ---------------------------------------------------------------------------------------


def test_c10ds_backend_keeps_torchelastics_contract() -> None:
    store = muster.HashStore()
    backend = rendezvous.C10dRendezvousBackend(store, "run")
    assert backend.name == "c10d"
    assert backend.get_state() is None
    first = backend.set_state(b"one")
    assert first is not None and (first[0], first[2]) == (b"one", True)
    token = first[1]
    assert backend.get_state() == (b"one", token)
    assert backend.set_state(b"two") == (b"one", token, False)
    assert backend.set_state(b"two", "no token of its") == (b"one", token, False)
    second = backend.set_state(b"two", token)
    assert second is not None and second[0] == b"two" and second[2] is True
    assert backend.set_state(b"three", token) == (b"two", second[1], False)
    assert store.check(["torch.rendezvous.run"])
    store.set("torch.rendezvous.run", "non_base64")
    with pytest.raises(rendezvous.RendezvousStateError):
        backend.get_state()


def test_create_backend_and_create_handler_work_as_in_torchelastic() -> None:
    params = rendezvous.RendezvousParameters(
        "c10d",
        f"localhost:{servers.free_port()}",
        f"run-{uuid.uuid4().hex}",
        2,
        2,
        "127.0.0.1",
        last_call_timeout=1,
    )
    made = [rendezvous.create_backend(params) for _ in range(2)]
    handlers = [rendezvous.create_handler(store, backend, params) for backend, store in made]
    assert all(handler.is_host for handler in handlers)  # One server for both.
    with ThreadPoolExecutor(2) as threads:
        infos = list(threads.map(lambda handler: handler.next_rendezvous(), handlers))
    assert sorted(info.rank for info in infos) == [0, 1]
    assert made[0][0].get_state() is not None
    handlers[0].shutdown()


@pytest.mark.parametrize("option", ["keep_alive_interval", "keep_alive_max_attempt"])
def test_create_handler_refuses_keep_alives_without_figures(option: str) -> None:
    params = rendezvous.RendezvousParameters("own", "", "run", 1, 1, **{option: None})
    with pytest.raises(TypeError, match=option):
        rendezvous.create_handler(muster.HashStore(), DictBackend(), params)
