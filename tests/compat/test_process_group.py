"""Process groups and rendezvous of real PyTorch jobs, which use the store."""

import concurrent.futures

import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous.api import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

from peers import PATIENCE_S, Background, connect, ms

WORLD = 4


@pytest.mark.parametrize("how", ["tcp", "env", "store", "prefix", "clone"])
def test_four_gloo_processes_reduce_and_meet(server, workers, how):
    sums = workers.run("process_group", WORLD, world_size=WORLD, port=server.port, how=how)
    expected = [10.0, 60.0, *map(float, range(WORLD))]  # 1+2+3+4, 0+10+20+30, and the rank of each
    assert sums == [expected] * WORLD
    assert connect(server).num_keys() > 0


def test_one_server_serves_one_group_after_the_other_under_different_prefixes(server, workers):
    first = workers.run("process_group", 2, world_size=2, port=server.port, how="prefix")
    second = workers.run("process_group", 2, world_size=2, port=server.port, how="store")
    assert first == second == [[3.0, 10.0, 0.0, 1.0]] * 2
    keys = connect(server).list_keys()
    assert any(key.startswith("job/outer/") for key in keys)


def test_the_shared_state_of_torchrun_lives_on_the_server(server):
    """The backend of `--rdzv-backend=c10d`: compare-and-set on one key, fenced by a token."""
    mine = C10dRendezvousBackend(connect(server), "run")
    theirs = C10dRendezvousBackend(connect(server), "run")
    assert mine.get_state() is None
    state, token, is_set = mine.set_state(b"mine")
    assert (state, is_set) == (b"mine", True)
    assert theirs.set_state(b"theirs") == (b"mine", token, False)
    state, newer, is_set = theirs.set_state(b"theirs", token)
    assert (state, is_set) == (b"theirs", True)
    assert mine.set_state(b"late", token) == (b"theirs", newer, False)
    assert mine.get_state() == (b"theirs", newer)


def test_two_agents_of_torchrun_find_each_other(server):
    """torchrun's dynamic rendezvous: the server holds its state and the workers' store."""
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint=server.address,
        run_id="run",
        min_nodes=2,
        max_nodes=2,
        local_addr="127.0.0.1",
        last_call_timeout=1,
    )

    def join(_):
        store = connect(server)
        handler = create_handler(store, C10dRendezvousBackend(store, "run"), parameters)
        try:
            found = handler.next_rendezvous()
            found.store.set(f"hello from {found.rank}", "")
            found.store.wait(["hello from 0", "hello from 1"], ms(20_000))
            return found.rank, found.world_size
        finally:
            handler.shutdown()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ranks = sorted(pool.map(join, range(2), timeout=2 * PATIENCE_S))
    assert ranks == [(0, 2), (1, 2)]


def test_a_monitored_wait_in_slices_is_answered(server, store, other):
    """Process groups wait in slices of seconds and cancel each one; here they are milliseconds."""

    def wait_in_slices():
        for slices in range(10_000):
            try:
                store.wait(["key"], ms(2))
                return slices
            except dist.DistStoreError:
                continue
        raise AssertionError("the key never came")

    waiter = Background(wait_in_slices)
    for _ in range(50):
        assert other.check(["key"]) is False
    other.set("key", "value")
    assert waiter.result() >= 0
    assert store.get("key") == b"value"
