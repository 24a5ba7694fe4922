"""What users write for torch and annotate strictly; `run mypy` checks it. Not a test itself."""

from __future__ import annotations

from datetime import timedelta

import muster
from muster.rendezvous import api, dynamic_rendezvous, registry


class Handler(api.RendezvousHandler):
    """Has torch's methods, and attributes named node and is_host."""

    def __init__(self, params: api.RendezvousParameters) -> None:
        self.params = params
        self.node = 3
        self.is_host: bool | None = None

    def get_backend(self) -> str:
        return "typed"

    def next_rendezvous(self) -> api.RendezvousInfo:
        return api.RendezvousInfo(muster.HashStore(), 0, 1, api.RendezvousStoreInfo("host", 1))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        self.is_host = False

    def num_nodes_waiting(self) -> int:
        return self.node

    def get_run_id(self) -> str:
        return self.params.run_id

    def shutdown(self) -> bool:
        return True


def close(handler: api.RendezvousHandler) -> str:
    handler.set_closed()
    return handler.get_run_id()


def make(backend: dynamic_rendezvous.RendezvousBackend, store: muster.Store) -> None:
    creator: api.RendezvousHandlerCreator = Handler
    api.rendezvous_handler_registry.register("typed", creator)
    params = api.RendezvousParameters("typed", "", "run", 1, 1, join_timeout=timedelta(1))
    close(registry.get_rendezvous_handler(params))
    api.RendezvousStoreInfo.build(0, store)
    handler = dynamic_rendezvous.DynamicRendezvousHandler.from_backend(
        "run", store, backend, 1, 2, keep_alive_interval=timedelta(seconds=2)
    )
    handler.set_closed("with a reason")
