"""Handlers of all backends, with several nodes in threads: rounds, ends, losses, errors."""

from __future__ import annotations

import gc
import time
from datetime import timedelta
from typing import Any, Optional

import pytest
import servers
from rendezvous_nodes import (
    ELASTIC,
    NATIVE_EVENTS,
    PATIENCE_S,
    Meeting,
    etcd_endpoint,
    meeting,
    store_server,
)

import muster
from muster import rendezvous
from muster.rendezvous import MembershipEvent, RendezvousParameters, WaitReport

__all__ = ["etcd_endpoint", "meeting", "store_server"]

on_all = pytest.mark.parametrize("meeting", ELASTIC, indirect=True)
on_notified_nodes = pytest.mark.parametrize("meeting", NATIVE_EVENTS, indirect=True)


# --- Rounds ---------------------------------------------------------------------------------------


@on_all
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_nodes_form_a_round_and_share_its_store(meeting: Meeting, nodes: int) -> None:
    handlers = [meeting.node(nodes, nodes) for _ in range(nodes)]
    infos = meeting.round(handlers)
    for info in infos:
        info.store.set(f"rank{info.rank}", f"I am {info.rank}")
    for info in infos:
        for rank in range(nodes):
            assert info.store.get(f"rank{rank}") == f"I am {rank}".encode()
    masters = [info.bootstrap_store_info for info in infos]
    assert masters == [masters[0]] * nodes
    assert isinstance(infos[0].store, muster.Store)
    assert 0 < infos[0].bootstrap_store_info.master_port < 65536
    assert {handler.get_backend() for handler in handlers} == {meeting.backend}
    assert {handler.get_run_id() for handler in handlers} == {meeting.run_id}
    assert len({handler.node for handler in handlers}) == nodes
    assert all(handler.use_agent_store for handler in handlers)
    assert not any(handler.is_host for handler in handlers)


@on_all
def test_rounds_follow_each_other_with_stores_of_their_own(meeting: Meeting) -> None:
    handlers = [meeting.node(2, 2) for _ in range(2)]
    first = meeting.round(handlers)
    first[0].store.set("key", "of the first round")
    second = meeting.round(handlers)
    assert second[0].round == first[0].round + 1
    assert not second[0].store.check(["key"])


@on_all
def test_a_late_node_is_waited_for_by_the_next_round(meeting: Meeting) -> None:
    members = [meeting.node(2, 3) for _ in range(2)]
    meeting.round(members)
    assert [member.num_nodes_waiting() for member in members] == [0, 0]
    late = meeting.node(2, 3)
    joined = meeting.join(late)
    servers.until(lambda: all(m.num_nodes_waiting() > 0 for m in members), "the late node is seen")
    event = members[0].await_event(timedelta(seconds=PATIENCE_S))
    assert event is not None and event.kind == MembershipEvent.Kind.NODES_WAITING
    assert event.waiting == 1
    rejoined = [meeting.join(member) for member in members]
    infos = [future.result(PATIENCE_S) for future in (joined, *rejoined)]
    assert sorted(info.rank for info in infos) == [0, 1, 2]
    assert {info.round for info in infos} == {1}
    assert members[0].num_nodes_waiting() == 0


@on_all
def test_closing_ends_it_for_all_and_for_good(meeting: Meeting) -> None:
    a, b = (meeting.node(2, 2) for _ in range(2))
    meeting.round([a, b])
    assert not a.is_closed()
    a.set_closed("enough for today")
    servers.until(b.is_closed, "the other one knows")
    with pytest.raises(rendezvous.RendezvousClosedError):
        b.next_rendezvous()
    late = meeting.node(2, 2)
    with pytest.raises(rendezvous.RendezvousClosedError):
        late.next_rendezvous()


@on_all
def test_shutdown_closes_and_returns_whether_it_worked(meeting: Meeting) -> None:
    a, b = (meeting.node(2, 2) for _ in range(2))
    meeting.round([a, b])
    assert a.shutdown() is True
    assert a.shutdown() is True
    servers.until(b.is_closed, "the other one knows")


@on_notified_nodes
def test_closing_is_an_event(meeting: Meeting) -> None:
    a, b = (meeting.node(2, 2) for _ in range(2))
    meeting.round([a, b])
    a.set_closed("the work is done")
    event = b.await_event(PATIENCE_S)
    assert event is not None and event.kind == MembershipEvent.Kind.CLOSED
    assert "closed" in str(event)


@on_notified_nodes
def test_a_lost_member_is_an_event(meeting: Meeting) -> None:
    a, b = (meeting.node(1, 2) for _ in range(2))
    meeting.round([a, b])
    lost = b.node
    meeting.handlers.remove(b)
    del b
    gc.collect()
    event = a.await_event(PATIENCE_S)
    assert event is not None and event.kind == MembershipEvent.Kind.MEMBER_LOST
    assert event.who == lost
    assert lost in str(event)
    again = meeting.round([a])
    assert again[0].round == 1


