"""How the nodes of a job find each other; the names are those of torchelastic's rendezvous.

::

    from muster.rendezvous import RendezvousParameters, get_rendezvous_handler

    params = RendezvousParameters("muster", "head:29400", "run-1", min_nodes=2, max_nodes=4)
    handler = get_rendezvous_handler(params)
    info = handler.next_rendezvous()  # info.rank, info.world_size, info.store

Backends: ``muster`` (a server notifies every node at once; ``muster serve``, or the node that the
endpoint names), ``etcd`` (a cluster of etcd; ``etcd-v2`` is another name for it), ``c10d`` (one
shared state, understood by torchrun's own handlers), ``static`` (every node is told its rank), and
what is registered in :data:`rendezvous_handler_registry`.

Handlers may be used from several threads. Calls that wait release the GIL and can be ended with
Ctrl-C: KeyboardInterrupt, and the node has given up its place.
"""

from __future__ import annotations

import abc
import time
from datetime import timedelta
from typing import Any, Callable, NamedTuple, Optional, Union

from muster import _native
from muster._native import (
    MembershipEvent,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousEvent,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousTimeoutError,
    Store,
    WaitReport,
)
from muster._rendezvous_values import (
    RendezvousInfo,
    RendezvousParameters,
    RendezvousSettings,
    RendezvousStoreInfo,
    RendezvousTimeout,
    check_node_counts,
    duration,
    integer,
    text,
    wrong_type,
)

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

Token = Any
"""What fences a write to a :class:`RendezvousBackend`; it means something to that backend only."""

_LOOK_SECONDS = 0.2  # between two looks of a handler that is not notified of events

# --- Handlers -------------------------------------------------------------------------------------


class RendezvousHandler(abc.ABC):
    """One node's part in a rendezvous. Derive from it for a backend of your own."""

    @abc.abstractmethod
    def get_backend(self) -> str:
        """The name of the backend."""

    @property
    def use_agent_store(self) -> bool:
        """Whether workers may use the store that this agent serves."""
        return False

    @abc.abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Leaves the present round, if any, and waits until this node is in the next one.

        Raises:
            RendezvousClosedError: The run is over.
            RendezvousTimeoutError: Not enough nodes came in time; says who was missing.
            RendezvousConnectionError: The backend is out of reach; says where it should be.
            RendezvousStateError: What the backend holds cannot be read.
            RendezvousGracefulExitError: The run ended while this node was a spare.
        """

    @abc.abstractmethod
    def is_closed(self) -> bool:
        """Whether the rendezvous is closed, as far as is known here (up to a second old)."""

    @abc.abstractmethod
    def set_closed(self, reason: str = "") -> None:
        """Closes the rendezvous permanently, for all nodes; they receive the reason."""

    @abc.abstractmethod
    def num_nodes_waiting(self) -> int:
        """Nodes that wait for the next round. Above 0, call :meth:`next_rendezvous`."""

    @abc.abstractmethod
    def get_run_id(self) -> str:
        """The name of the run."""

    @abc.abstractmethod
    def shutdown(self) -> bool:
        """Gives up this node's part; with most backends that closes the rendezvous for all.

        Returns whether it worked.
        """

    # What follows, torchelastic does not have.

    @property
    def node(self) -> str:
        """This node, as others see it: ``10.0.0.7_4711_0``. Empty where nodes have no names."""
        return ""

    @property
    def active_backend(self) -> str:
        """The backend that does the work.

        It differs from :meth:`get_backend` where a handler of ``muster`` has found that its server
        is PyTorch's, and uses ``c10d`` instead.
        """
        return self.get_backend()

    @property
    def is_host(self) -> bool:
        """Whether the others reach the rendezvous through this process, and lose it with it."""
        return False

    def await_event(self, timeout: Union[timedelta, float]) -> Optional[MembershipEvent]:
        """Waits until something happens to the round; None if that took longer than ``timeout``.

        After any event but ``CLOSED`` it is time for :meth:`next_rendezvous`. Handlers that are not
        notified of events look five times a second, and notice only waiting nodes and the end.
        """
        until = time.monotonic() + duration(timeout, "timeout").total_seconds()
        while True:
            if self.is_closed():
                return MembershipEvent(MembershipEvent.Kind.CLOSED)
            waiting = self.num_nodes_waiting()
            if waiting > 0:
                return MembershipEvent(MembershipEvent.Kind.NODES_WAITING, waiting=waiting)
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, _LOOK_SECONDS))

    def stop_waiting(self) -> bool:
        """An :meth:`await_event` under way, or else the next one, comes back at once.

        From any thread. False: this backend cannot; wait in shorter slices instead.
        """
        return False

    def leave(self) -> None:
        """Gives up this node's place in the round, and nothing else: the others go on."""
        return None

    def describe_wait(self) -> WaitReport:
        """Which nodes :meth:`next_rendezvous` is waiting for. Any thread, any time."""
        return WaitReport()


