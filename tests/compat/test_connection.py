"""Handshakes, addresses, constructors and disconnects. Items 2, 12 and 100 to 112."""

import os
import re
import signal
import socket
import time

import pytest
import torch.distributed as dist

from peers import Background, RawClient, blob, connect, eventually, ms


def test_item002_item012_a_client_of_2_4_needs_no_ping(server, store):
    """2.4 cannot be installed together with 2.13: raw messages without a PING replace it."""
    with RawClient(server) as old:
        old.send(
            b"\x04", blob(b"init/"), (1).to_bytes(8, "little")
        )  # it joins a world of known size
        assert old.receive_int() == 1
        old.send(b"\x01", blob(b"/from 2.4"), blob(b"hello"))
        old.send(b"\x07")
        assert old.receive_int() == 2
        assert store.get("from 2.4") == b"hello"
        store.set("from 2.13", "hello back")
        assert store.num_keys() == 3
        old.send(b"\x06", (1).to_bytes(8, "little"), blob(b"/from 2.13"))
        assert old.receive(1) == b"\0"
        old.send(b"\x03", blob(b"/from 2.13"))
        assert old.receive_blob() == b"hello back"


@pytest.mark.muster_only
def test_item100_the_port_that_the_kernel_chose_is_returned_and_works(server):
    assert server.port > 0
    assert re.fullmatch(rf"muster: serving on 127\.0\.0\.1:{server.port}", server.announced)
    store = connect(server)
    assert store.port == server.port
    assert store.host == "127.0.0.1"
    assert store.add("n", 1) == 1


def test_item100_two_servers_share_nothing(start_server):
    first, second = connect(start_server()), connect(start_server())
    first.set("key", "value")
    assert second.num_keys() == 0
    assert first.port != second.port


def test_item101_torch_cannot_start_a_server_where_one_is(server):
    text = rf"^The server socket has failed to listen on any local .*{server.port}"
    with pytest.raises(dist.DistNetworkError, match=text):
        dist.TCPStore("127.0.0.1", server.port, is_master=True, wait_for_workers=False)
    assert connect(server).num_keys() == 0


def test_item103_under_torchrun_a_taken_port_turns_the_server_into_a_client(server, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_PORT", str(server.port))
    rank0 = dist.TCPStore("127.0.0.1", server.port, 2, is_master=True, timeout=ms(20_000))
    assert "server=<nullptr>" in repr(rank0)
    rank0.set("key", "value")
    assert connect(server).get("key") == b"value"
    assert rank0.num_keys() == 2  # it counted itself, and did not wait for the other


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_item105_every_spelling_of_the_host_reaches_a_server_on_all_addresses(start_server, host):
    server = start_server(":0")
    store = connect(server, host=host)
    assert store.add("n", 1) == 1
    assert connect(server).get("n") == b"1"


@pytest.fixture
def reserved_port():
    """A port without a listener that no other process gets; a server that may reuse addresses can."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


class Nobody:
    """Where a server starts later, or never."""

    def __init__(self, port: int):
        self.host, self.port = "127.0.0.1", port


@pytest.mark.muster_only
def test_item106_a_client_may_come_before_the_server(start_server, reserved_port):
    early = Background(connect, Nobody(reserved_port))
    time.sleep(0.3)  # the claim is about time: several attempts are refused before a server listens
    assert early.running
    server = start_server(f"127.0.0.1:{reserved_port}")
    early.result().set("key", "value")
    assert connect(server).get("key") == b"value"


def test_item107_torch_names_the_server_that_it_could_not_reach(reserved_port):
    started = time.monotonic()
    text = rf"^The client socket has timed out after 1000ms .* \(127\.0\.0\.1, {reserved_port}\)\.$"
    with pytest.raises(dist.DistNetworkError, match=text):
        connect(Nobody(reserved_port), connect_s=1)
    assert time.monotonic() - started < 5  # up to twice the timeout, because torch retries


def test_item110_a_client_with_a_world_size_does_not_wait_for_the_world(server):
    started = time.monotonic()
    store = connect(server, world_size=5, wait_for_workers=True)
    assert time.monotonic() - started < 10
    assert store.num_keys() == 1
    assert store.list_keys() == []


@pytest.mark.parametrize("joining", [1, 2, 7])
def test_item110_every_client_that_joins_is_counted(server, joining):
    stores = [connect(server, world_size=7, wait_for_workers=True) for _ in range(joining)]
    with RawClient(server) as raw:
        raw.send(b"\x03", blob(b"init/"))
        assert raw.receive_blob() == str(joining).encode()
    assert stores[-1].num_keys() == 1


def test_item111_a_world_of_zero_is_refused(server):
    with pytest.raises(ValueError, match=r"^TCPStore world size cannot be 0$"):
        connect(server, world_size=0)


@pytest.mark.parametrize("world_size", [None, -1])
def test_item111_a_world_of_unknown_size_is_not_joined(server, world_size):
    assert connect(server, world_size=world_size, wait_for_workers=True).num_keys() == 0


def leave_while_parked(raw):
    raw.send(b"\x06", (1).to_bytes(8, "little"), blob(b"/key"))
    raw.ping()


def leave_in_the_middle_of_a_value(raw):
    raw.send(b"\x01", blob(b"/key"), (1000).to_bytes(8, "little"), b"only this")


def leave_before_the_handshake_is_over(raw):
    raw.send(raw.VALIDATE[:3])


def leave_with_answers_unread(raw):
    raw.send(b"\x07" * 1000)


LEAVING = [
    leave_while_parked,
    leave_in_the_middle_of_a_value,
    leave_before_the_handshake_is_over,
    leave_with_answers_unread,
]


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("leave", LEAVING, ids=lambda leave: leave.__name__)
def test_item112_clients_that_leave_disturb_no_others(server, store, other, leave, how):
    waiter = Background(store.get, "awaited").parked(store, server)
    for _ in range(20):
        raw = RawClient(server, validate=leave is not leave_before_the_handshake_is_over)
        leave(raw)
        getattr(raw, how)()
    assert other.num_keys() == 0
    assert waiter.running
    other.set("awaited", "value")
    assert waiter.result() == b"value"
    assert connect(server).num_keys() == 1


def test_item112_killed_processes_disturb_no_others(server, store, other, workers):
    workers.start("park_until_killed", 3, port=server.port, ready="ready", never="never")
    waiter = Background(store.get, "awaited").parked(store, server)
    for value in other.multi_get([f"ready/{rank}" for rank in range(3)]):
        os.kill(int(value), signal.SIGKILL)
    assert [outcome["error"] for outcome in workers.outcomes()] == ["ended with status -9"] * 3
    assert waiter.running
    other.set("never", "too late for them")
    other.set("awaited", "value")
    assert waiter.result() == b"value"
    assert other.num_keys() == 5


def test_item112_torch_clients_come_and_go_by_the_hundred(server, store):
    for number in range(300):
        passer_by = connect(server)
        assert passer_by.add("visits", 1) == number + 1
    assert store.get("visits") == b"300"


@pytest.mark.muster_only
def test_the_server_ends_with_status_0_while_clients_wait_and_write(start_server):
    server = start_server()
    stores = [connect(server) for _ in range(5)]
    calls = [Background(store.get, "never").parked(store, server) for store in stores]
    writer = connect(server)

    def write():
        while True:
            writer.set("key", "value" * 1000)

    calls.append(Background(write))
    eventually(lambda: connect(server).check(["key"]), "the writer writes")
    server.stop()  # asserts the status
    for call in calls:
        with pytest.raises(dist.DistNetworkError):
            call.result()
