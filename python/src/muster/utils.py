"""Helpers around a store and the network, with torchelastic's names.

They are those of ``torch.distributed.elastic.utils.store`` and
``torch.distributed.elastic.utils.distributed``, use the same keys, and work with every
:class:`muster.Store` and with torch's stores. Times may be a :class:`datetime.timedelta` or a
number of seconds.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Union

from muster._checks import duration, wrong_type
from muster._native import (
    Store,
    barrier,
    create_c10d_store,
    get_all,
    get_free_port,
    listen_on_free_port,
    synchronize,
)

__all__ = [
    "barrier",
    "create_c10d_store",
    "get_all",
    "get_free_port",
    "get_socket_with_port",
    "store_timeout",
    "synchronize",
]


def get_socket_with_port() -> socket.socket:
    """A socket that listens on a port that was free: no other process can take it meanwhile.

    ``TCPStore(..., master_listen_fd=sock.detach())`` serves on it, and so does
    ``StoreServer(listen_fd=sock.detach())``.
    """
    return socket.socket(fileno=listen_on_free_port())


@contextlib.contextmanager
def store_timeout(store: Store, timeout: Union[timedelta, float]) -> Iterator[None]:
    """Gives a store another timeout inside a ``with`` block."""
    if not hasattr(store, "set_timeout"):  # torch's stores have it, too
        wrong_type("store", "a muster.Store", store)
    before = store.timeout
    store.set_timeout(duration(timeout, "timeout"))
    try:
        yield
    finally:
        store.set_timeout(before)
