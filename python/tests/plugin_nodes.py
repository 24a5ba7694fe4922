"""Handlers of the backends that the plug-in's tests compare, each node in a thread of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

dist = pytest.importorskip("torch.distributed")

from servers import PATIENCE_S, etcd_server, muster_server  # noqa: E402
from torch.distributed.elastic.rendezvous import (  # noqa: E402
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler  # noqa: E402

ADDRESS = "127.0.0.1"
BACKENDS = ["c10d", "muster", "muster in etcd"]
OURS = [name for name in BACKENDS if name != "c10d"]


@dataclasses.dataclass
class Kind:
    """A backend and its endpoint."""

    backend: str
    endpoint: str

    _runs = itertools.count()

    def new_run(self) -> str:
        return f"run-{os.getpid()}-{next(self._runs)}"

    def handler(
        self, run_id: str, least: int = 1, most: int = 0, **options: Any
    ) -> RendezvousHandler:
        options = {"last_call_timeout": 1, "is_host": False, **options}
        return get_rendezvous_handler(
            RendezvousParameters(
                self.backend, self.endpoint, run_id, least, most or least, ADDRESS, **options
            )
        )


@pytest.fixture(scope="module")
def kinds() -> Iterator[Callable[[str], Kind]]:
    """Servers, each started when the first test needs it."""
    with contextlib.ExitStack() as open_servers:
        made: dict[str, Kind] = {}

        def make(name: str) -> Kind:
            if name == "c10d":
                store = dist.TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
                open_servers.callback(lambda: store)
                return Kind("c10d", f"{ADDRESS}:{store.port}")
            if name == "muster":
                return Kind("muster", f"{ADDRESS}:{open_servers.enter_context(muster_server())}")
            return Kind("muster", open_servers.enter_context(etcd_server()))

        def of(name: str) -> Kind:
            if name not in made:
                made[name] = make(name)
            return made[name]

        yield of


@pytest.fixture(params=BACKENDS)
def kind(request: pytest.FixtureRequest, kinds: Callable[[str], Kind]) -> Kind:
    return kinds(request.param)


@pytest.fixture(params=OURS)
def our_kind(request: pytest.FixtureRequest, kinds: Callable[[str], Kind]) -> Kind:
    return kinds(request.param)


class Nodes:
    """Handlers of one run, each called from a thread of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(16)
        self.handlers: list[RendezvousHandler] = []

    def add(self, handler: RendezvousHandler) -> RendezvousHandler:
        self.handlers.append(handler)
        return handler

    def join(self, handler: RendezvousHandler) -> Future[RendezvousInfo]:
        return self._threads.submit(handler.next_rendezvous)

    def form(self, *handlers: RendezvousHandler) -> list[RendezvousInfo]:
        """In the order of their ranks."""
        joins = [self.join(handler) for handler in handlers]
        return sorted((each.result(PATIENCE_S) for each in joins), key=lambda info: info.rank)

    def end(self) -> None:
        for ended in [self._threads.submit(handler.shutdown) for handler in self.handlers]:
            ended.result(PATIENCE_S)
        self._threads.shutdown()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    made.end()
