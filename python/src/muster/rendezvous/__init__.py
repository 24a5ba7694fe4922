"""How the nodes of a job find each other; the names are those of torchelastic's rendezvous.

::

    from muster.rendezvous import RendezvousParameters, get_rendezvous_handler

    params = RendezvousParameters("muster", "head:29400", "run-1", min_nodes=2, max_nodes=4)
    handler = get_rendezvous_handler(params)
    info = handler.next_rendezvous()  # info.rank, info.world_size, info.store

Backends: ``muster`` (a server notifies every node at once; ``muster serve``, or the node that the
endpoint names), ``etcd`` (a cluster of etcd; ``etcd-v2`` is another name for it), ``c10d`` (one
shared state, understood by torchrun's own handlers), ``static`` (every node gets its rank as an
option), and backends that are registered in :data:`rendezvous_handler_registry`.

Several threads may use a handler. Calls that wait release the GIL. Ctrl-C ends them with
KeyboardInterrupt, and the node has given up its place.
"""

from __future__ import annotations

from typing import Callable, Optional

from muster import _native
from muster._native import MembershipEvent, RendezvousEvent, WaitReport
from muster.rendezvous._native_handler import NativeRendezvousHandler
from muster.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousHandlerCreator,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)
from muster.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend, create_backend
from muster.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousBackend,
    RendezvousCost,
    RendezvousSettings,
    RendezvousTimeout,
    Token,
    create_handler,
)
from muster.rendezvous.registry import get_rendezvous_handler
from muster.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from muster.rendezvous.utils import parse_rendezvous_config, parse_rendezvous_endpoint

__all__ = [
    "C10dRendezvousBackend",
    "DynamicRendezvousHandler",
    "MembershipEvent",
    "NativeRendezvousHandler",
    "RendezvousBackend",
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousCost",
    "RendezvousError",
    "RendezvousEvent",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousSettings",
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeout",
    "RendezvousTimeoutError",
    "StaticTCPRendezvous",
    "Token",
    "WaitReport",
    "create_backend",
    "create_handler",
    "get_rendezvous_handler",
    "parse_rendezvous_config",
    "parse_rendezvous_endpoint",
    "rendezvous_handler_registry",
    "set_event_sink",
]


def set_event_sink(sink: Optional[Callable[[RendezvousEvent], object]]) -> None:
    """Calls ``sink`` with a record of each step of each rendezvous in this process. None: no more.

    It is called on the thread where it happens, and should not take long. What it raises goes to
    ``sys.unraisablehook`` and nowhere else.
    """
    _native.set_event_sink(sink)


# Tracebacks, help() and pickles name them as users do.
for _name in __all__:
    _thing = globals()[_name]
    if isinstance(_thing, type) and _thing.__module__.startswith(__name__):
        _thing.__module__ = __name__
del _name, _thing