class NativeRendezvousHandler(RendezvousHandler):
    """A handler of muster's own; made by :func:`get_rendezvous_handler`.

    It belongs to its process: a fork has to make its own, and gets a RuntimeError otherwise.
    Several threads may use it. With ``muster`` and ``etcd`` everything works while another thread
    is in :meth:`next_rendezvous` or :meth:`await_event`; with other backends
    :meth:`describe_wait` does, and all the rest takes turns.
    """

    def __init__(self, native: _native.NativeRendezvousHandler) -> None:
        if not isinstance(native, _native.NativeRendezvousHandler):
            raise TypeError(f"{type(self).__name__} is made by get_rendezvous_handler()")
        self._native = native

    def get_backend(self) -> str:
        return self._native.get_backend()

    @property
    def use_agent_store(self) -> bool:
        return self._native.use_agent_store()

    def next_rendezvous(self) -> RendezvousInfo:
        store, rank, world_size, round, addr, port = self._native.next_rendezvous()
        return RendezvousInfo(store, rank, world_size, RendezvousStoreInfo(addr, port), round)

    def is_closed(self) -> bool:
        return self._native.is_closed()

    def set_closed(self, reason: str = "") -> None:
        self._native.set_closed(reason)

    def num_nodes_waiting(self) -> int:
        return self._native.num_nodes_waiting()

    def get_run_id(self) -> str:
        return self._native.get_run_id()

    def shutdown(self) -> bool:
        return self._native.shutdown()

    @property
    def node(self) -> str:
        return self._native.node()

    @property
    def active_backend(self) -> str:
        return self._native.active_backend()

    @property
    def is_host(self) -> bool:
        return self._native.is_host()

    def await_event(self, timeout: Union[timedelta, float]) -> Optional[MembershipEvent]:
        return self._native.await_event(timeout)

    def stop_waiting(self) -> bool:
        return self._native.stop_waiting()

    def leave(self) -> None:
        self._native.leave()

    def describe_wait(self) -> WaitReport:
        return self._native.describe_wait()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: backend '{self.get_backend()}', run '{self.get_run_id()}', "
            f"node '{self.node}'>"
        )


# --- The dynamic rendezvous, on any backend -------------------------------------------------------


class RendezvousBackend(abc.ABC):
    """One cell that all nodes of a dynamic rendezvous read and replace.

    Derive from it to keep the state of a rendezvous wherever you like. Its handler calls it from
    its own threads, one at a time. Raise RendezvousConnectionError if the cell is out of reach,
    RendezvousStateError if what it holds cannot be read; another exception becomes one of them,
    with the original as its ``__cause__``.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the backend."""

    @abc.abstractmethod
    def get_state(self) -> Optional[tuple[bytes, Token]]:
        """What is stored, and the token that fences the next write. None: nothing is."""

    @abc.abstractmethod
    def set_state(
        self, state: bytes, token: Optional[Token] = None
    ) -> Optional[tuple[bytes, Token, bool]]:
        """Writes if ``token`` is that of what is stored; without one, if nothing is stored.

        Returns what is stored afterwards, its token, and whether that is what was just written.
        None: nothing is stored after all.
        """


