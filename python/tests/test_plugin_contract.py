"""What PyTorch documents for rendezvous handlers, through its own registry: the same tests for its
own c10d and for the plug-in, with a server and with etcd."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

dist = pytest.importorskip("torch.distributed")

from servers import PATIENCE_S, etcd_server, free_port, muster_server, until  # noqa: E402
from torch.distributed.elastic.rendezvous import (  # noqa: E402
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler  # noqa: E402

ADDRESS = "127.0.0.1"
BACKENDS = ["c10d", "muster", "muster in etcd"]
OURS = [name for name in BACKENDS if name != "c10d"]


@dataclasses.dataclass
class Kind:
    """A backend, and where it is."""

    backend: str
    endpoint: str

    _runs = itertools.count()

    def new_run(self) -> str:
        return f"run-{os.getpid()}-{next(self._runs)}"

    def handler(
        self, run_id: str, least: int = 1, most: int = 0, **options: Any
    ) -> RendezvousHandler:
        options = {"last_call_timeout": 1, "is_host": False, **options}
        return get_rendezvous_handler(
            RendezvousParameters(
                self.backend, self.endpoint, run_id, least, most or least, ADDRESS, **options
            )
        )


@pytest.fixture(scope="module")
def kinds() -> Iterator[Callable[[str], Kind]]:
    """Servers, each started when the first test asks for it."""
    with contextlib.ExitStack() as open_servers:
        made: dict[str, Kind] = {}

        def make(name: str) -> Kind:
            if name == "c10d":
                store = dist.TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
                open_servers.callback(lambda: store)
                return Kind("c10d", f"{ADDRESS}:{store.port}")
            if name == "muster":
                return Kind("muster", f"{ADDRESS}:{open_servers.enter_context(muster_server())}")
            return Kind("muster", open_servers.enter_context(etcd_server()))

        def of(name: str) -> Kind:
            if name not in made:
                made[name] = make(name)
            return made[name]

        yield of


@pytest.fixture(params=BACKENDS)
def kind(request: pytest.FixtureRequest, kinds: Callable[[str], Kind]) -> Kind:
    return kinds(request.param)


@pytest.fixture(params=OURS)
def our_kind(request: pytest.FixtureRequest, kinds: Callable[[str], Kind]) -> Kind:
    return kinds(request.param)


class Nodes:
    """Handlers of one run, each called from a thread of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(16)
        self.handlers: list[RendezvousHandler] = []

    def add(self, handler: RendezvousHandler) -> RendezvousHandler:
        self.handlers.append(handler)
        return handler

    def join(self, handler: RendezvousHandler) -> Future[RendezvousInfo]:
        return self._threads.submit(handler.next_rendezvous)

    def form(self, *handlers: RendezvousHandler) -> list[RendezvousInfo]:
        """In the order of their ranks."""
        joins = [self.join(handler) for handler in handlers]
        return sorted((each.result(PATIENCE_S) for each in joins), key=lambda info: info.rank)

    def end(self) -> None:
        for ended in [self._threads.submit(handler.shutdown) for handler in self.handlers]:
            ended.result(PATIENCE_S)
        self._threads.shutdown()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    made.end()


