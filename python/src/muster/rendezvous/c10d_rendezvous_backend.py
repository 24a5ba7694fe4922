"""The state of a rendezvous in a store: torch's module of this name."""

from __future__ import annotations

from typing import Optional

from muster import _native
from muster._native import Store
from muster.rendezvous.api import RendezvousParameters
from muster.rendezvous.dynamic_rendezvous import RendezvousBackend, Token

__all__ = ["DEFAULT_PORT", "C10dRendezvousBackend", "create_backend"]

DEFAULT_PORT = 29400
"""The port of an endpoint that names none."""


class C10dRendezvousBackend(RendezvousBackend):
    """The state in a key of a store, as torchrun keeps it.

    Args:
        store: Used by this backend alone: no other call should block on it.
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
