"""Nodes of PyTorch's dynamic rendezvous, each in a process of its own, driven by lines.

    torch_rendezvous_peer.py SOCKET

Imports torch once, listens on the Unix socket, and forks a node for every connection (an import takes seconds, a fork
milliseconds). A node first sends {"pid": N}. Then it executes the commands of rendezvous_peer.cc, and answers each with
a line of JSON: {"error": CLASS, "message": TEXT} if it failed. It ends with its connection; all end with the standard
input.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed.elastic.rendezvous.c10d_rendezvous_backend  # otherwise each fork would import it
from torch.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.elastic.rendezvous.utils import _parse_rendezvous_config

import peers


class Node:
    """One handler, and a method for each command."""

    def __init__(self):
        self._handler: RendezvousHandler | None = None

    def answer(self, line: str) -> dict:
        command, _, rest = line.partition(" ")
        try:
            return getattr(self, command)(rest)
        except Exception as error:  # the answer reports it
            return {"error": type(error).__name__, "message": str(error)}

    def create(self, rest: str) -> dict:
        endpoint, run_id, min_nodes, max_nodes, local_addr, *config = rest.split()
        parameters = RendezvousParameters(
            backend="c10d",
            endpoint=endpoint,
            run_id=run_id,
            min_nodes=int(min_nodes),
            max_nodes=int(max_nodes),
            local_addr=local_addr,
            **_parse_rendezvous_config(config[0] if config else ""),
        )
        self._handler = get_rendezvous_handler(parameters)
        return {"node": repr(self._handler._this_node)}

    def next(self, _: str) -> dict:
        began = time.monotonic()
        info = self._handler.next_rendezvous()
        return {
            "rank": info.rank,
            "world_size": info.world_size,
            "round": self._handler._state_holder.state.round,
            "master_addr": info.bootstrap_store_info.master_addr,
            "master_port": info.bootstrap_store_info.master_port,
            "seconds": time.monotonic() - began,
            "node": repr(self._handler._this_node),
        }

    def waiting(self, _: str) -> dict:
        return {"waiting": self._handler.num_nodes_waiting()}

    def closed(self, _: str) -> dict:
        return {"closed": self._handler.is_closed()}

    def close(self, _: str) -> dict:
        self._handler.set_closed()  # takes no reason
        return {"done": True}

    def shutdown(self, _: str) -> dict:
        return {"done": self._handler.shutdown()}

    def clock(self, _: str) -> dict:
        return {"wall": time.time(), "monotonic": time.monotonic()}


def serve(connection: socket.socket) -> None:
    with connection.makefile("rw") as lines:

        def say(answer: dict) -> None:
            print(json.dumps(answer), file=lines, flush=True)

        node = Node()
        say({"pid": os.getpid()})
        for line in lines:
            if line == "quit\n":
                return
            say(node.answer(line.rstrip("\n")))


def become_node(connection: socket.socket) -> None:
    """The life of a forked node. It must not return into the loop that it was forked from."""
    peers.die_with_parent()
    status = 1
    try:
        serve(connection)
        status = 0
    finally:
        os._exit(status)  # no clean-up: PyTorch's own would wait for threads


def main() -> None:
    torch.set_num_threads(1)
    if "FAKETIME" in os.environ:  # the library rejects Python's way to sleep (EINVAL)
        time.sleep = lambda seconds: threading.Event().wait(seconds)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    become_node(connection)


if __name__ == "__main__":
    main()
