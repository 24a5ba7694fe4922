"""Barriers, by the server (a bare TCPStore) and by counter keys (a PrefixStore). Items 83 to 87."""

import time

import pytest
import torch.distributed as dist
from torch.distributed.elastic.utils import store as elastic

from peers import Background, ms


@pytest.mark.parametrize("world_size", [1, 0, -3])
def test_item083_a_world_of_one_waits_for_no_other(store, world_size):
    started = time.monotonic()
    store.barrier("gate", world_size)
    assert time.monotonic() - started < 10
    assert store.get("gate") == b"1"


def test_item084_all_return_when_the_last_one_arrives_and_none_before(server, client, other):
    stores = [client() for _ in range(7)]
    calls = [Background(store.barrier, "gate", 8).parked(store, server) for store in stores]
    assert other.get("gate") == b"7"
    assert all(call.running for call in calls)
    other.barrier("gate", 8)
    for call in calls:
        call.result()


def test_item084_two_barriers_do_not_mix(server, client, other):
    first, second = client(), client()
    at_first = Background(first.barrier, "first", 2).parked(first, server)
    at_second = Background(second.barrier, "second", 2).parked(second, server)
    other.barrier("second", 2)
    at_second.result()
    assert at_first.running
    other.barrier("first", 2)
    at_first.result()


def test_item085_a_barrier_times_out_in_time_and_names_itself(store, other):
    started = time.monotonic()
    with pytest.raises(dist.DistStoreError) as failure:
        store.barrier("gate", 3, timeout=ms(200))
    assert 0.2 <= time.monotonic() - started < 2
    assert str(failure.value) == "barrier timeout after 200ms, key: gate"
    assert store.add("n", 1) == 1
    assert other.get("gate") == b"1"


def test_item085_without_a_timeout_of_its_own_a_barrier_takes_that_of_the_store(client):
    store = client(timeout_s=0.1)
    with pytest.raises(dist.DistStoreError, match=r"^barrier timeout after 100ms, key: gate$"):
        store.barrier("gate", 2)


def test_item085_the_cancelled_participant_is_not_released_later(store, other, client):
    with pytest.raises(dist.DistStoreError):
        store.barrier("gate", 2, timeout=ms(1))
    other.barrier("gate", 2)  # the client that timed out stays counted
    assert store.num_keys() == 1
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 1ms, keys: /missing$"):
        store.wait(["missing"], ms(1))
    assert store.add("n", 1) == 1


def test_item086_the_key_counts_the_arrived_clients(client, other):
    calls = [Background(client().barrier, "gate", 5) for _ in range(5)]
    for call in calls:
        call.result()
    assert other.get("gate") == b"5"
    assert other.list_keys() == ["gate"]
    other.barrier("gate", 5)  # a key works once: a client that comes later passes
    assert other.get("gate") == b"6"


def test_item086_a_barrier_on_what_is_no_number_ends_the_connection(store, other):
    store.set("gate", "abc")
    with pytest.raises(dist.DistNetworkError, match=r"^Failed to recv, got 0 bytes\."):
        store.barrier("gate", 2)
    assert other.get("gate") == b"abc"


def test_item087_through_a_prefix_the_counter_keys_are_used(client, other):
    def meet():
        dist.PrefixStore("job", client()).barrier("gate", 3)

    calls = [Background(meet) for _ in range(3)]
    for call in calls:
        call.result()
    assert sorted(other.list_keys()) == ["job/gate/last_member", "job/gate/num_members"]
    assert other.get("job/gate/num_members") == b"3"
    assert other.get("job/gate/last_member") == b"1"


def test_item087_a_barrier_through_a_prefix_times_out_with_the_text_of_a_wait(store):
    text = r"^wait timeout after 50ms, keys: /job/gate/last_member$"
    with pytest.raises(dist.DistStoreError, match=text):
        dist.PrefixStore("job", store).barrier("gate", 2, timeout=ms(50))
    assert store.get("job/gate/num_members") == b"1"


def test_the_barrier_of_elastic_meets_the_one_of_a_prefix(client, other):
    """Both use the same keys, with different content in the last one."""
    elastic_call = Background(elastic.barrier, client(), 2, "job/gate", 10)
    other_call = Background(dist.PrefixStore("job", client()).barrier, "gate", 2)
    elastic_call.result()
    other_call.result()
    assert other.get("job/gate/num_members") == b"2"


def test_the_synchronize_of_elastic_gathers_from_all(client):
    def gather(rank):
        return elastic.synchronize(client(), f"data {rank}".encode(), rank, 4, "sync", timeout=20)

    calls = [Background(gather, rank) for rank in range(4)]
    expected = [f"data {rank}".encode() for rank in range(4)]
    assert [call.result() for call in calls] == [expected] * 4


WRITES = {
    "set": lambda store: store.set("set", "7"),
    "add": lambda store: store.add("add", 1),
    "append": lambda store: store.append("append", "0"),
    "compare_set": lambda store: store.compare_set("compare_set", "1", "2"),
    "multi_set": lambda store: store.multi_set(["multi_set"], ["2"]),
}


@pytest.mark.muster_differs(
    "PyTorch's server releases a barrier at any write to its key", torch_answers="DID NOT RAISE"
)
def test_a_write_to_the_key_does_not_release_a_barrier(server, client, other):
    calls = {}
    for name in WRITES:
        store = client()
        calls[name] = Background(store.barrier, name, 1000, timeout=ms(1000)).parked(store, server)
    for write in WRITES.values():
        write(other)
    for name, call in calls.items():
        with pytest.raises(
            dist.DistStoreError, match=rf"^barrier timeout after 1000ms, key: {name}$"
        ):
            call.result()


@pytest.mark.muster_differs(
    "PyTorch's server releases such a wait only when the barrier is complete",
    torch_answers="^wait timeout after 2000ms, keys: /gate$",
)
def test_a_wait_for_the_key_of_a_barrier_ends_with_the_first_arrival(server, client, other):
    waiting, arriving = client(timeout_s=2), client()
    waiter = Background(waiting.get, "gate").parked(waiting, server)
    arrival = Background(arriving.barrier, "gate", 2)
    assert waiter.result() == b"1"
    other.barrier("gate", 2)
    arrival.result()
