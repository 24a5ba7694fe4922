"""muster's stores for PyTorch, as ``torch.distributed.Store``.

``init_process_group(store=store)``, RPC and ``torch.distributed.PrefixStore`` accept a muster
store. Other functions of torch need ``as_torch_store(store)``.

Importing this module imports torch; ``import muster`` alone never does.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Union

import torch.distributed as dist

import muster

__all__ = ["as_torch_store"]

Value = Union[str, bytes]


@contextmanager
def _torch_errors() -> Iterator[None]:
    """Turns muster's exceptions into those that torch's code catches: the classes of the same
    names."""
    try:
        yield
    except muster.QueueEmptyError as error:
        raise dist.QueueEmptyError(str(error)) from error
    except muster.DistStoreError as error:
        raise dist.DistStoreError(str(error)) from error
    except muster.DistNetworkError as error:
        raise dist.DistNetworkError(str(error)) from error
    except muster.DistError as error:
        raise dist.DistError(str(error)) from error


class AdaptedStore(dist.Store):
    """A muster store with torch's interface, called from Python and from torch's C++.

    torch's C++ calls ``getNumKeys`` and ``deleteKey`` by these names; this fails when no Python
    code holds the object any more. :func:`as_torch_store` keeps it.
    """

    def __init__(self, store: muster.Store) -> None:
        super().__init__()
        self._muster_store = store
        self._timeout_told = store.timeout
        super().set_timeout(self._timeout_told)

    def _told(self) -> muster.Store:
        """The store, with the timeout that torch has set meanwhile."""
        timeout = self.timeout  # torch's own; also set through a PrefixStore around this one
        if timeout != self._timeout_told:
            self._muster_store.set_timeout(timeout)
            self._timeout_told = timeout
        return self._muster_store

    def set(self, key: str, value: Value) -> None:
        with _torch_errors():
            self._told().set(key, value)

    def get(self, key: str) -> bytes:
        with _torch_errors():
            return self._told().get(key)

    def add(self, key: str, value: int) -> int:
        with _torch_errors():
            return self._told().add(key, value)

    def compare_set(self, key: str, expected_value: Value, desired_value: Value) -> bytes:
        with _torch_errors():
            return self._told().compare_set(key, expected_value, desired_value)

    def check(self, keys: Sequence[str]) -> bool:
        with _torch_errors():
            return self._told().check(list(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:  # type: ignore[override]
        with _torch_errors():
            self._told().wait(list(keys), timeout)

    def delete_key(self, key: str) -> bool:
        with _torch_errors():
            return self._told().delete_key(key)

    deleteKey = delete_key

    def num_keys(self) -> int:
        with _torch_errors():
            return self._told().num_keys()

    getNumKeys = num_keys

    def list_keys(self) -> list[str]:
        with _torch_errors():
            return self._told().list_keys()

    def append(self, key: str, value: Value) -> None:
        with _torch_errors():
            self._told().append(key, value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        with _torch_errors():
            return self._told().multi_get(list(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        with _torch_errors():
            self._told().multi_set(list(keys), list(values))

    def has_extended_api(self) -> bool:
        return self._muster_store.has_extended_api()

    def queue_push(self, key: str, value: Value) -> None:
        with _torch_errors():
            self._told().queue_push(key, value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        with _torch_errors():
            return self._told().queue_pop(key, block)

    def queue_len(self, key: str) -> int:
        with _torch_errors():
            return self._told().queue_len(key)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        with _torch_errors():
            self._told().barrier(key, world_size, timeout)

    def clone(self) -> dist.Store:
        with _torch_errors():
            return _keep(self._muster_store.clone())


# torch's C++ may hold a store longer than any Python code, without holding its Python half, and
# nothing reports when it lets go. So each store that was adapted is kept once.
_kept: dict[int, tuple[muster.Store, dist.Store]] = {}
_kept_lock = threading.RLock()  # A PrefixStore keeps its inner store, too.
atexit.register(_kept.clear)


def _keep(store: muster.Store) -> dist.Store:
    with _kept_lock:
        if id(store) not in _kept:
            _kept[id(store)] = (store, _adapted(store))
        return _kept[id(store)][1]


def _adapted(store: muster.Store) -> dist.Store:
    if isinstance(store, muster.PrefixStore):
        return dist.PrefixStore(store.prefix, as_torch_store(store.underlying_store))
    if isinstance(store, muster.TCPStore):
        # Its server works with torch's client, too: no Python between torch and its store.
        with _network_errors(store):
            return dist.TCPStore(
                store.host,
                store.port,
                is_master=False,
                wait_for_workers=False,
                timeout=store.timeout,
            )
    return AdaptedStore(store)


@contextmanager
def _network_errors(store: muster.TCPStore) -> Iterator[None]:
    try:
        yield
    except (dist.DistError, ValueError, RuntimeError) as error:
        raise dist.DistNetworkError(
            f"torch's TCPStore could not connect to the server of this muster.TCPStore, "
            f"{store.host}:{store.port}: {error}"
        ) from error


def as_torch_store(store: muster.Store) -> dist.Store:
    """A ``torch.distributed.Store`` with the same keys and values as ``store``.

    For a :class:`muster.TCPStore` that is a ``torch.distributed.TCPStore``, a new client of the
    same server; for a :class:`muster.PrefixStore` a ``torch.distributed.PrefixStore`` around what
    its inner store becomes; for all others an adapter that calls ``store``. Errors are torch's:
    ``DistStoreError``, ``DistNetworkError``.

    The adapter has the store's timeout. What ``set_timeout`` changes afterwards holds for both,
    except with a TCPStore, whose client has its own.

    ``store`` and its adapter live as long as the process, since torch may use them as long: make
    one store for a process group, not one for each call. For the same store the adapter is the
    same, too.
    """
    if isinstance(store, dist.Store):
        return store
    if not isinstance(store, muster.Store):
        raise TypeError(f"store must be a muster.Store, not {type(store).__name__}")
    return _keep(store)
