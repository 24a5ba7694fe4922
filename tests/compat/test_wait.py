"""Checking and waiting for keys, with and without success. Items 39 to 57."""

import signal
import threading
import time

import pytest
import torch.distributed as dist

from peers import Background, RawClient, blob, connect, eventually, ms


def test_item039_no_keys_are_always_there(store):
    assert store.check([]) is True
    store.wait([])
    assert store.num_keys() == 0


def test_item040_check_needs_every_key(store):
    keys = [f"key{number}" for number in range(50)]
    for key in keys:
        store.set(key, "")
    assert store.check(keys) is True
    assert store.check([*keys[:25], "missing", *keys[25:]]) is False
    assert store.check(["missing"]) is False
    assert store.check([keys[0]] * 3) is True


def test_item041_wait_for_keys_that_are_there_does_not_wait(store):
    store.set("a", "1")
    store.set("b", "2")
    started = time.monotonic()
    store.wait(["a", "b"], ms(30_000))
    assert time.monotonic() - started < 10


def test_item042_wait_returns_when_the_last_missing_key_is_set(server, store, other):
    other.set("1", "")
    waiter = Background(store.wait, ["1", "2"]).parked(store, server)
    other.set("unrelated", "")
    assert waiter.running
    other.set("2", "")
    waiter.result()


def test_item042_keys_may_come_in_any_order_and_by_different_clients(server, store, other, client):
    waiter = Background(store.wait, ["1", "2", "3", "4"]).parked(store, server)
    other.set("4", "")
    client().add("2", 1)
    other.multi_set(["3", "x"], ["", ""])
    assert waiter.running
    client().append("1", "")
    waiter.result()


def test_item043_a_key_waited_for_twice_is_set_once(server, store, other):
    waiter = Background(store.wait, ["key", "key", "key"]).parked(store, server)
    other.set("key", "")
    waiter.result()


WRITES = {
    "set": lambda store: store.set("key", "value"),
    "add": lambda store: store.add("key", 1),
    "append": lambda store: store.append("key", "value"),
    "multi_set": lambda store: store.multi_set(["before", "key"], ["", "value"]),
    "compare_set": lambda store: store.compare_set("key", "", "value"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_item045_one_write_releases_all_waiters_of_the_key(server, client, other, write):
    waiting = [client() for _ in range(12)]
    calls = [Background(store.get, "key") for store in waiting]
    for store, call in zip(waiting, calls, strict=True):
        call.parked(store, server)
    write(other)
    assert {call.result() for call in calls} == {other.get("key")}


def test_item046_item047_wait_times_out_in_time_and_names_the_key(store):
    started = time.monotonic()
    with pytest.raises(dist.DistStoreError) as failure:
        store.wait(["bad_key"], ms(250))
    assert 0.25 <= time.monotonic() - started < 2
    assert str(failure.value) == "wait timeout after 250ms, keys: /bad_key"


def test_item047_the_text_names_every_key_of_the_call(store):
    store.set("there", "")
    with pytest.raises(dist.DistStoreError) as failure:
        store.wait(["there", "a b", "c"], ms(1))
    assert str(failure.value) == "wait timeout after 1ms, keys: /there, /a b, /c"


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get("k"),
        lambda store: store.wait(["k"]),
        lambda store: store.multi_get(["k"]),
    ],
    ids=["get", "wait", "multi_get"],
)
def test_item047_every_reader_times_out_with_the_same_text(client, call):
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 100ms, keys: /k$"):
        call(client(timeout_s=0.1))


@pytest.mark.parametrize("timeout_ms", [0, 1, 50])
def test_item048_after_a_timeout_the_connection_is_as_good_as_new(store, timeout_ms):
    for attempt in range(20 if timeout_ms < 50 else 3):
        with pytest.raises(dist.DistStoreError):
            store.wait([f"missing{attempt}", "too"], ms(timeout_ms))
        store.set(f"missing{attempt}", str(attempt))
        assert store.get(f"missing{attempt}") == str(attempt).encode()
        assert store.add("counter", 1) == attempt + 1


def test_item048_the_cancelled_wait_is_forgotten(store, other):
    with pytest.raises(dist.DistStoreError):
        store.wait(["key"], ms(1))
    other.set("key", "late")  # must not send a byte to the client that timed out
    assert other.get("key") == b"late"
    assert store.num_keys() == 1
    assert store.get("key") == b"late"


def test_item053_waiters_that_vanish_are_forgotten(server, store):
    for _ in range(200):
        with RawClient(server) as raw:
            raw.send(b"\x06", b"\x01" + bytes(7), blob(b"/key"))
            raw.ping()
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert store.num_keys() == 1


def test_item054_a_key_once_seen_stays_seen(server, store, other):
    other.set("a", "")
    waiter = Background(store.wait, ["a", "b", "c"]).parked(store, server)
    assert other.delete_key("a") is True
    other.set("b", "")
    assert other.delete_key("b") is True
    assert waiter.running
    other.set("c", "")
    waiter.result()
    assert not store.check(["a"])


