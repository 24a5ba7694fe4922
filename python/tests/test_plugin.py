"""torchrun's plug-in beyond PyTorch's documented contract: losses, servers that end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import muster

dist = pytest.importorskip("torch.distributed")

from plugin_nodes import ADDRESS, Kind, Nodes  # noqa: E402
from servers import PATIENCE_S, free_port, muster_server, until  # noqa: E402
from torch.distributed.elastic.rendezvous import (  # noqa: E402
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousTimeoutError,
)

pytest_plugins = ["plugin_nodes"]

VICTIM = """
import sys, time
from muster.rendezvous import RendezvousParameters, get_rendezvous_handler
backend, endpoint, run, options = sys.argv[1:]
handler = get_rendezvous_handler(
    RendezvousParameters(backend, endpoint, run, 2, 3, "127.0.0.1", **eval(options)))
info = handler.next_rendezvous()
print(info.world_size, flush=True)
sys.stdin.readline()
info.store.add("muster/here", 1)
print("here", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def node_that_can_die(
    kind: Kind, run: str, options: dict[str, Any]
) -> Iterator[subprocess.Popen[str]]:
    """Joins at once, prints the size of its world, and continues on command."""
    backend = "etcd" if kind.endpoint.startswith("etcd") else "muster"
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, backend, kind.endpoint, run, repr(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


LOSABLE = {"is_host": False, "last_call_timeout": 5, "keep_alive_interval": 0.5}


def test_a_lost_member_makes_num_nodes_waiting_positive(our_kind: Kind, nodes: Nodes) -> None:
    run = our_kind.new_run()
    members = [nodes.add(our_kind.handler(run, 2, 3, **LOSABLE)) for _ in range(2)]
    with node_that_can_die(our_kind, run, LOSABLE) as victim:
        assert victim.stdin is not None
        assert victim.stdout is not None
        victim.stdin.write("go on\n")
        victim.stdin.flush()
        assert {info.world_size for info in nodes.form(*members)} == {3}
        assert victim.stdout.readline() == "3\n"
        assert [handler.num_nodes_waiting() for handler in members] == [0, 0]
    for handler in members:
        until(lambda each=handler: each.num_nodes_waiting() > 0, "the loss is noticed")  # type: ignore[misc]
        assert handler.num_nodes_waiting() > 0, "until a new round begins"
    assert {info.world_size for info in nodes.form(*members)} == {2}
    assert [handler.num_nodes_waiting() for handler in members] == [0, 0]


def test_a_node_that_dies_at_completion_is_not_waited_for(our_kind: Kind, nodes: Nodes) -> None:
    run = our_kind.new_run()
    members = [nodes.add(our_kind.handler(run, 2, 3, **LOSABLE)) for _ in range(2)]
    with node_that_can_die(our_kind, run, LOSABLE) as victim:
        joins = [nodes.join(handler) for handler in members]
        assert victim.stdout is not None
        assert victim.stdout.readline() == "3\n"
        time.sleep(0.5)
        assert not any(join.done() for join in joins), "all members are waited for"
    assert {join.result(PATIENCE_S).world_size for join in joins} == {2}


def test_no_node_is_in_a_round_that_others_have_left(
    our_kind: Kind, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster import _torchrun_handler as plugin

    run = our_kind.new_run()
    prompt, late = (nodes.add(our_kind.handler(run, 2, 3, **LOSABLE)) for _ in range(2))
    count = late._count

    def count_late(info: muster.rendezvous.RendezvousInfo, store: muster.Store) -> bool:
        if info.world_size == 3:
            store.wait([plugin.VERDICT], PATIENCE_S)
            store.add(plugin.HERE, 1)  # as the dead node did before
        return count(info, store)

    monkeypatch.setattr(late, "_count", count_late)
    with node_that_can_die(our_kind, run, LOSABLE) as victim:
        joins = [nodes.join(handler) for handler in (prompt, late)]
        assert victim.stdout is not None
        assert victim.stdout.readline() == "3\n"
    assert {join.result(PATIENCE_S).world_size for join in joins} == {2}


def test_nodes_of_other_launchers_need_not_count_themselves(
    our_kind: Kind, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster import _torchrun_handler as plugin

    monkeypatch.setattr(plugin, "UNCOUNTED_S", 2)
    run = our_kind.new_run()
    members = [nodes.add(our_kind.handler(run, 2, 3, **LOSABLE)) for _ in range(2)]
    with node_that_can_die(our_kind, run, LOSABLE) as other:
        joins = [nodes.join(handler) for handler in members]
        assert other.stdout is not None
        assert other.stdout.readline() == "3\n"
        began = time.monotonic()
        assert {join.result(PATIENCE_S).world_size for join in joins} == {3}
        assert time.monotonic() - began > 1
        assert {handler.num_nodes_waiting() for handler in members} == {0}


def test_no_server_is_a_connection_error_that_names_the_endpoint() -> None:
    port = free_port()
    for endpoint in (f"{ADDRESS}:{port}", f"etcd://{ADDRESS}:{port}"):
        kind = Kind("muster", endpoint)
        began = time.monotonic()
        with pytest.raises(RendezvousConnectionError, match=f"{ADDRESS}:{port}"):
            kind.handler(kind.new_run(), join_timeout=1).next_rendezvous()
        assert time.monotonic() - began < 15


def test_a_server_that_goes_for_good_is_reported_to_the_agent() -> None:
    with muster_server() as port:
        kind = Kind("muster", f"{ADDRESS}:{port}")
        handler = kind.handler(kind.new_run(), contact_timeout=1, close_timeout=1)
        handler.next_rendezvous()
        assert handler.num_nodes_waiting() == 0

    def is_notified() -> bool:
        try:
            handler.num_nodes_waiting()
            return False
        except RendezvousConnectionError as error:
            return f"{ADDRESS}:{port}" in str(error)

    until(is_notified, "the agent is notified")
    assert handler.shutdown() is False


def test_a_restarted_server_makes_the_nodes_meet_again() -> None:
    made = Nodes()
    with muster_server() as port:
        kind = Kind("muster", f"{ADDRESS}:{port}")
        run = kind.new_run()
        handlers = [made.add(kind.handler(run, 2)) for _ in range(2)]
        made.form(*handlers)
    with muster_server(port):
        for handler in handlers:
            until(lambda each=handler: each.num_nodes_waiting() > 0, "places are lost")  # type: ignore[misc]
        infos = made.form(*handlers)
        infos[0].store.set("key", "value")
        assert infos[1].store.get("key") == b"value"
        made.end()


def test_the_first_node_serves_for_all() -> None:
    made = Nodes()
    kind = Kind("muster", f"{ADDRESS}:{free_port()}")
    run = kind.new_run()
    infos = made.form(*(made.add(kind.handler(run, 3, is_host=None)) for _ in range(3)))
    assert {info.world_size for info in infos} == {3}
    made.end()


def test_port_0_of_this_machine_is_any_port() -> None:
    handler = Kind("muster", "localhost:0").handler("standalone", is_host=None)
    assert handler.next_rendezvous().world_size == 1
    assert handler.shutdown()


def test_errors_are_torchs_and_musters_at_once(kinds: Callable[[str], Kind]) -> None:
    from muster import rendezvous

    kind = kinds("muster")
    handler = kind.handler(kind.new_run(), 2, join_timeout=0.2)
    with pytest.raises(RendezvousTimeoutError) as failure:
        handler.next_rendezvous()
    assert isinstance(failure.value, rendezvous.RendezvousTimeoutError)
    assert isinstance(failure.value, RendezvousError)


@pytest.mark.parametrize("option", ["read_timeout", "contact_timeout"])
@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_options_of_the_plug_in_are_checked(option: str, value: str) -> None:
    with pytest.raises(ValueError, match=option):
        Kind("muster", "127.0.0.1:1").handler("run", **{option: value})


@pytest.mark.parametrize("endpoint", ["host:port", "http://host:1", "etcd://host:port", "~"])
def test_invalid_endpoints_are_refused(endpoint: str) -> None:
    with pytest.raises(ValueError):
        Kind("muster", endpoint).handler("run")


def test_torch_finds_the_plug_in_by_itself() -> None:
    """In the hardest order: the plug-in first, which torch then loads during its own import."""
    for first in ("torch.distributed.elastic.rendezvous", "muster.torchrun", "muster.torch"):
        script = (
            f"import logging; logging.basicConfig(); import {first}\n"
            "from torch.distributed.elastic.rendezvous import registry\n"
            "import muster.torchrun\n"
            "found = registry.handler_registry._registry['muster']\n"
            "assert found is muster.torchrun.create_handler\n"
            "registry._register_out_of_tree_handlers()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        assert "Exception while registering" not in done.stderr, done.stderr


def test_long_waits_report_which_nodes_are_missing(
    kinds: Callable[[str], Kind], nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster import _torchrun_handler as plugin

    printed: list[str] = []
    received = threading.Event()

    def note(form: str, *words: object) -> None:
        printed.append(form % words)
        if "1 of 2 nodes" in printed[-1]:
            received.set()

    monkeypatch.setattr(plugin, "REPORT_S", 0.1)
    monkeypatch.setattr(plugin.logger, "info", note)
    kind = kinds("muster")
    run = kind.new_run()
    handler = nodes.add(kind.handler(run, 2))
    waiting = nodes.join(handler)
    assert received.wait(PATIENCE_S), printed
    handler.set_closed()
    with pytest.raises(RendezvousClosedError):
        waiting.result(PATIENCE_S)
