"""torchrun's rendezvous backend ``muster``, found through the entry point ``torchrun.handlers``.

::

    torchrun --rdzv-backend=muster --rdzv-endpoint=HOST[:PORT] --rdzv-id=JOB --nnodes=2:4 train.py
    torchrun --rdzv-backend=muster --rdzv-endpoint=etcd://HOST:2379,HOST2:2379 ...

The endpoint is that of a ``muster serve`` (default: this machine, port 29400). If no server runs
there and it is this machine, the first node serves for all nodes. With ``etcd://`` the nodes meet
in etcd, and no machine is special.

Options of ``--rdzv-conf``, in seconds where they are times: ``join_timeout`` (600),
``last_call_timeout`` (30), ``reform_timeout`` (0.5), ``rejoin_window`` (10), ``expected``,
``close_timeout`` (30), ``keep_alive_interval``, ``keep_alive_max_attempt``, ``rank_policy``,
``label``, ``is_host`` and ``grace`` as everywhere in muster; ``read_timeout`` (60) for operations
of the agents' store; ``contact_timeout`` (30): how
long the rendezvous may be out of reach while workers run. ``timeout``, which torchrun always
gives, is for other backends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

__all__ = ["create_handler", "handler_factory"]


def create_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of this node. ValueError, with its name, for an invalid option."""
    # Here, not above: torch loads its plug-ins while it is being imported itself.
    from muster._torchrun_handler import MusterRendezvousHandler

    return MusterRendezvousHandler(params)


def handler_factory() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """The entry point: torch calls it and registers what it returns."""
    return create_handler
