"""Stores made from a store: prefixes and clones. Items 88 to 92."""

import pytest
import torch.distributed as dist

from peers import Background, local_port, ms


def test_item088_a_clone_shares_the_data_over_a_connection_of_its_own(store):
    store.set("key", "value")
    clone = store.clone()
    assert clone.get("key") == b"value"
    clone.set("back", "again")
    assert store.get("back") == b"again"
    assert local_port(clone) != local_port(store)
    assert clone.port == store.port


def test_item088_a_clone_works_while_the_original_is_blocked(server, store):
    clone = store.clone()
    blocked = Background(store.get, "key").parked(store, server)
    assert clone.add("n", 1) == 1
    assert blocked.running
    clone.set("key", "value")
    assert blocked.result() == b"value"


def test_item088_a_clone_takes_the_timeout_that_holds_now(store):
    store.set_timeout(ms(1500))  # also the time that the clone has to connect
    clone = store.clone()
    store.set_timeout(ms(60_000))
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 1500ms, keys: /key$"):
        clone.get("key")


def test_item088_a_clone_is_not_counted_as_a_worker(client):
    store = client(world_size=1, wait_for_workers=True)
    clones = [store.clone() for _ in range(3)]
    assert [clone.num_keys() for clone in clones] == [1, 1, 1]
    assert store.add("n", 0) == 0


def test_item088_a_clone_outlives_the_original(store, client):
    original = client()
    clone = original.clone()
    del original
    clone.set("key", "value")
    assert store.get("key") == b"value"


def test_item089_clones_end_with_the_server(server, store):
    clones = [store.clone(), store.clone().clone(), dist.PrefixStore("p", store).clone()]
    server.stop()
    for clone in clones:
        with pytest.raises(dist.DistNetworkError):
            clone.num_keys()


def test_item090_a_prefix_and_a_slash_come_before_the_key(store):
    dist.PrefixStore("p", store).set("foo", "value")
    dist.PrefixStore("b", dist.PrefixStore("a", store)).set("k", "nested")
    dist.PrefixStore("", store).set("key", "empty prefix")
    assert sorted(store.list_keys()) == ["/key", "a/b/k", "p/foo"]
    assert store.get("p/foo") == b"value"
    assert store.get("a/b/k") == b"nested"
    assert store.get("/key") == b"empty prefix"


@pytest.mark.parametrize("depth", [1, 3])
def test_item090_every_operation_works_under_a_prefix(server, store, other, depth):
    prefixed, prefix = other, ""
    for level in range(depth):
        prefixed = dist.PrefixStore(f"level{level}", prefixed)
        prefix += f"level{level}/"
    store.set("key", "outside")
    prefixed.set("key", "inside")
    assert (prefixed.get("key"), store.get("key")) == (b"inside", b"outside")
    assert (prefixed.add("n", 2), store.get(f"{prefix}n")) == (2, b"2")
    assert prefixed.compare_set("key", "inside", "new") == b"new"
    prefixed.append("key", "er")
    prefixed.num_keys()  # an answer: the append before it has been executed
    assert store.get(f"{prefix}key") == b"newer"
    prefixed.multi_set(["a", "b"], ["1", "2"])
    assert prefixed.multi_get(["b", "a"]) == [b"2", b"1"]
    assert (prefixed.check(["a", "b"]), prefixed.check(["a", "c"])) == (True, False)
    assert prefixed.delete_key("a") is True
    assert sorted(prefixed.list_keys()) == ["b", "key", "n"]
    waiter = Background(prefixed.wait, ["late"]).parked(other, server)
    store.set("late", "outside")
    assert waiter.running
    store.set(f"{prefix}late", "inside")
    waiter.result()


def test_item091_the_number_of_keys_and_the_timeout_are_those_of_the_inner_store(store):
    prefixed = dist.PrefixStore("p", dist.PrefixStore("q", store))
    store.set("outside", "")
    prefixed.set("inside", "")
    assert prefixed.num_keys() == store.num_keys() == 2
    prefixed.set_timeout(ms(120))
    assert store.timeout == prefixed.timeout == ms(120)
    with pytest.raises(
        dist.DistStoreError, match=r"^wait timeout after 120ms, keys: /q/p/missing$"
    ):
        prefixed.get("missing")


def test_item092_a_prefix_has_the_extended_operations_of_the_inner_store(store, tmp_path):
    assert store.has_extended_api() is True
    assert dist.PrefixStore("p", store).has_extended_api() is True
    assert dist.PrefixStore("p", dist.FileStore(str(tmp_path / "file"))).has_extended_api() is False


def test_item092_the_clone_of_a_prefix_has_the_prefix_and_a_connection_of_its_own(server, store):
    prefixed = dist.PrefixStore("p", store)
    clone = prefixed.clone()
    blocked = Background(prefixed.get, "key").parked(store, server)
    clone.set("key", "value")
    assert blocked.result() == b"value"
    assert store.get("p/key") == b"value"
    assert local_port(clone.underlying_store) != local_port(store)


def test_keys_under_prefixes_count_towards_the_limit_as_they_are_on_the_wire(client):
    store = client()
    prefixed = dist.PrefixStore("p" * 4000, store)
    key = "k" * (8192 - len("/") - 4000 - len("/"))
    prefixed.set(key, "longest")
    assert prefixed.get(key) == b"longest"
    with pytest.raises(dist.DistNetworkError):
        prefixed.set(key + "k", "too long")  # may already meet the closed connection
        store.num_keys()
    assert client().num_keys() == 1