def interrupt_main_thread(is_enough) -> None:
    """Sends signals until `is_enough()`. A single one could come before the call under test."""
    while not is_enough():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        time.sleep(0.005)  # a signal that meets a pending one is lost


@pytest.fixture
def interrupts():
    """Counts SIGUSR1 instead of dying of it."""
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    yield seen
    signal.signal(signal.SIGUSR1, before)


def test_item055_signals_do_not_fail_a_wait(store, other, interrupts):
    def interrupt_then_set():
        give_up = time.monotonic() + 0.2
        interrupt_main_thread(lambda: time.monotonic() > give_up)
        other.set("key", "value")

    call = Background(interrupt_then_set)
    assert store.get("key") == b"value"
    call.result()
    assert interrupts
    assert store.add("n", 1) == 1


def test_item055_signals_do_not_fail_a_barrier(store, other, interrupts):
    def interrupt_then_arrive():
        give_up = time.monotonic() + 0.2
        interrupt_main_thread(lambda: time.monotonic() > give_up)
        other.barrier("gate", 2)

    call = Background(interrupt_then_arrive)
    store.barrier("gate", 2)
    call.result()
    assert interrupts
    assert store.get("gate") == b"2"


def test_item055_a_signal_ends_a_wait_without_limit_and_leaves_the_stream_in_step(
    store, other, interrupts
):
    is_over = threading.Event()
    interrupter = Background(interrupt_main_thread, is_over.is_set)
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after -1ms, keys: /key$"):
        store.wait(["key"], ms(-1))  # torch's negative timeouts: no limit, until a signal
    is_over.set()
    interrupter.result()
    other.set("key", "value")
    assert store.get("key") == b"value"


@pytest.mark.parametrize("call", ["get", "wait", "barrier", "queue_pop"])
@pytest.mark.parametrize("end", ["stop", "crash"])
def test_item056_waiters_learn_at_once_that_the_server_is_gone(server, store, call, end):
    calls = {
        "get": lambda: store.get("never"),
        "wait": lambda: store.wait(["never"], ms(60_000)),
        "barrier": lambda: store.barrier("gate", 2),
        "queue_pop": lambda: store.queue_pop("queue"),
    }
    waiter = Background(calls[call]).parked(store, server)
    started = time.monotonic()
    getattr(server, end)()
    with pytest.raises(
        dist.DistNetworkError, match=r"^(Failed to recv, got 0 bytes\.|Connection reset)"
    ):
        waiter.result()
    assert time.monotonic() - started < 10


def test_item056_a_client_of_a_server_that_is_gone_stays_useless(server, store):
    store.set("key", "value")
    assert store.get("key") == b"value"
    server.stop()

    def fails():
        try:
            store.set("key", "value")  # the first write after the end may still get into the kernel
            return False
        except dist.DistNetworkError:
            return True

    eventually(fails, "a set notices that the server is gone")
    with pytest.raises(dist.DistNetworkError, match=r"^Broken pipe$"):
        store.get("key")


def test_item057_set_timeout_holds_for_later_calls(store):
    store.set("key", "value")
    assert store.delete_key("key")
    store.set_timeout(ms(2000))
    assert store.timeout == ms(2000)
    started = time.monotonic()
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 2000ms, keys: /key$"):
        store.get("key")
    assert 2 <= time.monotonic() - started < 8


def test_item057_a_timeout_of_the_call_beats_that_of_the_store(store):
    store.set_timeout(ms(60_000))
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 20ms,"):
        store.wait(["key"], ms(20))
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 30ms,"):
        store.wait(["key"], 0.03)
    assert store.timeout == ms(60_000)


@pytest.mark.muster_differs(
    "in PyTorch's server a queue that has elements still counts as missing among several keys",
    torch_answers="^wait timeout after 1000ms, keys: /queue, /key$",
)
def test_wait_for_several_keys_counts_a_queue_with_elements_as_there(server, store, other):
    other.queue_push("queue", "element")
    waiter = Background(store.wait, ["queue", "key"], ms(1000)).parked(store, server)
    other.set("key", "")
    waiter.result()


def test_the_older_client_of_torch_waits_and_times_out_the_same_way(server, other):
    store = connect(server, use_libuv=False)
    assert store.libuvBackend is False
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 50ms, keys: /key$"):
        store.wait(["key"], ms(50))
    waiter = Background(store.get, "key").parked(store, server)
    other.set("key", "value")
    assert waiter.result() == b"value"
    assert store.check(["key", "nothing"]) is False
    assert (store.add("n", 4), store.compare_set("c", "", "1"), store.delete_key("c")) == (
        4,
        b"1",
        True,
    )
    store.append("key", "s")
    store.multi_set(["x", "y"], ["1", "2"])
    assert store.multi_get(["key", "y", "x"]) == [b"values", b"2", b"1"]
    store.barrier("gate", 1)
    assert sorted(store.list_keys()) == ["gate", "key", "n", "x", "y"]
    assert store.num_keys() == 5
    assert store.clone().get("n") == b"4"