@on_all
def test_a_node_that_leaves_makes_room(meeting: Meeting) -> None:
    a, b, c = (meeting.node(2, 2) for _ in range(3))
    meeting.round([a, b])
    b.leave()
    futures = [meeting.join(handler) for handler in (a, c)]
    assert sorted(future.result(PATIENCE_S).rank for future in futures) == [0, 1]


@on_all
def test_await_event_without_events_returns_none(meeting: Meeting) -> None:
    handler = meeting.node(1, 1)
    handler.next_rendezvous()
    began = time.monotonic()
    assert handler.await_event(timedelta(milliseconds=300)) is None
    assert time.monotonic() - began >= 0.29


@on_notified_nodes
def test_another_thread_can_stop_a_wait_for_events(meeting: Meeting) -> None:
    handler = meeting.node(1, 1)
    handler.next_rendezvous()
    waiting = meeting._threads.submit(handler.await_event, PATIENCE_S)
    assert handler.stop_waiting() is True
    assert waiting.result(PATIENCE_S / 2) is None


@on_notified_nodes
def test_another_thread_can_close_while_one_waits_for_a_round(meeting: Meeting) -> None:
    handler = meeting.node(2, 2)
    waiting = meeting.join(handler)
    servers.until(
        lambda: handler.describe_wait().phase == WaitReport.Phase.FORMING, "it has joined"
    )
    handler.set_closed("nobody comes")
    with pytest.raises(rendezvous.RendezvousClosedError, match="nobody comes"):
        waiting.result(PATIENCE_S)


@on_all
def test_describe_wait_names_missing_nodes_on_any_thread(meeting: Meeting) -> None:
    handler = meeting.node(2, 2)
    assert handler.describe_wait().phase in (WaitReport.Phase.IDLE, WaitReport.Phase.CONTACT)
    waiting = meeting.join(handler)

    def full_report() -> Optional[WaitReport]:
        report = handler.describe_wait()  # Names may come with a later report.
        return report if report.phase == WaitReport.Phase.FORMING and report.joined else None

    report = servers.until(full_report, handler.describe_wait)
    assert report.run_id == meeting.run_id
    assert (report.here, report.awaited, report.min_nodes, report.max_nodes) == (1, 1, 2, 2)
    assert report.joined == [handler.node]
    assert report.time_left is not None and report.time_left <= timedelta(seconds=60)
    assert "1 more is needed" in str(report)
    meeting.join(meeting.node(2, 2)).result(PATIENCE_S)
    waiting.result(PATIENCE_S)
    assert handler.describe_wait().phase == WaitReport.Phase.COMPLETE


@on_all
def test_a_round_that_does_not_form_in_time_reports_what_is_missing(meeting: Meeting) -> None:
    handler = meeting.node(2, 2, join_timeout=1)
    with pytest.raises(rendezvous.RendezvousTimeoutError, match="1 of 2 nodes"):
        handler.next_rendezvous()


# --- Backends -------------------------------------------------------------------------------------


def test_the_first_node_serves_if_there_is_no_server() -> None:
    port = servers.free_port()
    meeting = Meeting("muster", f"localhost:{port}")
    a, b = (meeting.node(2, 2, is_host=None) for _ in range(2))
    assert a.is_host
    meeting.round([a, b])
    meeting.end()


def test_c10d_serves_its_store_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "muster.rendezvous")
    meeting = Meeting("c10d", f"localhost:{servers.free_port()}")
    a = meeting.node(2, 2, is_host=True)
    b = meeting.node(2, 2, is_host=False)
    assert (a.is_host, b.is_host) == (True, False)
    assert caplog.messages == [f"node '{a.node}' hosts the rendezvous '{meeting.run_id}'"]
    meeting.round([a, b])
    meeting.end()


def test_c10d_in_a_file(tmp_path: object) -> None:
    meeting = Meeting("c10d", f"{tmp_path}/store")
    nodes = [meeting.node(2, 2, store_type="file") for _ in range(2)]
    meeting.round(nodes)
    meeting.end()


def test_muster_continues_with_c10d_on_a_plain_server(capfd: pytest.CaptureFixture[str]) -> None:
    torch_distributed = pytest.importorskip("torch.distributed")
    store = torch_distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = Meeting("muster", f"127.0.0.1:{store.port}")
    nodes = [meeting.node(2, 2) for _ in range(2)]
    meeting.round(nodes)
    assert "no coordinator" in capfd.readouterr().err
    assert {node.active_backend for node in nodes} == {"c10d"}
    assert {node.get_backend() for node in nodes} == {"muster"}
    waiting = meeting.join(nodes[0])
    assert nodes[0].describe_wait() is not None
    nodes[1].set_closed()
    with pytest.raises(rendezvous.RendezvousClosedError):
        waiting.result(PATIENCE_S)
    meeting.end()


