"""Handlers by the name of their backend: torch's module of this name."""

from __future__ import annotations

import logging
import sys

from muster import _native
from muster.rendezvous._native_handler import NativeRendezvousHandler
from muster.rendezvous.api import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from muster.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from muster.rendezvous.static_tcp_rendezvous import create_rdzv_handler

__all__ = ["get_rendezvous_handler"]

_PLUGINS = "torchrun.handlers"  # the group of entry points in which torchrun looks for backends


def _create_native(params: RendezvousParameters) -> RendezvousHandler:
    return NativeRendezvousHandler(_native.create_rendezvous_handler(params))


def _create_dynamic(params: RendezvousParameters) -> RendezvousHandler:
    return DynamicRendezvousHandler(_native.create_rendezvous_handler(params))


for _backend in ("muster", "etcd", "etcd-v2"):
    rendezvous_handler_registry.register(_backend, _create_native)
rendezvous_handler_registry.register("c10d", _create_dynamic)
rendezvous_handler_registry.register("static", create_rdzv_handler)
del _backend


def _register_plugin(backend: str) -> None:
    """Registers a backend of another package, if a package has it."""
    from importlib import metadata  # Takes longer to import than the rest of muster.

    if sys.version_info >= (3, 10):
        found = metadata.entry_points(group=_PLUGINS, name=backend)
    else:
        found = [each for each in metadata.entry_points().get(_PLUGINS, ()) if each.name == backend]
    for plugin in found:
        try:
            rendezvous_handler_registry.register(backend, plugin.load()())
        except Exception:
            logging.getLogger("muster.rendezvous").warning(
                "The plug-in of rendezvous backend '%s' failed: %s",
                backend,
                plugin.value,
                exc_info=True,
            )


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of this node, from :data:`rendezvous_handler_registry`.

    A backend that is not registered may come from another package, as with torchrun: an entry point
    of the group ``torchrun.handlers`` that has its name.

    Options of ``muster`` and ``etcd``, in seconds where they are times, also fractions:
    ``join_timeout`` (600), ``last_call_timeout`` (30), ``reform_timeout`` (0.5),
    ``rejoin_window`` (10), ``expected`` (nodes), ``close_timeout`` (30),
    ``keep_alive_interval`` (1), ``keep_alive_max_attempt``, ``rank_policy`` (natural, text, stable,
    label), ``label``; of ``muster`` also ``is_host`` and ``grace`` (0.3); of ``etcd`` also
    ``protocol``, ``cacert``, ``cert``, ``key``, ``user``, ``password``, ``etcd_prefix`` and
    ``read_timeout``. Options of ``c10d``: those of :func:`create_backend` and
    :func:`create_handler`. Options of ``static``: ``rank`` (needed) and ``timeout`` (600).
    """
    backend = getattr(params, "backend", None)
    if isinstance(backend, str) and backend not in rendezvous_handler_registry:
        _register_plugin(backend)
    return rendezvous_handler_registry.create_handler(params)
