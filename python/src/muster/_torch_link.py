"""Connects muster and torch if both are loaded. Nothing here imports torch.

- Stores: torch's PrefixStore accepts muster's stores. Torch wraps the store of each process group
  and of RPC in one, so ``init_process_group(store=muster.TCPStore(...))`` works.
- Rendezvous errors: muster's classes also derive from torch's classes of the same names, so code
  that catches torch's classes catches muster's errors.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Optional

from muster import _native

_ERRORS = (  # The root first.
    "RendezvousError",
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousGracefulExitError",
    "RendezvousStateError",
    "RendezvousTimeoutError",
)


def _link_stores(distributed: Any) -> None:
    plain = distributed.PrefixStore.__init__

    @functools.wraps(plain)
    def init(self: Any, prefix: str, store: Any) -> None:
        if isinstance(store, _native.Store):
            store = importlib.import_module("muster.torch").as_torch_store(store)
        plain(self, prefix, store)

    distributed.PrefixStore.__init__ = init


def _link_errors(api: Any) -> None:
    for name in _ERRORS:
        ours, theirs = getattr(_native, name), getattr(api, name, None)
        if theirs is not None and not issubclass(ours, theirs):
            ours.__bases__ = (*ours.__bases__, theirs)


_LINKS = {
    "torch.distributed.distributed_c10d": _link_stores,
    "torch.distributed.elastic.rendezvous.api": _link_errors,
}


class _AfterImport:
    """Links torch's modules right after they are loaded."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name not in _LINKS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_link(module: ModuleType) -> None:
                load(module)
                _link(module)

            spec.loader.exec_module = load_and_link  # type: ignore[method-assign]
        return spec


def _link(module: ModuleType) -> None:
    # A version of torch that does not fit must remain importable.
    with contextlib.suppress(AttributeError, TypeError):
        _LINKS[module.__name__](module)


def install() -> None:
    """Called once, when muster is imported."""
    for name in _LINKS.keys() & sys.modules.keys():
        _link(sys.modules[name])
    sys.meta_path.insert(0, _AfterImport())
