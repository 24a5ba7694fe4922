"""A rendezvous in which every node is given its rank: torch's module of this name."""

from __future__ import annotations

from datetime import timedelta
from typing import Union

from muster import _native
from muster.rendezvous._native_handler import NativeRendezvousHandler
from muster.rendezvous.api import RendezvousParameters
from muster.rendezvous.utils import parse_rendezvous_endpoint

__all__ = ["StaticTCPRendezvous", "create_rdzv_handler"]


class StaticTCPRendezvous(NativeRendezvousHandler):
    """A rendezvous of known nodes with given ranks; rank 0 serves the store.

    Args:
        master_addr: The address of rank 0.
        master_port: The port of its store.
        rank: The rank of this node.
        world_size: The number of nodes.
        run_id: The name of the run, the same on all nodes.
        timeout: Seconds until all nodes must have joined.
    """

    def __init__(
        self,
        master_addr: str,
        master_port: int,
        rank: int,
        world_size: int,
        run_id: str,
        timeout: Union[timedelta, int],
    ) -> None:
        host = f"[{master_addr}]" if ":" in master_addr else master_addr
        self._open(
            RendezvousParameters(
                "static",
                f"{host}:{master_port}",
                run_id,
                world_size,
                world_size,
                rank=rank,
                timeout=timeout,
            )
        )

    def _open(self, params: RendezvousParameters) -> None:
        super().__init__(_native.create_rendezvous_handler(params))
        self.master_addr, self.master_port = parse_rendezvous_endpoint(params.endpoint, -1)
        self.rank = int(params.config["rank"])
        self.world_size = params.max_nodes
        self.run_id = params.run_id
        timeout = params.get("timeout")
        if not isinstance(timeout, timedelta):
            timeout = timedelta(seconds=params.get_as_int("timeout") or 600)
        self.timeout: timedelta = timeout


def create_rdzv_handler(params: RendezvousParameters) -> StaticTCPRendezvous:
    """From the endpoint of rank 0, ``max_nodes``, and the options ``rank`` and ``timeout``.

    ValueError says which is missing.
    """
    made = StaticTCPRendezvous.__new__(StaticTCPRendezvous)
    made._open(
        RendezvousParameters(
            "static",
            params.endpoint,
            params.run_id,
            params.min_nodes,
            params.max_nodes,
            params.local_addr,
            **params.config,
        )
    )
    return made
