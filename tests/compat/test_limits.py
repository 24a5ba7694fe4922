"""Sizes: the largest valid size works, and a larger one closes the connection. Items 113 to 119."""

import time

import pytest
import torch.distributed as dist

from peers import Background, RawClient, blob, connect, ms

KEY_MAX = 8192  # on the wire, where torch puts a '/' in front
VALUE_MAX = 8 * 1024 * 1024
KEYS_MAX = 128 * 1024


def test_item113_the_longest_key_works_everywhere(store, other):
    key = "k" * (KEY_MAX - 1)
    store.set(key, "value")
    assert other.get(key) == b"value"
    assert store.compare_set(key, "value", "12") == b"12"
    assert store.add(key, 1) == 13
    store.append(key, "0")
    store.multi_set([key + "", "b"], ["7", ""])
    assert store.multi_get([key]) == [b"7"]
    assert store.check([key, "b"]) is True
    store.queue_push(key, "element")
    assert (store.queue_len(key), store.queue_pop(key)) == (1, b"element")
    assert sorted(map(len, store.list_keys())) == [1, KEY_MAX - 1]
    assert store.delete_key(key) is True
    store.barrier(key, 1)


TOO_LONG = "k" * KEY_MAX
CALLS_WITH_A_KEY = {
    "set": lambda store: store.set(TOO_LONG, ""),
    "get": lambda store: store.get(TOO_LONG),
    "add": lambda store: store.add(TOO_LONG, 1),
    "check": lambda store: store.check(["a", TOO_LONG]),
    "wait": lambda store: store.wait([TOO_LONG], ms(20_000)),
    "compare_set": lambda store: store.compare_set(TOO_LONG, "", "1"),
    "delete_key": lambda store: store.delete_key(TOO_LONG),
    "append": lambda store: store.append(TOO_LONG, ""),
    "multi_set": lambda store: store.multi_set(["a", TOO_LONG], ["", ""]),
    "multi_get": lambda store: store.multi_get([TOO_LONG]),
    "queue_push": lambda store: store.queue_push(TOO_LONG, ""),
    "queue_len": lambda store: store.queue_len(TOO_LONG),
    "queue_pop": lambda store: store.queue_pop(TOO_LONG, block=False),
    "barrier": lambda store: store.barrier(TOO_LONG, 2),
}


@pytest.mark.parametrize("call", CALLS_WITH_A_KEY.values(), ids=CALLS_WITH_A_KEY.keys())
def test_item113_a_longer_key_ends_the_connection_that_sent_it(store, other, call):
    with pytest.raises(dist.DistNetworkError):
        call(store)
        store.num_keys()  # writes have no answer: the next call fails
    with pytest.raises(dist.DistNetworkError):
        store.num_keys()
    assert "k" not in "".join(other.list_keys())
    assert other.add("n", 1) == 1