class C10dRendezvousBackend(RendezvousBackend):
    """The state in a key of a store, as torchrun keeps it.

    Args:
        store: Used by this backend alone: nobody else should block on it.
        run_id: The name of the run.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self._native = _native.NativeC10dBackend(store, run_id)

    @classmethod
    def _of(cls, native: _native.NativeC10dBackend) -> C10dRendezvousBackend:
        made = cls.__new__(cls)
        made._native = native
        return made

    @property
    def name(self) -> str:
        return "c10d"

    def get_state(self) -> Optional[tuple[bytes, Token]]:
        return self._native.get_state()

    def set_state(
        self, state: bytes, token: Optional[Token] = None
    ) -> Optional[tuple[bytes, Token, bool]]:
        return self._native.set_state(state, token)


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Store]:
    """A c10d backend, and another connection to its store for everything else.

    Options: ``store_type`` (tcp, file), ``is_host`` (default: whether the endpoint is this
    machine), ``read_timeout`` (seconds, 60).
    """
    native, store = _native.create_c10d_backend(params)
    return C10dRendezvousBackend._of(native), store


class RendezvousCost(NamedTuple):
    """What it has cost a dynamic rendezvous to agree."""

    reads: int
    """Of the backend."""
    writes: int
    """Attempts."""
    lost: int
    """Attempts that lost to another node's write."""


class DynamicRendezvousHandler(NativeRendezvousHandler):
    """Nodes come and go; all of them agree through one cell of a :class:`RendezvousBackend`.

    Lives in one rendezvous with torchrun's own handlers: same state, same keys.
    """

    @classmethod
    def from_backend(
        cls,
        run_id: str,
        store: Store,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: Optional[str] = None,
        timeout: Optional[RendezvousTimeout] = None,
        keep_alive_interval: float = 5,
        keep_alive_max_attempt: int = 3,
    ) -> DynamicRendezvousHandler:
        """A handler on any backend.

        Args:
            run_id: The name of the run, the same on all nodes.
            store: What ``next_rendezvous()`` hands out, under a prefix for each round.
            backend: Holds the state.
            min_nodes: A round needs so many.
            max_nodes: A round has no more than so many.
            local_addr: Under which others reach this machine; None: its name.
            timeout: How long the operations may take.
            keep_alive_interval: Seconds between two heartbeats.
            keep_alive_max_attempt: A node that is silent for so many of them is declared lost.
        """
        if timeout is not None and not isinstance(timeout, RendezvousTimeout):
            wrong_type("timeout", "a RendezvousTimeout", timeout)
        settings = RendezvousSettings(
            text(run_id, "run_id"),
            integer(min_nodes, "min_nodes"),
            integer(max_nodes, "max_nodes"),
            timeout or RendezvousTimeout(),
            duration(keep_alive_interval, "keep_alive_interval"),
            integer(keep_alive_max_attempt, "keep_alive_max_attempt"),
        )
        if not run_id:
            raise ValueError("run_id must be a name, the same on all nodes, not ''")
        check_node_counts(settings.min_nodes, settings.max_nodes)
        # What derives from ours may do something else in these methods.
        is_ours = type(backend) is C10dRendezvousBackend
        cell = backend._native if is_ours else backend  # type: ignore[attr-defined]
        return cls(_native.create_dynamic_handler(settings, store, cell, local_addr))

    @property
    def settings(self) -> RendezvousSettings:
        """What it was made with."""
        run_id, min_nodes, max_nodes, *times, attempts = self._native.settings()
        join, last_call, close, heartbeat, interval = (timedelta(milliseconds=t) for t in times)
        return RendezvousSettings(
            run_id,
            min_nodes,
            max_nodes,
            RendezvousTimeout(join, last_call, close, heartbeat),
            interval,
            attempts,
        )

    @property
    def cost(self) -> RendezvousCost:
        """What it has cost so far to agree."""
        return RendezvousCost(*self._native.cost())


def create_handler(
    store: Store, backend: RendezvousBackend, params: RendezvousParameters
) -> DynamicRendezvousHandler:
    """:meth:`DynamicRendezvousHandler.from_backend`, from parameters.

    Options, in seconds: ``join_timeout``, ``last_call_timeout``, ``close_timeout``,
    ``heartbeat_timeout``, ``keep_alive_interval``; and ``keep_alive_max_attempt``.
    """

    def seconds(option: str) -> Optional[timedelta]:
        given = params.get_as_int(option)
        return None if given is None else timedelta(seconds=given)

    def number(option: str, default: int) -> int:
        given = params.get_as_int(option, default)
        if given is None:
            raise TypeError(f"the rendezvous option '{option}' must be an integer, not None")
        return given

    return DynamicRendezvousHandler.from_backend(
        params.run_id,
        store,
        backend,
        params.min_nodes,
        params.max_nodes,
        params.local_addr,
        RendezvousTimeout(
            seconds("join_timeout"),
            seconds("last_call_timeout"),
            seconds("close_timeout"),
            seconds("heartbeat_timeout"),
        ),
        keep_alive_interval=number("keep_alive_interval", 5),
        keep_alive_max_attempt=number("keep_alive_max_attempt", 3),
    )


