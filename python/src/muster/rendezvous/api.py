"""Handlers, what they are made from and what they return: torch's module of this name."""

from __future__ import annotations

import abc
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Callable, ClassVar, Optional, Union

from muster import _native
from muster._checks import check_node_counts, duration, integer, text, wrong_type
from muster._native import (
    MembershipEvent,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousTimeoutError,
    Store,
    WaitReport,
)

__all__ = [
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeoutError",
    "rendezvous_handler_registry",
]

_LOOK_SECONDS = 0.2  # between two looks of a handler that is not notified of events

# --- What a round is ------------------------------------------------------------------------------


@dataclass
class RendezvousStoreInfo:
    """Where the workers of a round find their store."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"

    master_addr: str
    master_port: int

    @staticmethod
    def build(
        rank: int,
        store: Store,
        local_addr: Optional[str] = None,
        server_port: Optional[int] = None,
    ) -> RendezvousStoreInfo:
        """Rank 0 publishes its address and port in ``store``; every rank reads them.

        Waits for rank 0 as long as the store's timeout allows.

        Args:
            rank: Of this node.
            store: Shared by the nodes of one round.
            local_addr: Of rank 0; None or empty: this machine's name.
            server_port: Of rank 0; None or 0: a port that is free now.
        """
        return RendezvousStoreInfo(*_native.build_store_info(rank, store, local_addr, server_port))


class RendezvousInfo:
    """A node's place in a round."""

    __slots__ = ("_bootstrap_store_info", "_rank", "_round", "_store", "_world_size")

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        bootstrap_store_info: RendezvousStoreInfo,
        round: int = 0,
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._bootstrap_store_info = bootstrap_store_info
        self._round = round

    @property
    def store(self) -> Store:
        """Shared by the nodes of this round; what other rounds wrote is not in it."""
        return self._store

    @property
    def rank(self) -> int:
        """Of this node, from 0."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many nodes are in the round."""
        return self._world_size

    @property
    def bootstrap_store_info(self) -> RendezvousStoreInfo:
        """Where the workers of the round find their store."""
        return self._bootstrap_store_info

    @property
    def round(self) -> int:
        """Counts the rounds of a run, from 0. Always 0 of a static rendezvous."""
        return self._round

    def __repr__(self) -> str:
        master = self._bootstrap_store_info
        return (
            f"<RendezvousInfo: rank {self._rank} of {self._world_size}, round {self._round}, "
            f"master {master.master_addr}:{master.master_port}>"
        )


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
            RendezvousTimeoutError: Not enough nodes came in time; names the missing nodes.
            RendezvousConnectionError: The backend is out of reach; names its endpoint.
            RendezvousStateError: What the backend holds cannot be read.
            RendezvousGracefulExitError: The run ended while this node was a spare.
        """

    @abc.abstractmethod
    def is_closed(self) -> bool:
        """Whether the rendezvous is closed, as far as this node knows (up to a second old)."""

    @abc.abstractmethod
    def set_closed(self) -> None:
        """Closes the rendezvous permanently, for all nodes."""

    @abc.abstractmethod
    def num_nodes_waiting(self) -> int:
        """Nodes that wait for the next round. Above 0, call :meth:`next_rendezvous`."""

    @abc.abstractmethod
    def get_run_id(self) -> str:
        """The name of the run."""

    @abc.abstractmethod
    def shutdown(self) -> bool:
        """Ends this node's part; with most backends that closes the rendezvous for all.

        Returns whether it worked.
        """

    # The methods below are not in torchelastic.

    @property
    def active_backend(self) -> str:
        """The backend that does the work.

        It differs from :meth:`get_backend` where a handler of ``muster`` has found that its server
        is PyTorch's, and uses ``c10d`` instead.
        """
        return self.get_backend()

    def await_event(self, timeout: Union[timedelta, float]) -> Optional[MembershipEvent]:
        """Waits until something happens to the round; None if that took longer than ``timeout``.

        After any event but ``CLOSED`` it is time for :meth:`next_rendezvous`. Handlers that are not
        notified of events check five times a second, and notice only waiting nodes and the end.
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
        """Gives up this node's place in the round, and nothing else: the others continue."""
        return None

    def describe_wait(self) -> WaitReport:
        """Which nodes :meth:`next_rendezvous` is waiting for. Any thread, any time."""
        return WaitReport()


