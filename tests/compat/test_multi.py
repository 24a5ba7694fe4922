"""Appending, and many keys in one request. Items 58 to 66 and 80 to 82."""

import os

import pytest
import torch.distributed as dist

from peers import Background, RawClient, blob, ms


def test_item058_append_extends_or_creates(store, other):
    store.set("foo", "po")
    store.append("foo", "tato")
    store.append("bar", "po")
    store.append("bar", "tato")
    assert store.get("foo") == b"potato"
    assert other.get("bar") == b"potato"


def test_item058_append_takes_any_bytes(store):
    everything = bytes(range(256))
    store.append("key", b"")
    assert store.get("key") == b""
    store.append("key", everything)
    store.append("key", b"\0")
    assert store.get("key") == everything + b"\0"


def test_item059_append_of_what_is_already_there_doubles_it(store):
    for times in range(1, 4):
        store.append("key", "same")
        assert store.get("key") == b"same" * times
    store.append("key", "same" * 3)
    assert store.get("key") == b"same" * 6


def test_item059_appends_of_many_clients_are_neither_lost_nor_torn(client, other):
    clients, times = 6, 50

    def append(store, name):
        for number in range(times):
            store.append("key", f"<{name}:{number}>")
        store.num_keys()  # an answer: everything before it has been executed

    calls = [Background(append, client(), name) for name in range(clients)]
    for call in calls:
        call.result()
    records = other.get("key").decode().removeprefix("<").removesuffix(">").split("><")
    assert sorted(records) == sorted(f"{name}:{n}" for name in range(clients) for n in range(times))


def test_item060_multi_get_reads_what_multi_set_wrote(store, other):
    store.multi_set(["foo", "bar"], ["po", "tato"])
    assert store.multi_get(["foo", "bar"]) == [b"po", b"tato"]
    assert other.get("bar") == b"tato"
    assert store.num_keys() == 2


def test_item060_multi_set_takes_any_bytes_and_the_last_of_equal_keys_wins(store):
    store.multi_set(["a", "b", "a"], [b"\0\xff", b"", b"last"])
    assert store.multi_get(["a", "b"]) == [b"last", b""]


def test_item060_thousands_of_keys_in_one_request(store, other):
    keys = [f"key/{number}" for number in range(5000)]
    values = [os.urandom(number % 40) for number in range(5000)]
    store.multi_set(keys, values)
    assert store.multi_get(keys) == values
    assert other.multi_get(keys[::-1]) == values[::-1]
    assert other.check(keys)
    assert other.num_keys() == 5000


def test_item061_multi_get_keeps_the_order_of_the_request(store):
    store.multi_set(["a", "b", "c"], ["1", "2", "3"])
    assert store.multi_get(["c", "a", "c", "b", "a"]) == [b"3", b"1", b"3", b"2", b"1"]


def test_item062_multi_get_waits_for_the_missing_key(server, store, other):
    other.set("a", "1")
    reader = Background(store.multi_get, ["b", "a"]).parked(store, server)
    other.set("b", "2")
    assert reader.result() == [b"2", b"1"]


def test_item062_multi_get_ends_at_the_timeout_of_the_store(client):
    store = client(timeout_s=0.1)
    store.set("a", "1")
    with pytest.raises(
        dist.DistStoreError, match=r"^wait timeout after 100ms, keys: /a, /missing$"
    ):
        store.multi_get(["a", "missing"])
    assert store.multi_get(["a"]) == [b"1"]


def test_item063_multi_set_with_unequal_lists_raises_and_sends_nothing(store, other):
    text = r"^multiSet keys and values vectors must be of same size$"
    with pytest.raises(dist.DistStoreError, match=text):
        store.multi_set(["a", "b"], ["1"])
    with pytest.raises(dist.DistStoreError, match=text):
        store.multi_set(["a"], ["1", "2"])
    assert store.num_keys() == 0
    assert other.num_keys() == 0


def send_multi_set_by_halves(raw, between):
    pairs = [blob(b"/a"), blob(b"1"), blob(b"/b"), blob(b"2" * 10_000)]
    message = b"\x0b" + (2).to_bytes(8, "little") + b"".join(pairs)
    raw.send(message[:-100])
    between()
    raw.send(message[-100:])
    raw.ping()


@pytest.mark.muster_differs(
    "PyTorch's server applies a MULTI_SET entry by entry as it arrives",
    torch_answers="DID NOT RAISE",
)
def test_item064_a_multi_set_of_which_half_has_arrived_cannot_be_seen(server, store):
    seen = []

    def look():
        with RawClient(server) as raw:  # the server has the half when it answers this
            raw.ping()
        with pytest.raises(dist.DistStoreError):
            store.wait(["a"], ms(100))
        seen.append((store.check(["a"]), store.check(["b"]), store.num_keys()))

    with RawClient(server) as raw:
        send_multi_set_by_halves(raw, look)
    assert seen == [(False, False, 0)]
    assert store.multi_get(["a", "b"]) == [b"1", b"2" * 10_000]


def test_item066_no_keys_in_a_request_are_no_trouble(store):
    store.multi_set([], [])
    assert store.multi_get([]) == []
    assert store.num_keys() == 0
    assert store.add("n", 1) == 1


def test_item080_list_keys_lists_the_keys_of_users_only(client):
    store = client(world_size=1, wait_for_workers=True)
    store.set("foo", "")
    store.add("a/b", 1)
    store.multi_set(["ключ", ""], ["", ""])
    store.queue_push("queue", "element")
    assert sorted(store.list_keys()) == ["", "a/b", "foo", "ключ"]
    assert store.num_keys() == 5  # init/ is counted, but not listed


def test_item080_list_keys_shows_neither_deleted_nor_waited_for_keys(store):
    store.set("gone", "")
    store.delete_key("gone")
    with pytest.raises(dist.DistStoreError):
        store.wait(["waited for"], ms(1))
    assert store.compare_set("compared", "x", "y") == b"x"
    assert store.list_keys() == []


def test_item080_list_keys_lists_thousands(store):
    keys = {f"some/rather/long/prefix/{number}" for number in range(20_000)}
    store.multi_set(list(keys), [""] * len(keys))
    assert set(store.list_keys()) == keys


def test_item081_an_empty_store_lists_no_keys(store):
    assert store.list_keys() == []
