"""The values of muster.rendezvous: the parameters of handlers, and the description of a round."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, Optional

from muster import _native
from muster._native import Store


def wrong_type(argument: str, wanted: str, given: object) -> NoReturn:
    raise TypeError(f"{argument} must be {wanted}, not {type(given).__name__}")


def text(given: object, argument: str) -> str:
    return given if isinstance(given, str) else wrong_type(argument, "a str", given)


def integer(given: object, argument: str) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        wrong_type(argument, "an int", given)
    return int(given.__index__())


def duration(given: object, argument: str) -> timedelta:
    if isinstance(given, timedelta):
        return given
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        wrong_type(argument, "a datetime.timedelta or a number of seconds", given)
    try:
        return timedelta(seconds=given)
    except (OverflowError, ValueError):
        raise ValueError(f"{argument} must be a possible number of seconds, not {given}") from None


def check_node_counts(min_nodes: int, max_nodes: int) -> None:
    if min_nodes < 1:
        raise ValueError(f"min_nodes must be above 0, not {min_nodes}")
    if max_nodes < min_nodes:
        raise ValueError(f"max_nodes ({max_nodes}) must not be below min_nodes ({min_nodes})")


# --- What a handler is made from ------------------------------------------------------------------


class RendezvousParameters:
    """The parameters of a handler.

    Args:
        backend: ``muster``, ``c10d``, ``static``, ``etcd``, ``etcd-v2``, or one that is registered.
        endpoint: Where its nodes meet, as the backend reads it; mostly ``host`` or ``host:port``.
        run_id: The name of the job, the same on all nodes.
        min_nodes: A round needs so many.
        max_nodes: A round has no more than so many.
        local_addr: Under which others reach this machine. None: the backend finds out.
        kwargs: Options of the backend: None, bool, int, float or str. They are in ``config``.
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
        self.backend: str = text(backend, "backend")
        if not backend:
            raise ValueError("backend must be a name, such as 'muster', not ''")
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
        raise ValueError(f"the rendezvous option '{key}' must be a boolean, not {value!r}")

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
                f"the rendezvous option '{key}' must be an integer, not {value!r}"
            ) from error


class RendezvousTimeout:
    """How long the operations of a dynamic rendezvous may take. None: the default.

    Args:
        join: One ``next_rendezvous()``; 600 s.
        last_call: From reaching ``min_nodes`` to closing the doors; 30 s.
        close: Marking the rendezvous closed; 30 s.
        heartbeat: One keep-alive; 5 s.
    """

    __slots__ = ("_close", "_heartbeat", "_join", "_last_call")

    def __init__(
        self,
        join: Optional[timedelta] = None,
        last_call: Optional[timedelta] = None,
        close: Optional[timedelta] = None,
        heartbeat: Optional[timedelta] = None,
    ) -> None:
        self._join = self._checked(join, "join", 600)
        self._last_call = self._checked(last_call, "last_call", 30)
        self._close = self._checked(close, "close", 30)
        self._heartbeat = self._checked(heartbeat, "heartbeat", 5)

    @staticmethod
    def _checked(given: Optional[timedelta], name: str, default: int) -> timedelta:
        timeout = timedelta(seconds=default) if given is None else duration(given, name)
        if timeout <= timedelta(0):
            raise ValueError(f"the {name} timeout must be above zero, not {timeout}")
        return timeout

    @property
    def join(self) -> timedelta:
        """One ``next_rendezvous()``."""
        return self._join

    @property
    def last_call(self) -> timedelta:
        """From reaching ``min_nodes`` to closing the doors."""
        return self._last_call

    @property
    def close(self) -> timedelta:
        """Marking the rendezvous closed."""
        return self._close

    @property
    def heartbeat(self) -> timedelta:
        """One keep-alive."""
        return self._heartbeat

    def __repr__(self) -> str:
        return (
            f"RendezvousTimeout(join={self._join!r}, last_call={self._last_call!r}, "
            f"close={self._close!r}, heartbeat={self._heartbeat!r})"
        )


@dataclass(eq=False, frozen=True)
class RendezvousSettings:
    """The options that all nodes of a dynamic rendezvous share."""

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int
    """A node that is silent for so many intervals is declared lost."""


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
        local_addr: Optional[str],
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