def test_item114_the_largest_value_works_everywhere(store, other):
    value = bytes(range(256)) * (VALUE_MAX // 256)
    store.set("key", value)
    assert other.get("key") == value
    assert store.compare_set("key", value, b"small") == b"small"
    assert store.compare_set("key", b"small", value) == value
    store.multi_set(["a", "b"], [value, "small"])
    assert store.multi_get(["b", "a"]) == [b"small", value]
    store.queue_push("queue", value)
    assert other.queue_pop("queue") == value


CALLS_WITH_A_VALUE = {
    "set": lambda store, value: store.set("key", value),
    "append": lambda store, value: store.append("key", value),
    "compare_set": lambda store, value: store.compare_set("key", "", value),
    "compare_set_expecting": lambda store, value: store.compare_set("key", value, ""),
    "multi_set": lambda store, value: store.multi_set(["a", "key"], ["", value]),
    "queue_push": lambda store, value: store.queue_push("key", value),
}


@pytest.mark.parametrize("call", CALLS_WITH_A_VALUE.values(), ids=CALLS_WITH_A_VALUE.keys())
def test_item114_a_larger_value_ends_the_connection_that_sent_it(store, other, call):
    with pytest.raises(dist.DistNetworkError):
        call(store, b"v" * (VALUE_MAX + 1))  # may meet the closed connection while still sending
        store.num_keys()
    with pytest.raises(dist.DistNetworkError):
        store.num_keys()
    assert other.check(["key"]) is False
    assert other.add("n", 1) == 1


def test_item115_as_many_keys_as_are_allowed_work_in_one_request(store):
    store.set("a", "")
    store.set("b", "")
    keys = ["a", "b"] * (KEYS_MAX // 2)
    started = time.monotonic()
    store.wait(keys, ms(60_000))
    assert store.check(keys) is True
    assert time.monotonic() - started < 30
    assert store.multi_get(keys) == [b""] * KEYS_MAX


@pytest.mark.muster_differs(
    "PyTorch's server parses a long MULTI_SET again with every 4 KiB: this takes minutes", run=False
)
def test_item115_a_waiter_for_as_many_keys_as_are_allowed_is_released(server, store, other):
    keys = [str(number) for number in range(KEYS_MAX)]
    waiter = Background(store.wait, keys).parked(store, server)
    other.multi_set(keys[1:], [""] * (KEYS_MAX - 1))
    assert other.check(keys) is False
    assert waiter.running
    other.set(keys[0], "")
    waiter.result()


CALLS_WITH_KEYS = {
    "check": lambda store, keys: store.check(keys),
    "wait": lambda store, keys: store.wait(keys, ms(20_000)),
    "multi_get": lambda store, keys: store.multi_get(keys),
    "multi_set": lambda store, keys: store.multi_set(keys, [""] * len(keys)),
}


@pytest.mark.parametrize("call", CALLS_WITH_KEYS.values(), ids=CALLS_WITH_KEYS.keys())
def test_item115_one_key_more_ends_the_connection_that_sent_it(store, other, call):
    other.set("a", "")
    with pytest.raises(dist.DistNetworkError):
        call(store, ["a"] * (KEYS_MAX + 1))
        store.num_keys()
    assert other.num_keys() == 1


def test_item116_a_value_grown_by_append_beyond_the_limit_can_be_read(store, other):
    piece = b"0123456789abcdef" * (VALUE_MAX // 16)
    store.set("key", piece)
    store.append("key", piece)
    store.append("key", b"and a little more")
    store.num_keys()  # an answer: the appends before it have been executed
    value = other.get("key")
    assert len(value) == 2 * VALUE_MAX + 17
    assert value == piece + piece + b"and a little more"
    assert other.multi_get(["key"]) == [value]


def test_item117_a_request_that_comes_in_pieces_delays_no_other_client(server, store, other):
    key, value = blob(b"/slow"), blob(b"value")
    with RawClient(server) as raw:
        raw.send(b"\x01", key)
        give_up = time.monotonic() + 1  # the claim is about time: a second between key and value
        served = 0
        while time.monotonic() < give_up:
            served = store.add("n", 1)
        assert other.check(["slow"]) is False
        raw.send(value)
        assert store.get("slow") == b"value"
    assert served > 100


def test_item118_a_request_may_come_byte_by_byte(server, store):
    with RawClient(server) as raw:
        for byte in b"\x01" + blob(b"/key") + blob(b"value") + b"\x07":
            raw.send(bytes([byte]))
        assert raw.receive_int() == 1
    assert store.get("key") == b"value"


def test_item119_writes_by_the_hundred_thousand_are_all_done(store, other):
    writes = 100_000
    for number in range(writes):
        store.set(f"key{number % 1000}", str(number))
    assert store.num_keys() == 1000
    assert store.get("key999") == str(writes - 1).encode()
    for _ in range(5000):
        store.append("log", "x")
        store.queue_push("queue", "y")
    assert store.queue_len("queue") == 5000
    assert other.get("log") == b"x" * 5000


@pytest.mark.muster_only
def test_limits_can_be_raised_for_torch_clients_too(start_server):
    server = start_server(
        "127.0.0.1:0", "--key-bytes-max=20000", f"--value-bytes-max={2 * VALUE_MAX}"
    )
    store = connect(server)
    key, value = "k" * 19_999, b"v" * (2 * VALUE_MAX)
    store.set(key, value)
    assert store.get(key) == value
    with pytest.raises(dist.DistNetworkError):
        store.set(key + "k", "")
        store.num_keys()
