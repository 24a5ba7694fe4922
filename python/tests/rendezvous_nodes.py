"""Nodes of a rendezvous in threads, for the tests of muster.rendezvous. Not a test itself."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import servers

import muster
from muster import rendezvous

PATIENCE_S = 60.0
# Options that make tests quick; whole seconds, because c10d needs them.
QUICK: dict[str, dict[str, Any]] = {
    "muster": {"last_call_timeout": 1, "join_timeout": 60},
    "c10d": {"last_call_timeout": 1, "join_timeout": 60, "keep_alive_interval": 1},
    "etcd": {"last_call_timeout": 1, "join_timeout": 60},
    "etcd-v2": {"last_call_timeout": 1, "join_timeout": 60},
}
ELASTIC = ("muster", "c10d", "etcd", "etcd-v2")
NATIVE_EVENTS = ("muster", "etcd", "etcd-v2")  # These report changes of membership as events.


@contextlib.contextmanager
def endpoint_of(backend: str) -> Iterator[str]:
    """The endpoint of a server for the backend."""
    if backend.startswith("etcd"):
        with servers.etcd_server() as endpoint:
            yield endpoint
    else:
        server = muster.StoreServer(port=0)
        yield f"127.0.0.1:{server.port}"
        del server


class Meeting:
    """A run of its own, and the handlers of its nodes."""

    def __init__(self, backend: str, endpoint: str) -> None:
        self.backend = backend
        self.endpoint = endpoint
        self.run_id = f"run-{uuid.uuid4().hex[:8]}"
        self.handlers: list[rendezvous.RendezvousHandler] = []
        self._threads = ThreadPoolExecutor(8)

    def node(
        self, min_nodes: int = 1, max_nodes: int = 4, **options: Any
    ) -> rendezvous.RendezvousHandler:
        given = dict(QUICK[self.backend])
        if self.backend in ("muster", "c10d"):
            given["is_host"] = False
        given.update(options)
        handler = rendezvous.get_rendezvous_handler(
            rendezvous.RendezvousParameters(
                self.backend,
                self.endpoint,
                self.run_id,
                min_nodes,
                max_nodes,
                "127.0.0.1",
                **given,
            )
        )
        self.handlers.append(handler)
        return handler

    def join(self, handler: rendezvous.RendezvousHandler) -> Future[rendezvous.RendezvousInfo]:
        return self._threads.submit(handler.next_rendezvous)

    def round(
        self, handlers: Sequence[rendezvous.RendezvousHandler]
    ) -> list[rendezvous.RendezvousInfo]:
        """All of them in one round; by rank."""
        futures = [self.join(handler) for handler in handlers]
        infos = [future.result(PATIENCE_S) for future in futures]
        assert sorted(info.rank for info in infos) == list(range(len(handlers)))
        assert {info.world_size for info in infos} == {len(handlers)}
        assert len({info.round for info in infos}) == 1
        return sorted(infos, key=lambda info: info.rank)

    def end(self) -> None:
        if self.handlers:
            with contextlib.suppress(rendezvous.RendezvousError):
                self.handlers[0].set_closed("the test is over")
        self.handlers.clear()
        self._threads.shutdown()


@pytest.fixture(scope="module")
def etcd_endpoint() -> Iterator[str]:
    with servers.etcd_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def store_server() -> Iterator[str]:
    server = muster.StoreServer(port=0)
    yield f"127.0.0.1:{server.port}"


@pytest.fixture
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    """Parametrised with the backend."""
    etcd = request.param.startswith("etcd")
    endpoint = request.getfixturevalue("etcd_endpoint" if etcd else "store_server")
    made = Meeting(request.param, endpoint)
    yield made
    made.end()
