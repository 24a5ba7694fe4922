"""muster: stores, rendezvous and a launcher for elastic distributed training.

Names are those of torch.distributed and torchelastic::

    import muster

    store = muster.TCPStore("head", 29500, world_size=4, is_master=is_head)
    store.set("model", "ready")

- stores: :class:`TCPStore`, :class:`FileStore`, :class:`HashStore`, :class:`PrefixStore`,
  :class:`EtcdStore`, their base :class:`Store`, and :class:`StoreServer`
- :mod:`muster.rendezvous`: how the nodes of a job find each other
- :func:`muster.launch`: an elastic job from Python or a notebook
- :mod:`muster.utils`: barriers, exchanges, free ports
- :mod:`muster.torch`: a muster store as a ``torch.distributed.Store``
- :mod:`muster.torchrun`: the plugin behind ``torchrun --rdzv-backend=muster``

Importing muster does not import torch. If torch is loaded, before or after, each library accepts
the other's objects: functions of muster accept torch's stores, torch's process groups and RPC
accept muster's stores, and code that catches torch's RendezvousError catches muster's.

The errors of stores have the names and the order of torch's, but are classes of their own, with
torch or without it: ``except muster.DistStoreError`` catches what muster raises,
``except torch.distributed.DistStoreError`` what torch raises; both are RuntimeErrors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from muster import _libraries, _native, _torch_link  # noqa: F401  (the first loads the second)
from muster._native import (
    DistError,
    DistNetworkError,
    DistStoreError,
    EtcdStore,
    FileStore,
    HashStore,
    PrefixStore,
    QueueEmptyError,
    Store,
    StoreServer,
    StoreTimeoutError,
    TCPStore,
    __version__,
)

if TYPE_CHECKING:
    from muster import rendezvous, torch, torchrun, utils
    from muster.launching import LaunchError, WorkerFailure, launch

__all__ = [
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "EtcdStore",
    "FileStore",
    "HashStore",
    "LaunchError",
    "PrefixStore",
    "QueueEmptyError",
    "Store",
    "StoreServer",
    "StoreTimeoutError",
    "TCPStore",
    "WorkerFailure",
    "__version__",
    "launch",
    "rendezvous",
    "torch",
    "torchrun",
    "utils",
]

# Tracebacks, help() and pickles name them as users do.
for _name, _thing in vars(_native).items():
    if isinstance(_thing, type):
        _thing.__module__ = "muster" if _name in __all__ else "muster.rendezvous"
del _name, _thing

_torch_link.install()

# Loaded on their first use: what does not need them starts sooner, and without torch.
_LAUNCHING = ("LaunchError", "WorkerFailure", "launch")
_MODULES = ("rendezvous", "torch", "torchrun", "utils")


def __getattr__(name: str) -> Any:
    if name in _LAUNCHING:
        return getattr(importlib.import_module("muster.launching"), name)
    if name in _MODULES:
        return importlib.import_module(f"muster.{name}")
    raise AttributeError(f"module 'muster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
