"""Nodes of one rendezvous, muster's and PyTorch's, for tests that mix them."""

import base64
import contextlib
import json
import os
import pathlib
import pickle
import select
import signal
import socket
import sys
import time

from peers import (
    HERE,
    IMPORT_S,
    PATIENCE_S,
    Child,
    LineReader,
    RawClient,
    connect,
    eventually,
    required,
)

# Rounds of several PyTorch nodes take seconds: they check once a second, at each step.
ROUND_S = 60.0

KINDS = ("muster", "torch")

# Options. A node that is silent for 3 s is declared lost.
QUICK = {"keep_alive_interval": 1, "keep_alive_max_attempt": 3}
# Longer than the second between two checks of a PyTorch node, so no node misses the last call.
LAST_CALL = {"last_call_timeout": 3}


def other_kind(kind: str) -> str:
    return KINDS[1 - KINDS.index(kind)]


class Node:
    """One node: a process that executes commands, a line each. See rendezvous_peer.cc."""

    kind = ""

    def __init__(self, address: str):
        self.address = address
        self.name = ""  # as other nodes see it; known once created
        self.alive = True

    def __repr__(self) -> str:
        return f"{self.kind}@{self.address}"

    def say(self, line: str) -> None:
        raise NotImplementedError

    def line(self, patience_s: float) -> str:
        raise NotImplementedError

    def outcome(self, patience_s: float = ROUND_S) -> dict:
        """The answer to the last command, whatever it is."""
        return json.loads(self.line(patience_s)) | {"kind": self.kind}

    def result(self, patience_s: float = ROUND_S) -> dict:
        """The answer to the last command, which must not be an error."""
        outcome = self.outcome(patience_s)
        assert "error" not in outcome, f"{self!r}: {outcome['error']}: {outcome['message']}"
        return outcome

    def try_(self, line: str, patience_s: float = ROUND_S) -> dict:
        self.say(line)
        return self.outcome(patience_s)

    def ask(self, line: str, patience_s: float = ROUND_S) -> dict:
        self.say(line)
        return self.result(patience_s)

    def waiting(self) -> int:
        return self.ask("waiting")["waiting"]

    def kill(self) -> None:
        """SIGKILL: when this returns it is gone, and nothing was notified."""
        raise NotImplementedError


class MusterNode(Node):
    kind = "muster"

    def __init__(self, directory: pathlib.Path, address: str, **environment: str):
        super().__init__(address)
        log = directory / f"rendezvous-peer-{time.monotonic_ns()}.log"
        self._child = Child([required("MUSTER_RENDEZVOUS_PEER")], log, **environment)

    def say(self, line: str) -> None:
        self._child.say(line)

    def line(self, patience_s: float) -> str:
        return self._child.output.line(patience_s)

    def kill(self) -> None:
        self.alive = False
        self._child.end()


class TorchNode(Node):
    kind = "torch"

    def __init__(self, path: pathlib.Path, address: str):
        super().__init__(address)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._output = LineReader(self._socket)
        # It is not a child of ours, so its pid could be reused; the descriptor cannot.
        self._process = os.pidfd_open(json.loads(self.line(PATIENCE_S))["pid"])

    def say(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\n")

    def line(self, patience_s: float) -> str:
        return self._output.line(patience_s)

    def pause(self) -> None:
        signal.pidfd_send_signal(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        signal.pidfd_send_signal(self._process, signal.SIGCONT)

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        gone, _, _ = select.select([self._process], [], [], PATIENCE_S)
        assert gone, f"{self!r} does not end"
        os.close(self._process)
        self._socket.close()


class TorchNodes:
    """Starts PyTorch's nodes quickly, from a process that has imported torch (torch_rendezvous_peer.py)."""

    def __init__(self, directory: pathlib.Path, **environment: str):
        self._path = directory / f"nodes-{time.monotonic_ns()}"
        command = [sys.executable, "-B", HERE / "torch_rendezvous_peer.py", self._path]
        self._child = Child(command, self._path.with_suffix(".log"), **environment)
        assert self._child.output.line(IMPORT_S) == "ready", self._child.errors()

    def start(self, address: str) -> TorchNode:
        return TorchNode(self._path, address)

    def end(self) -> None:
        self._child.process.stdin.close()
        assert self._child.ended() == 0, self._child.errors()


class Meeting:
    """One rendezvous on a server, and the nodes of a test."""

    def __init__(self, server, torch_nodes: TorchNodes, directory: pathlib.Path):
        self.server = server
        self.nodes: list[Node] = []
        self._torch_nodes = torch_nodes
        self._directory = directory
        self._run_id = f"run-{time.monotonic_ns()}"
        self._store = connect(server)
        self.limits(1, 1)

    def limits(self, min_nodes: int, max_nodes: int, **options) -> None:
        """Options of nodes that are added from now on."""
        options = {"is_host": "false", **options}
        self._limits = f"{min_nodes} {max_nodes}"
        self._options = ",".join(f"{name}={value}" for name, value in options.items())

    def add(self, kind: str, last: int, torch_nodes: TorchNodes | None = None, **environment):
        """Adds a node at 127.0.0.`last`: ranks follow the text of addresses."""
        address = f"127.0.0.{last}"
        if kind == "muster":
            node = MusterNode(self._directory, address, **environment)
        else:
            node = (torch_nodes or self._torch_nodes).start(address)
        self.nodes.append(node)
        where = f"{self.server.address} {self._run_id} {self._limits} {address}"
        node.name = node.ask(f"create {where} {self._options}")["node"]
        return node

    def state(self):
        """What is stored now, as PyTorch's own class."""
        return pickle.loads(base64.b64decode(self._store.get(f"torch.rendezvous.{self._run_id}")))

    def members(self) -> set[str]:
        return {repr(node) for node in self.state().participants}

    def end(self) -> None:
        for node in self.nodes:
            node.kill()


def all_next(nodes) -> list[dict]:
    """All nodes request the next round at the same time. The results are in the order of `nodes`."""
    for node in nodes:
        node.say("next")
    return [node.result() for node in nodes]


def until_waiting(nodes, count: int) -> None:
    """As agents do, all nodes check until one waits, and then join again."""
    for node in nodes:
        eventually(lambda: node.waiting() >= count, f"{node!r} sees {count} waiting", ROUND_S)


def is_served(result: dict) -> bool:
    """Whether a store answers at the master address that a node was given."""

    class At:
        host, port = result["master_addr"], result["master_port"]

    try:
        with RawClient(At) as client:
            client.ping()
        return True
    except ConnectionRefusedError:
        return False


def master(result: dict) -> tuple[str, int]:
    return result["master_addr"], result["master_port"]


def assert_one_round(nodes, results: list[dict], number: int) -> dict:
    """All are in the same round, ranked by address. Returns rank 0's result."""
    assert [result["round"] for result in results] == [number] * len(nodes), results
    assert [result["world_size"] for result in results] == [len(nodes)] * len(nodes), results
    order = sorted(nodes, key=lambda node: node.address)
    assert [result["rank"] for result in results] == [order.index(node) for node in nodes], results
    first = next(result for result in results if result["rank"] == 0)
    assert first["master_addr"] == order[0].address, "rank 0 serves at its own address"
    assert is_served(first)
    return first


def assert_same_master(results: list[dict], first: dict) -> None:
    assert {master(result) for result in results} == {master(first)}, results