class RendezvousParameters:
    """The parameters of a handler.

    Args:
        backend: ``muster``, ``c10d``, ``static``, ``etcd``, ``etcd-v2``, or one that is registered.
        endpoint: Where its nodes meet, as the backend reads it; mostly ``host`` or ``host:port``.
        run_id: The name of the job, the same on all nodes.
        min_nodes: A round needs so many.
        max_nodes: A round has no more than so many.
        local_addr: Under which others reach this machine. None: the backend finds out.
        kwargs: Options of the backend, in ``config``: text and numbers, ``timedelta`` for times,
            any object for a custom backend.
    """

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise ValueError(
                "The rendezvous backend name must be a non-empty string, such as 'muster', "
                f"not {backend!r}."
            )
        self.backend: str = text(backend, "backend")
        self.endpoint: str = text(endpoint, "endpoint")
        self.run_id: str = text(run_id, "run_id")
        self.min_nodes: int = integer(min_nodes, "min_nodes")
        self.max_nodes: int = integer(max_nodes, "max_nodes")
        check_node_counts(self.min_nodes, self.max_nodes)
        self.local_addr: Optional[str] = (
            None if local_addr is None else text(local_addr, "local_addr")
        )
        self.config: dict[str, Any] = kwargs

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.config.items())
        return (
            f"RendezvousParameters(backend={self.backend!r}, endpoint={self.endpoint!r}, "
            f"run_id={self.run_id!r}, min_nodes={self.min_nodes}, max_nodes={self.max_nodes}, "
            f"local_addr={self.local_addr!r}{options})"
        )

    def get(self, key: str, default: Any = None) -> Any:
        """The option, as it was given."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: Optional[bool] = None) -> Optional[bool]:
        """The option as a bool: also 1, true, t, yes, y, 0, false, f, no, n, in any case.

        None stays None. ValueError, naming the option, for any other value.
        """
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).lower() if isinstance(value, (int, str)) else None
        if word in ("1", "true", "t", "yes", "y"):
            return True
        if word in ("0", "false", "f", "no", "n"):
            return False
        raise ValueError(
            f"The rendezvous configuration option '{key}' does not represent a valid boolean "
            f"value: {value!r}"
        )

    def get_as_int(self, key: str, default: Optional[int] = None) -> Optional[int]:
        """The option as an int, as ``int()`` converts it. None stays None.

        ValueError, naming the option, if it cannot be converted.
        """
        value = self.get(key, default)
        if value is None:
            return None
        try:
            return int(value)
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer "
                f"value: {value!r}"
            ) from error


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
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if not callable(creator):
            wrong_type("creator", "a callable", creator)
        known = self._creators.setdefault(backend, creator)
        if known != creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it "
                f"is already registered with '{known}'."
            )

    def __contains__(self, backend: str) -> bool:
        return backend in self._creators

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """The handler that the creator of ``params.backend`` makes.

        ValueError if there is none, RuntimeError if the handler reports another backend.
        """
        if not hasattr(params, "backend"):
            wrong_type("params", "a RendezvousParameters", params)
        try:
            creator = self._creators[params.backend]
        except KeyError as error:
            known = ", ".join(sorted(self._creators)) or "none"
            raise ValueError(
                f"The rendezvous backend '{params.backend}' is not registered. Did you forget to "
                f"call `register`? Registered are: {known}."
            ) from error
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested "
                f"backend '{params.backend}': see what its creator returns."
            )
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()
"""The registry of :func:`muster.rendezvous.get_rendezvous_handler`."""
