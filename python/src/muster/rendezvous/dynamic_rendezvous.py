"""A rendezvous in which nodes come and go, on any backend: torch's module of this name."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Optional, Union

from muster import _native
from muster._checks import check_node_counts, duration, integer, text, wrong_type
from muster._native import Store
from muster.rendezvous._native_handler import NativeRendezvousHandler
from muster.rendezvous.api import RendezvousParameters

__all__ = [
    "DynamicRendezvousHandler",
    "RendezvousBackend",
    "RendezvousCost",
    "RendezvousSettings",
    "RendezvousTimeout",
    "Token",
    "create_handler",
]

Token = Any
"""What fences a write to a :class:`RendezvousBackend`; it means something to that backend only."""


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
        """The stored state, and the token that fences the next write. None: nothing is stored."""

    @abc.abstractmethod
    def set_state(
        self, state: bytes, token: Optional[Token] = None
    ) -> Optional[tuple[bytes, Token, bool]]:
        """Writes if ``token`` is that of what is stored; without one, if nothing is stored.

        Returns what is stored afterwards, its token, and whether that is what was just written.
        None: not known; :meth:`get_state` is called next.
        """


_TIMEOUTS = ("join", "last_call", "close", "heartbeat")


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
            raise ValueError(f"The {name} timeout ({timeout}) must be positive.")
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
    cas_backoff_max_seconds: float = 0.0
    """The longest random pause after another node's write came first; longer for many nodes."""


class RendezvousCost(NamedTuple):
    """The cost of a dynamic rendezvous so far."""

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
        keep_alive_interval: Union[timedelta, float] = 5,
        keep_alive_max_attempt: int = 3,
        cas_backoff_max_seconds: float = 0.0,
    ) -> DynamicRendezvousHandler:
        """A handler on any backend.

        Args:
            run_id: The name of the run, the same on all nodes.
            store: What ``next_rendezvous()`` returns, under a prefix for each round.
            backend: Holds the state.
            min_nodes: A round needs so many.
            max_nodes: A round has no more than so many.
            local_addr: Under which others reach this machine; None: its name.
            timeout: How long the operations may take.
            keep_alive_interval: Between two heartbeats; seconds, or a timedelta.
            keep_alive_max_attempt: A node that is silent for so many of them is declared lost.
            cas_backoff_max_seconds: The longest random pause after another node's write came
                first; longer where the number of nodes requires it.
        """
        # Torch's class has the same attributes.
        if timeout is not None and not all(hasattr(timeout, name) for name in _TIMEOUTS):
            wrong_type("timeout", "a RendezvousTimeout", timeout)
        settings = RendezvousSettings(
            text(run_id, "run_id"),
            integer(min_nodes, "min_nodes"),
            integer(max_nodes, "max_nodes"),
            timeout or RendezvousTimeout(),
            duration(keep_alive_interval, "keep_alive_interval"),
            integer(keep_alive_max_attempt, "keep_alive_max_attempt"),
            cas_backoff_max_seconds,
        )
        if not run_id:
            raise ValueError("The run id must be a non-empty string (run_id).")
        check_node_counts(settings.min_nodes, settings.max_nodes)
        from muster.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

        # A class derived from muster's may override these methods.
        is_ours = type(backend) is C10dRendezvousBackend
        cell = backend._native if is_ours else backend  # type: ignore[attr-defined]
        return cls(_native.create_dynamic_handler(settings, store, cell, local_addr))

    @property
    def settings(self) -> RendezvousSettings:
        """The settings that it was made with."""
        run_id, min_nodes, max_nodes, *times, attempts = self._native.settings()
        join, last_call, close, heartbeat, interval, backoff = (
            timedelta(milliseconds=t) for t in times
        )
        return RendezvousSettings(
            run_id,
            min_nodes,
            max_nodes,
            RendezvousTimeout(join, last_call, close, heartbeat),
            interval,
            attempts,
            backoff.total_seconds(),
        )

    @property
    def cost(self) -> RendezvousCost:
        """Its cost so far."""
        return RendezvousCost(*self._native.cost())


def create_handler(
    store: Store, backend: RendezvousBackend, params: RendezvousParameters
) -> DynamicRendezvousHandler:
    """:meth:`DynamicRendezvousHandler.from_backend`, from parameters.

    Options, in seconds: ``join_timeout``, ``last_call_timeout``, ``close_timeout``,
    ``heartbeat_timeout``, ``keep_alive_interval``, ``cas_backoff_max_seconds``; and
    ``keep_alive_max_attempt``.
    """

    def seconds(option: str) -> Optional[timedelta]:
        if isinstance(params.get(option), timedelta):
            return params.get(option)  # type: ignore[no-any-return]
        given = params.get_as_int(option)
        return None if given is None else timedelta(seconds=given)

    def number(option: str, default: int) -> int:
        given = params.get_as_int(option, default)
        if given is None:
            raise TypeError(
                f"The rendezvous configuration option '{option}' must be an integer, not None"
            )
        return given

    backoff = params.get("cas_backoff_max_seconds", 0.0)
    try:
        backoff = backoff.total_seconds() if isinstance(backoff, timedelta) else float(backoff)
    except (TypeError, ValueError):
        raise ValueError(
            f"cas_backoff_max_seconds must be a number of seconds, not {backoff!r}"
        ) from None
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
        keep_alive_interval=seconds("keep_alive_interval") or number("keep_alive_interval", 5),
        keep_alive_max_attempt=number("keep_alive_max_attempt", 3),
        cas_backoff_max_seconds=backoff,
    )
