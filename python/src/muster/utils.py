"""Helpers around a store and the network, with torchelastic's names.

They are those of ``torch.distributed.elastic.utils.store`` and
``torch.distributed.elastic.utils.distributed``, use the same keys, and work with every
:class:`muster.Store` and with torch's stores. Times may be a :class:`datetime.timedelta` or a
number of seconds.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Optional, Union

from muster import _native
from muster._checks import duration, wrong_type
from muster._native import (
    Store,
    StoreTimeoutError,
    TCPStore,
    barrier,
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

_logger = logging.getLogger(__name__)


class _MembersMissing(StoreTimeoutError, TimeoutError):
    """A TimeoutError, because torch's function raises one."""


def create_c10d_store(
    is_server: bool,
    server_addr: str,
    server_port: int = -1,
    world_size: int = 1,
    timeout: Union[timedelta, float] = 600,
    wait_for_workers: bool = True,
    retries: int = 3,
    use_libuv: Optional[bool] = None,
) -> TCPStore:
    """A TCPStore, with a server if requested.

    Args:
        server_port: -1: a free one, for a world of one; ``retries`` attempts to get it.
        timeout: After it, missing members are a StoreTimeoutError that is also a TimeoutError.
        use_libuv: Without effect: there is one kind of server.
    """
    if use_libuv is not None:
        _logger.warning("The argument use_libuv of create_c10d_store() has no effect; leave it out")
    _logger.info(
        "Opening a store at %s:%s: world_size %s, is_server %s, timeout %s",
        server_addr,
        server_port,
        world_size,
        is_server,
        timeout,
    )
    try:
        store = _native.create_c10d_store(
            is_server,
            server_addr,
            server_port,
            world_size,
            timeout,
            wait_for_workers,
            retries,
            use_libuv,
        )
    except StoreTimeoutError as error:
        raise _MembersMissing(*error.args) from error
    _logger.info("The store at %s:%d is open", server_addr, store.port)
    return store


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
