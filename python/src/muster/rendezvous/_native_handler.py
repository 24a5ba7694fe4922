"""The handlers that come with muster."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Optional, Union

from muster import _native
from muster._native import MembershipEvent, WaitReport
from muster.rendezvous.api import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

_logger = logging.getLogger("muster.rendezvous")


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
        if _logger.isEnabledFor(logging.INFO) and self.is_host:
            self._log(logging.INFO, "hosts")

    def _log(self, level: int, what: str) -> None:
        if _logger.isEnabledFor(level):
            # A static rendezvous has no names for its nodes.
            node = f"node '{self.node}'" if self.node else "this node"
            _logger.log(level, "%s %s the rendezvous '%s'", node, what, self.get_run_id())

    def get_backend(self) -> str:
        return self._native.get_backend()

    @property
    def use_agent_store(self) -> bool:
        return self._native.use_agent_store()

    def next_rendezvous(self) -> RendezvousInfo:
        self._log(logging.INFO, "attempts to join the next round of")
        store, rank, world_size, round, addr, port = self._native.next_rendezvous()
        self._log(logging.INFO, f"is rank {rank} of {world_size}: it has joined round {round} of")
        return RendezvousInfo(store, rank, world_size, RendezvousStoreInfo(addr, port), round)

    def is_closed(self) -> bool:
        return self._native.is_closed()

    def set_closed(self, reason: str = "") -> None:
        """Closes the rendezvous permanently, for all nodes; they receive the reason."""
        self._native.set_closed(reason)
        self._log(logging.INFO, "has closed")

    def num_nodes_waiting(self) -> int:
        return self._native.num_nodes_waiting()

    def get_run_id(self) -> str:
        return self._native.get_run_id()

    def shutdown(self) -> bool:
        done = self._native.shutdown()
        if done:
            self._log(logging.INFO, "has ended")
        else:
            self._log(logging.WARNING, "failed to shut down")
        return done

    @property
    def node(self) -> str:
        """This node, as others see it: ``10.0.0.7_4711_0``. Empty where nodes have no names."""
        return self._native.node()

    @property
    def active_backend(self) -> str:
        return self._native.active_backend()

    @property
    def is_host(self) -> bool:
        """Whether the others reach the rendezvous through this process, and lose it with it."""
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
