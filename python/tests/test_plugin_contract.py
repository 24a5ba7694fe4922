"""PyTorch's documented contract of rendezvous handlers, through its own registry: the same tests
for its own c10d and for the plug-in, with a server and with etcd."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

dist = pytest.importorskip("torch.distributed")

from plugin_nodes import ADDRESS, Kind, Nodes  # noqa: E402
from servers import PATIENCE_S, until  # noqa: E402
from torch.distributed.elastic.rendezvous import (  # noqa: E402
    RendezvousClosedError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousTimeoutError,
)

pytest_plugins = ["plugin_nodes"]


def test_a_handler_names_its_backend(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    handler = nodes.add(kind.handler(run))
    assert handler.get_backend() == kind.backend
    assert handler.get_run_id() == run
    assert isinstance(handler, RendezvousHandler)


def test_workers_use_the_agents_store_unless_the_environment_forbids_it(
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
        printed = info.store.multi_get([f"from {rank}" for rank in range(4)])
        assert printed == [b"0", b"1", b"2", b"3"]
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
        reported = threads.map(
            lambda info: helpers.synchronize(info.store, b"%d" % info.rank, info.rank, 3, "sync"),
            infos,
        )
        assert [*reported] == [[b"0", b"1", b"2"]] * 3
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
    until(b.is_closed, "the other one was notified")
    b.set_closed()
    assert b.is_closed()


def test_closing_is_seen_by_newcomers(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    nodes.add(kind.handler(run)).set_closed()
    newcomer = nodes.add(kind.handler(run))
    if kind.backend != "c10d":  # where a node knows nothing of a run before it joins
        with pytest.raises(RendezvousClosedError):
            newcomer.next_rendezvous()
    until(newcomer.is_closed, "a new node was notified")


def test_a_closed_rendezvous_cannot_be_joined(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    member, newcomer = (nodes.add(kind.handler(run)) for _ in range(2))
    member.next_rendezvous()
    member.set_closed()
    for handler in (member, newcomer):
        with pytest.raises(RendezvousClosedError):
            handler.next_rendezvous()


def test_a_waiting_node_is_notified_of_the_end(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    waiting = nodes.join(nodes.add(kind.handler(run, 2)))
    time.sleep(0.3)  # it may or may not be waiting by now; both must end
    nodes.add(kind.handler(run, 2)).set_closed()
    with pytest.raises(RendezvousClosedError):
        waiting.result(PATIENCE_S)


def test_running_rounds_survive_the_end(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    a, b = (nodes.add(kind.handler(run, 2)) for _ in range(2))
    infos = nodes.form(a, b)
    a.shutdown()
    until(b.is_closed, "the other one was notified")
    assert b.num_nodes_waiting() == 0
    infos[0].store.set("still", "here")
    assert infos[1].store.get("still") == b"here"


def test_late_nodes_are_counted_and_let_in(
    kind: Kind, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind.backend == "c10d":  # because on c10d in torch 2.13 rank 0 sends new nodes nothing
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
    until(lambda: {each.num_nodes_waiting() for each in members} == {0}, "no node waits any more")


def test_spares_do_not_count_and_are_let_go(kind: Kind, nodes: Nodes) -> None:
    run = kind.new_run()
    member = nodes.add(kind.handler(run, 1, 1))
    member.next_rendezvous()
    spare = nodes.join(nodes.add(kind.handler(run, 1, 1)))
    if kind.backend == "c10d":
        time.sleep(2)  # it checks once a second
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
    until(b.is_closed, "the other one was notified")
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
def test_invalid_options_are_named(kind: Kind, option: str, value: str) -> None:
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
