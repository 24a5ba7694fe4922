"""Many clients at once, in threads and in processes. Items 38, 44, 84, 86 and 121."""

import concurrent.futures
import resource
import threading
import time

import pytest

from peers import PATIENCE_S, connect, ms

CROWD = 4096


@pytest.fixture
def many_descriptors():
    """Allows a crowd's connections in this process; the server raises its own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > CROWD + 500, f"{hard} descriptors are too few"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def in_threads(count: int, work):
    """What `work(number)` returned for each number, all of them running at once."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count), timeout=2 * PATIENCE_S))


def test_item044_128_clients_set_a_key_each_and_wait_for_all(server):
    count = 128
    keys = [f"key{number}" for number in range(count)]

    def meet(number):
        store = connect(server, timeout_s=60, connect_s=60)
        store.set(keys[number], str(number))
        store.wait(keys, ms(60_000))
        return store.multi_get(keys)

    expected = [str(number).encode() for number in range(count)]
    assert in_threads(count, meet) == [expected] * count


def test_item084_item086_128_clients_meet_at_a_barrier(server):
    count = 128
    arrived, before_the_last = [], []
    lock = threading.Lock()

    def meet(number):
        store = connect(server, timeout_s=60, connect_s=60)
        with lock:
            arrived.append(number)
        store.barrier("gate", count)
        before_the_last.append(len(arrived) < count)
        return store.get("gate")

    assert in_threads(count, meet) == [str(count).encode()] * count
    assert not any(before_the_last)


def test_no_addition_is_lost_between_threads(server):
    clients, each = 16, 200

    def count_up(_):
        store = connect(server)
        return [store.add("n", 1) for _ in range(each)]

    sums = [total for seen in in_threads(clients, count_up) for total in seen]
    assert sorted(sums) == list(range(1, clients * each + 1))


def test_threads_that_share_one_client_take_turns(server):
    store = connect(server)

    def use(number):
        for turn in range(50):
            store.set(f"{number}", f"{turn}")
            assert store.get(f"{number}") == f"{turn}".encode()
            store.add("n", 1)

    in_threads(8, use)
    assert store.get("n") == b"400"


def test_no_addition_is_lost_between_processes(server, workers):
    count, each = 6, 500
    sums = workers.run("add_many", count, port=server.port, key="n", times=each)
    assert max(sums) == count * each
    assert connect(server).get("n") == str(count * each).encode()


def test_processes_meet_by_keys_and_by_a_barrier(server, workers):
    count = 12
    expected = [f"here-{rank}" for rank in range(count)]
    assert workers.run("meet", count, port=server.port, world_size=count) == [expected] * count


def test_item121_4096_clients_connect_at_once(server, many_descriptors):
    start = threading.Barrier(CROWD)
    connect_s = 60
    times = []

    def connect_one(_):
        start.wait(PATIENCE_S)
        began = time.monotonic()
        store = connect(server, connect_s=connect_s, world_size=CROWD, wait_for_workers=True)
        times.append(time.monotonic() - began)
        store.add("n", 1)
        return store

    usual = threading.stack_size(512 * 1024)
    try:
        stores = in_threads(CROWD, connect_one)
    finally:
        threading.stack_size(usual)
    assert len(stores) == len(times) == CROWD
    assert max(times) < connect_s
    assert stores[0].get("n") == str(CROWD).encode()
    assert stores[-1].num_keys() == 2  # n, and init/ which counts them
    assert all(store.check(["n"]) for store in stores[::97])
