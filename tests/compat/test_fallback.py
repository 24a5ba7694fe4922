"""Nodes that expect muster's coordinator, and find PyTorch's own server.

They continue with the c10d backend, report that once, and meet PyTorch's rendezvous handlers there.
"""

import json
import subprocess
import time

import pytest

import torch.distributed as dist
from peers import (
    PATIENCE_S,
    Child,
    MusterServer,
    TorchServer,
    connect,
    die_with_parent,
    required,
)
from rendezvous_peers import (
    LAST_CALL,
    ROUND_S,
    assert_one_round,
    assert_same_master,
    until_waiting,
)

SAID = "has no coordinator (PyTorch's has none): going on with the c10d backend"
FAILED = 1


class CommandLineNode:
    """`muster rendezvous` with the default backend. Joins every round of the others."""

    kind = "muster"

    def __init__(self, directory, server, run_id: str, nodes: str, last: int):
        self.address = f"127.0.0.{last}"
        self._child = Child(
            [
                required("MUSTER_BIN"),
                "rendezvous",
                *("--endpoint", server.address, "--id", run_id, "--nodes", nodes),
                *("--local-addr", self.address, "--conf", "is_host=false"),
                *("--last-call", LAST_CALL["last_call_timeout"]),
                *("--hold", 600, "--follow", "--json"),
            ],
            directory / f"node-{last}.log",
        )

    def result(self) -> dict:
        return json.loads(self._child.output.line(ROUND_S))

    def warnings(self) -> list[str]:
        return [line for line in self._child.errors().splitlines() if SAID in line]

    def kill(self) -> None:
        self._child.end()


class Meeting:
    """Nodes of both kinds in one run on PyTorch's server."""

    def __init__(self, server, torch_nodes, directory, nodes: str):
        self.server = server
        self._torch_nodes = torch_nodes
        self._directory = directory
        self._nodes = nodes
        self._run_id = f"run-{time.monotonic_ns()}"
        self._all = []

    def muster(self, last: int) -> CommandLineNode:
        node = CommandLineNode(self._directory, self.server, self._run_id, self._nodes, last)
        self._all.append(node)
        return node

    def torch(self, last: int):
        node = self._torch_nodes.start(f"127.0.0.{last}")
        self._all.append(node)
        limits = self._nodes.replace(":", " ")
        options = f"is_host=false,last_call_timeout={LAST_CALL['last_call_timeout']}"
        where = f"{self.server.address} {self._run_id} {limits} {node.address}"
        node.name = node.ask(f"create {where} {options}")["node"]
        node.say("next")
        return node

    def end(self) -> None:
        for node in self._all:
            node.kill()


@pytest.fixture
def kind():
    """The kinds of PyTorch's server."""
    return "libuv"


on_either_server = pytest.mark.parametrize("kind", ["libuv", "legacy"])


@pytest.fixture
def meet(kind, torch_nodes, tmp_path):
    """Makes a meeting of so many nodes."""
    server = TorchServer(use_libuv=kind == "libuv")
    meetings = []

    def make(nodes: str) -> Meeting:
        meetings.append(Meeting(server, torch_nodes, tmp_path, nodes))
        return meetings[-1]

    try:
        yield make
    finally:
        for meeting in meetings:
            meeting.end()
        server.stop()


def assert_printed_once(node: CommandLineNode, server) -> None:
    assert node.warnings() == [f"muster: the server at {server.address} {SAID}"]


@on_either_server
def test_nodes_of_both_kinds_agree(meet):
    meeting = meet("4:4")
    nodes = [meeting.muster(1), meeting.torch(2), meeting.muster(3), meeting.torch(4)]
    results = [node.result() for node in nodes]
    assert_same_master(results, assert_one_round(nodes, results, 0))
    for node in nodes[::2]:
        assert_printed_once(node, meeting.server)


def test_late_nodes_are_followed_into_the_next_round_without_another_message(meet):
    meeting = meet("2:4")
    members = [meeting.muster(1), meeting.torch(2)]
    results = [node.result() for node in members]
    first = assert_one_round(members, results, 0)
    assert_same_master(results, first)

    late = [meeting.muster(3), meeting.torch(4)]
    # muster's member sees them and leaves; PyTorch's needs a command.
    until_waiting(members[1:], 1)
    members[1].say("next")
    nodes = [*members, *late]
    results = [node.result() for node in nodes]
    assert_same_master(results, assert_one_round(nodes, results, 1))
    for node in nodes[::2]:
        assert_printed_once(node, meeting.server)


@on_either_server
def test_the_server_keeps_serving_its_clients(meet):
    meeting = meet("1:1")
    store = connect(meeting.server)
    store.set("before", "1")
    node = meeting.muster(1)
    assert node.result()["world_size"] == 1
    assert store.get("before") == b"1"
    store.set("after", "2")
    assert connect(meeting.server).get("after") == b"2"


@on_either_server
def test_status_reports_that_there_is_no_coordinator(meet):
    meeting = meet("1:1")
    done = subprocess.run(
        [required("MUSTER_BIN"), "status", "--server", meeting.server.address],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        preexec_fn=die_with_parent,
    )
    assert done.returncode == FAILED and not done.stdout, done
    assert done.stderr.count("\n") == 1
    assert f"the server at {meeting.server.address} has no coordinator" in done.stderr


def test_pytorchs_server_may_take_the_place_of_musters(tmp_path, torch_nodes):
    server = MusterServer(tmp_path)
    meeting = Meeting(server, torch_nodes, tmp_path, "2:2")
    try:
        nodes = [meeting.muster(1), meeting.muster(2)]
        assert_one_round(nodes, [node.result() for node in nodes], 0)
        assert [node.warnings() for node in nodes] == [[], []]
        server.crash()
        theirs = dist.TCPStore("127.0.0.1", server.port, is_master=True, wait_for_workers=False)
        results = [node.result() for node in nodes]
        assert sorted(result["rank"] for result in results) == [0, 1]
        assert_same_master(results, results[0])
        for node in nodes:
            assert_printed_once(node, server)
        del theirs
    finally:
        meeting.end()
        server.stop()