# --- Handlers by name -----------------------------------------------------------------------------

RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Makes handlers by the name of their backend."""

    def __init__(self) -> None:
        self._creators: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Makes a backend known. Again with the same creator: nothing happens.

        Args:
            backend: Its name.
            creator: Takes :class:`RendezvousParameters`, and returns the handler.
        """
        if not text(backend, "backend"):
            raise ValueError("backend must be a name, not ''")
        if not callable(creator):
            wrong_type("creator", "a callable", creator)
        known = self._creators.setdefault(backend, creator)
        if known != creator:
            raise ValueError(
                f"backend '{backend}' cannot be registered with {creator!r}: it is already, "
                f"with {known!r}"
            )

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """What the creator of ``params.backend`` makes.

        ValueError if there is none, RuntimeError if the handler says it is another backend's.
        """
        if not hasattr(params, "backend"):
            wrong_type("params", "a RendezvousParameters", params)
        try:
            creator = self._creators[params.backend]
        except KeyError as error:
            known = ", ".join(sorted(self._creators)) or "none"
            raise ValueError(
                f"the rendezvous backend '{params.backend}' is not registered; registered are: "
                f"{known}. Did you forget to call register()?"
            ) from error
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"the creator of the rendezvous backend '{params.backend}' has made a handler of "
                f"the backend '{handler.get_backend()}'"
            )
        return handler


def _create_native(params: RendezvousParameters) -> RendezvousHandler:
    return NativeRendezvousHandler(_native.create_rendezvous_handler(params))


def _create_dynamic(params: RendezvousParameters) -> RendezvousHandler:
    return DynamicRendezvousHandler(_native.create_rendezvous_handler(params))


rendezvous_handler_registry = RendezvousHandlerRegistry()
"""The registry of :func:`get_rendezvous_handler`."""

for _backend in ("muster", "etcd", "etcd-v2", "static"):
    rendezvous_handler_registry.register(_backend, _create_native)
rendezvous_handler_registry.register("c10d", _create_dynamic)
del _backend


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of this node, from :data:`rendezvous_handler_registry`.

    Options of ``muster`` and ``etcd``, in seconds where they are times, also fractions:
    ``join_timeout`` (600), ``last_call_timeout`` (30), ``reform_timeout`` (0.5),
    ``rejoin_window`` (10), ``expected`` (nodes), ``close_timeout`` (30), ``keep_alive_interval`` (1), ``keep_alive_max_attempt``, ``rank_policy`` (natural, text, stable,
    label), ``label``; of ``muster`` also ``is_host`` and ``grace`` (0.3); of ``etcd`` also
    ``protocol``, ``cacert``, ``cert``, ``key``, ``user``, ``password``, ``etcd_prefix`` and
    ``read_timeout``. Options of ``c10d``: those of :func:`create_backend` and
    :func:`create_handler`. Options of ``static``: ``rank`` (needed) and ``timeout`` (600).
    """
    return rendezvous_handler_registry.create_handler(params)


# --- The rest -------------------------------------------------------------------------------------


def parse_rendezvous_endpoint(endpoint: Optional[str], default_port: int) -> tuple[str, int]:
    """Host and port of ``host``, ``host:port``, ``[ipv6]``, ``[ipv6]:port``; empty: localhost."""
    return _native.parse_rendezvous_endpoint(endpoint, default_port)


def parse_rendezvous_config(config_str: str) -> dict[str, str]:
    """``k1=v1,k2=v2`` as options. ValueError says which item is wrong."""
    return _native.parse_rendezvous_config(config_str)


def set_event_sink(sink: Optional[Callable[[RendezvousEvent], object]]) -> None:
    """Calls ``sink`` with a record of each step of each rendezvous in this process. None: no more.

    It is called on the thread where it happens, and should not take long. What it raises goes to
    ``sys.unraisablehook`` and nowhere else.
    """
    _native.set_event_sink(sink)


# Tracebacks, help() and pickles name them as users do.
for _class in (
    MembershipEvent,
    RendezvousEvent,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousSettings,
    RendezvousStoreInfo,
    RendezvousTimeout,
    WaitReport,
):
    _class.__module__ = __name__
del _class