def static_params(rank: int, endpoint: str, nodes: int, **options: Any) -> RendezvousParameters:
    return RendezvousParameters("static", endpoint, "run", nodes, nodes, rank=rank, **options)


@pytest.mark.parametrize("nodes", [1, 3])
def test_static_nodes_get_their_configured_ranks(nodes: int) -> None:
    endpoint = f"127.0.0.1:{servers.free_port()}"
    meeting = Meeting("muster", endpoint)  # for its threads
    handlers = [
        rendezvous.get_rendezvous_handler(static_params(rank, endpoint, nodes))
        for rank in range(nodes)
    ]
    infos = meeting.round(handlers)
    assert [info.rank for info in infos] == list(range(nodes))
    infos[-1].store.set("key", "value")
    assert infos[0].store.get("key") == b"value"
    master = infos[-1].bootstrap_store_info
    assert f"{master.master_addr}:{master.master_port}" == endpoint
    again = meeting.round(handlers)
    assert [info.rank for info in again] == list(range(nodes))
    for handler in handlers:
        assert handler.get_backend() == "static"
        assert handler.use_agent_store
        assert handler.num_nodes_waiting() == 0
        handler.set_closed()
        assert not handler.is_closed()
        assert handler.shutdown()
        assert handler.node == ""
        assert handler.stop_waiting() is False
    assert [handler.is_host for handler in handlers] == [True] + [False] * (nodes - 1)
    meeting.end()


def test_static_reports_which_node_did_not_come() -> None:
    endpoint = f"127.0.0.1:{servers.free_port()}"
    handler = rendezvous.get_rendezvous_handler(static_params(0, endpoint, 2, timeout=1))
    with pytest.raises(rendezvous.RendezvousTimeoutError, match=endpoint):
        handler.next_rendezvous()


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("muster", {"is_host": False, "join_timeout": 1}),
        ("c10d", {"is_host": False, "join_timeout": 1, "read_timeout": 1}),
        ("static", {"rank": 1, "timeout": 1}),
        ("etcd", {"join_timeout": 1, "read_timeout": 1}),
        ("etcd-v2", {"join_timeout": 1, "read_timeout": 1}),
    ],
)
def test_without_a_server_the_error_names_the_endpoint_in_time(
    backend: str, options: dict[str, Any]
) -> None:
    endpoint = f"127.0.0.1:{servers.free_port()}"
    began = time.monotonic()
    with pytest.raises(rendezvous.RendezvousConnectionError, match=endpoint):
        rendezvous.get_rendezvous_handler(
            RendezvousParameters(backend, endpoint, "run", 2, 2, **options)
        ).next_rendezvous()
    assert time.monotonic() - began < 20


def test_a_node_that_must_serve_and_cannot_reports_it() -> None:
    server = muster.StoreServer(port=0)
    for backend in ("c10d",):
        with pytest.raises(rendezvous.RendezvousConnectionError, match=str(server.port)):
            rendezvous.get_rendezvous_handler(
                RendezvousParameters(
                    backend, f"localhost:{server.port}", "run", 1, 1, is_host=True, read_timeout=2
                )
            )


# --- Events ---------------------------------------------------------------------------------------


def test_a_sink_receives_every_step() -> None:
    received: list[rendezvous.RendezvousEvent] = []
    meeting = Meeting("muster", f"localhost:{servers.free_port()}")
    rendezvous.set_event_sink(received.append)
    try:
        handler = meeting.node(1, 1, is_host=True)
        handler.next_rendezvous()
    finally:
        rendezvous.set_event_sink(None)
    printed = len(received)
    handler.next_rendezvous()
    assert len(received) == printed > 0
    joined = [event for event in received if event.rank is not None]
    assert joined[0].rank == 0
    assert joined[0].run_id == meeting.run_id
    assert joined[0].node_state in ("INIT", "RUNNING", "SUCCEEDED")
    assert f'"run_id": "{meeting.run_id}"' in joined[0].to_json()
    meeting.end()


def test_what_a_sink_raises_is_reported_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: reported.append(what.exc_value))

    def fail(event: rendezvous.RendezvousEvent) -> None:
        raise LookupError(event.name)

    meeting = Meeting("c10d", f"localhost:{servers.free_port()}")
    rendezvous.set_event_sink(fail)
    try:
        handler = meeting.node(1, 1, is_host=True)
        handler.next_rendezvous()
    finally:
        rendezvous.set_event_sink(None)
    assert reported and all(isinstance(error, LookupError) for error in reported)
    meeting.end()