def test_a_handler_says_whose_it_is(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    handler = nodes.add(kind.handler(run))
    assert handler.get_backend() == kind.backend
    assert handler.get_run_id() == run
    assert isinstance(handler, RendezvousHandler)


def test_workers_use_the_agents_store_unless_the_environment_says_otherwise(
    kind: Kind, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = nodes.add(kind.handler(kind.new_run()))
    monkeypatch.delenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", raising=False)
    assert handler.use_agent_store is True
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0")
    assert handler.use_agent_store is True
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    assert handler.use_agent_store is False


def test_one_node_is_rank_0_of_1(kind: Kind, nodes: Nodes) -> None:
    info = nodes.add(kind.handler(kind.new_run())).next_rendezvous()
    assert (info.rank, info.world_size) == (0, 1)
    info.store.set("key", "value")
    assert info.store.get("key") == b"value"


def test_nodes_get_ranks_one_world_and_one_store(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    infos = nodes.form(*(nodes.add(kind.handler(run, 4)) for _ in range(4)))
    assert [info.rank for info in infos] == [0, 1, 2, 3]
    assert {info.world_size for info in infos} == {4}
    for info in infos:
        assert isinstance(info.store, dist.Store)
        info.store.set(f"from {info.rank}", str(info.rank))
    for info in infos:
        said = info.store.multi_get([f"from {rank}" for rank in range(4)])
        assert said == [b"0", b"1", b"2", b"3"]
    assert [info.store.add("together", 1) for info in infos] == [1, 2, 3, 4]


def test_workers_find_a_store_served_by_rank_0s_agent(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    infos = nodes.form(*(nodes.add(kind.handler(run, 2)) for _ in range(2)))
    first, second = (info.bootstrap_store_info for info in infos)
    assert first is not None
    assert second is not None
    assert (first.master_addr, first.master_port) == (second.master_addr, second.master_port)
    assert first.master_addr == ADDRESS
    a, b = (dist.TCPStore(first.master_addr, first.master_port, 2, False) for _ in range(2))
    a.set("key", "value")
    assert b.get("key") == b"value"


def test_without_sharing_the_port_is_free_for_worker_0(
    kind: Kind, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    run = kind.new_run()
    infos = nodes.form(*(nodes.add(kind.handler(run, 2)) for _ in range(2)))
    found = infos[0].bootstrap_store_info
    assert found is not None
    server = dist.TCPStore(found.master_addr, found.master_port, 1, True)
    server.set("key", "value")
    assert server.get("key") == b"value"


def test_the_store_serves_the_agents_own_helpers(kind: Kind, nodes: Nodes) -> None:
    from torch.distributed.elastic.utils import store as helpers

    run = kind.new_run()
    infos = nodes.form(*(nodes.add(kind.handler(run, 3)) for _ in range(3)))
    with ThreadPoolExecutor(3) as threads:
        told = threads.map(
            lambda info: helpers.synchronize(info.store, b"%d" % info.rank, info.rank, 3, "sync"),
            infos,
        )
        assert [*told] == [[b"0", b"1", b"2"]] * 3
        for _ in threads.map(lambda info: helpers.barrier(info.store, 3, "barrier"), infos):
            pass
    with pytest.raises(dist.DistStoreError):
        helpers.barrier(infos[0].store, 2, "nobody else", barrier_timeout=0.2)


def test_the_store_keeps_torchs_prefixes_apart(kind: Kind, nodes: Nodes) -> None:
    info = nodes.add(kind.handler(kind.new_run())).next_rendezvous()
    outer = dist.PrefixStore("outer", info.store)
    outer.set("key", "value")
    assert info.store.get("outer/key") == b"value"
    assert not info.store.check(["key"])


def test_every_round_has_keys_of_its_own(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    handlers = [nodes.add(kind.handler(run, 2)) for _ in range(2)]
    for attempt in range(3):
        infos = nodes.form(*handlers)
        assert [info.rank for info in infos] == [0, 1]
        assert not infos[1].store.check(["left behind"]), f"round {attempt}"
        infos[0].store.set("left behind", "1")
        assert infos[1].store.get("left behind") == b"1"


def test_closing_is_seen_by_all_and_may_be_repeated(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    a, b = (nodes.add(kind.handler(run, 2)) for _ in range(2))
    nodes.form(a, b)
    assert not a.is_closed()
    assert not b.is_closed()
    a.set_closed()
    a.set_closed()
    assert a.is_closed()
    until(b.is_closed, "the other one has heard")
    b.set_closed()
    assert b.is_closed()


def test_closing_is_seen_by_newcomers(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    nodes.add(kind.handler(run)).set_closed()
    newcomer = nodes.add(kind.handler(run))
    if kind.backend != "c10d":  # where nobody is told of a run before it wants to join
        with pytest.raises(RendezvousClosedError):
            newcomer.next_rendezvous()
    until(newcomer.is_closed, "a newcomer has heard")


def test_nobody_joins_what_is_closed(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    member, newcomer = (nodes.add(kind.handler(run)) for _ in range(2))
    member.next_rendezvous()
    member.set_closed()
    for handler in (member, newcomer):
        with pytest.raises(RendezvousClosedError):
            handler.next_rendezvous()


def test_who_waits_is_told_of_the_end(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    waiting = nodes.join(nodes.add(kind.handler(run, 2)))
    time.sleep(0.3)  # it may or may not wait by now; both must end
    nodes.add(kind.handler(run, 2)).set_closed()
    with pytest.raises(RendezvousClosedError):
        waiting.result(PATIENCE_S)


def test_running_rounds_survive_the_end(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    a, b = (nodes.add(kind.handler(run, 2)) for _ in range(2))
    infos = nodes.form(a, b)
    a.shutdown()
    until(b.is_closed, "the other one has heard")
    assert b.num_nodes_waiting() == 0
    infos[0].store.set("still", "here")
    assert infos[1].store.get("still") == b"here"


def test_late_nodes_are_counted_and_let_in(
    kind: Kind, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind.backend == "c10d":  # whose rank 0 tells newcomers nothing in torch 2.13, otherwise
        monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    run = kind.new_run()
    members = [nodes.add(kind.handler(run, 2, 3)) for _ in range(2)]
    nodes.form(*members)
    assert [handler.num_nodes_waiting() for handler in members] == [0, 0]
    late = nodes.join(nodes.add(kind.handler(run, 2, 3)))
    for handler in members:
        until(lambda each=handler: each.num_nodes_waiting() == 1, "one node waits")  # type: ignore[misc]
    infos = nodes.form(*members)
    infos.append(late.result(PATIENCE_S))
    assert sorted(info.rank for info in infos) == [0, 1, 2]
    assert {info.world_size for info in infos} == {3}
    until(lambda: {each.num_nodes_waiting() for each in members} == {0}, "nobody waits any more")


def test_spares_do_not_count_and_are_let_go(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    member = nodes.add(kind.handler(run, 1, 1))
    member.next_rendezvous()
    spare = nodes.join(nodes.add(kind.handler(run, 1, 1)))
    if kind.backend == "c10d":
        time.sleep(2)  # it looks once a second
    else:
        time.sleep(0.5)
    assert member.num_nodes_waiting() == 0
    assert not spare.done()
    member.shutdown()
    with pytest.raises(RendezvousGracefulExitError):
        spare.result(PATIENCE_S)


def test_shutdown_closes_and_may_be_repeated(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    a, b = (nodes.add(kind.handler(run, 2)) for _ in range(2))
    nodes.form(a, b)
    assert a.shutdown() is True
    assert a.shutdown() is True
    until(b.is_closed, "the other one has heard")
    assert b.shutdown() is True
    with pytest.raises(RendezvousClosedError):
        b.next_rendezvous()


def test_shutdown_before_anything_else_closes_too(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    assert nodes.add(kind.handler(run)).shutdown() is True
    with pytest.raises(RendezvousClosedError):
        nodes.add(kind.handler(run)).next_rendezvous()


def test_too_few_nodes_time_out(kind: Kind, nodes: Nodes) -> None:
    began = time.monotonic()
    with pytest.raises(RendezvousTimeoutError) as failure:
        nodes.add(kind.handler(kind.new_run(), 2, join_timeout=1)).next_rendezvous()
    assert 0.9 < time.monotonic() - began < 20
    if kind.backend == "muster":
        assert "1 of 2 nodes" in str(failure.value)


def test_the_last_call_lets_fewer_than_all_begin(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    infos = nodes.form(*(nodes.add(kind.handler(run, 2, 4)) for _ in range(2)))
    assert {info.world_size for info in infos} == {2}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("join_timeout", "x"),
        ("join_timeout", "0"),
        ("last_call_timeout", "-1"),
        ("close_timeout", "y"),
    ],
)
def test_options_that_cannot_be_meant_are_named(kind: Kind, option: str, value: str) -> None:
    with pytest.raises(ValueError, match=option.removesuffix("_timeout")):
        kind.handler(kind.new_run(), **{option: value})


def test_an_empty_run_id_is_refused(kind: Kind) -> None:
    with pytest.raises(ValueError, match="run id"):
        kind.handler("")


def test_options_may_be_text(kind: Kind, nodes: Nodes) -> None:
    handler = kind.handler(
        kind.new_run(),
        join_timeout="30",
        last_call_timeout="1",
        keep_alive_interval="1",
        timeout=900,
    )
    assert nodes.add(handler).next_rendezvous().world_size == 1


# -------------------------------------------------------------------------------------------------
# what only the plug-in does

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
    """Joins at once, says how large its world is, and goes on when it is told to."""
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


def test_who_dies_as_the_round_is_complete_is_not_waited_for(our_kind: Kind, nodes: Nodes) -> None:
    run = our_kind.new_run()
    members = [nodes.add(our_kind.handler(run, 2, 3, **LOSABLE)) for _ in range(2)]
    with node_that_can_die(our_kind, run, LOSABLE) as victim:
        joins = [nodes.join(handler) for handler in members]
        assert victim.stdout is not None
        assert victim.stdout.readline() == "3\n"
        time.sleep(0.5)
        assert not any(join.done() for join in joins), "all members are waited for"
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

    def is_told() -> bool:
        try:
            handler.num_nodes_waiting()
            return False
        except RendezvousConnectionError as error:
            return f"{ADDRESS}:{port}" in str(error)

    until(is_told, "the agent hears of it")
    assert handler.shutdown() is False


def test_a_server_that_is_started_anew_makes_the_nodes_meet_again() -> None:
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


def test_errors_are_torchs_with_muster_s_as_their_cause(kinds: Callable[[str], Kind]) -> None:
    from muster import rendezvous

    kind = kinds("muster")
    handler = kind.handler(kind.new_run(), 2, join_timeout=0.2)
    with pytest.raises(RendezvousError) as failure:
        handler.next_rendezvous()
    assert isinstance(failure.value.__cause__, rendezvous.RendezvousTimeoutError)
    assert str(failure.value) == str(failure.value.__cause__)


@pytest.mark.parametrize("option", ["read_timeout", "contact_timeout"])
@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_options_of_the_plug_in_are_checked(option: str, value: str) -> None:
    with pytest.raises(ValueError, match=option):
        Kind("muster", "127.0.0.1:1").handler("run", **{option: value})


@pytest.mark.parametrize("endpoint", ["host:port", "http://host:1", "etcd://host:port", "~"])
def test_endpoints_that_cannot_be_meant_are_refused(endpoint: str) -> None:
    with pytest.raises(ValueError):
        Kind("muster", endpoint).handler("run")


def test_torch_finds_the_plug_in_by_itself() -> None:
    """In the order that is hardest: the plug-in first, which torch then visits while it loads."""
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


def test_long_waits_say_whom_they_are_for(
    kinds: Callable[[str], Kind], nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster import _torchrun_handler as plugin

    said: list[str] = []
    heard = threading.Event()

    def note(form: str, *words: object) -> None:
        said.append(form % words)
        if "1 of 2 nodes" in said[-1]:
            heard.set()

    monkeypatch.setattr(plugin, "NARRATION_S", 0.1)
    monkeypatch.setattr(plugin.logger, "info", note)
    kind = kinds("muster")
    run = kind.new_run()
    handler = nodes.add(kind.handler(run, 2))
    waiting = nodes.join(handler)
    assert heard.wait(PATIENCE_S), said
    handler.set_closed()
    with pytest.raises(RendezvousClosedError):
        waiting.result(PATIENCE_S)
