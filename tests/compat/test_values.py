"""Single values: torch's client sets, gets, adds, compares and deletes. Items 13 to 38."""

import pytest
import torch.distributed as dist

from peers import Background, connect

# Bytes that a careless server would read as an end, a length or an encoding error.
AWKWARD_VALUES = [
    b"",
    b"\0",
    b"a\0b",
    b"\xff",
    bytes(range(256)),
    b"plain",
    b"\n",
    "знач".encode(),
    b"x" * 70_000,
]


@pytest.mark.parametrize(
    "value", AWKWARD_VALUES, ids=lambda value: f"{len(value)}_{value[:4].hex()}"
)
def test_item013_get_returns_the_bytes_that_were_set(store, other, value):
    store.set("key", value)
    assert store.get("key") == value
    assert other.get("key") == value


def test_item013_text_travels_as_utf8(store):
    store.set("key", "grüße")
    assert store.get("key") == "grüße".encode()


def test_item014_the_second_set_wins(store):
    store.set("key", "first")
    store.set("key", "second, and longer")
    store.set("key", "3rd")
    assert store.get("key") == b"3rd"


def test_item015_an_empty_value_is_there_and_is_not_waited_for(client):
    store = client(timeout_s=1)
    store.set("key", "")
    assert store.check(["key"])
    assert store.get("key") == b""  # or it raises after a second


def test_item016_add_starts_at_zero_and_returns_the_sum(store):
    assert [store.add("n", delta) for delta in (1, 2, 3)] == [1, 3, 6]
    assert store.get("n") == b"6"


def test_item017_add_of_one_to_six_leaves_21(store):
    for delta in range(1, 7):
        store.add("n", delta)
    assert store.get("n") == b"21"


def test_item018_a_sum_below_zero_has_a_minus_sign(store):
    assert store.add("n", 3) == 3
    assert store.add("n", -5) == -2
    assert store.get("n") == b"-2"
    assert store.add("n", 2) == 0
    assert store.get("n") == b"0"


def test_item018_add_reaches_the_ends_of_the_number_range(store):
    assert store.add("low", -(2**63)) == -(2**63)
    assert store.add("high", 2**63 - 1) == 2**63 - 1
    assert store.get("low") == b"-9223372036854775808"
    assert store.get("high") == b"9223372036854775807"


def test_add_beyond_the_number_range_wraps_around(store):
    store.add("n", 2**63 - 1)
    assert store.add("n", 1) == -(2**63)


def test_item019_add_of_zero_creates_the_key(store):
    assert not store.check(["n"])
    assert store.add("n", 0) == 0
    assert store.check(["n"])
    assert store.get("n") == b"0"


@pytest.mark.parametrize(
    "text, total",
    [
        ("12abc", 13),
        ("  7", 8),
        ("+7", 8),
        ("-7", -6),
        ("\t\n 41 ", 42),
        ("007", 8),
        ("1.9", 2),
        ("9223372036854775806", 2**63 - 1),
    ],
)
def test_item020_add_reads_numbers_as_strtoll_does(store, text, total):
    store.set("n", text)
    assert store.add("n", 1) == total
    assert store.get("n") == str(total).encode()


@pytest.mark.parametrize(
    "text", ["abc", "", " ", "-", "- 1", "\0" + "1", "9223372036854775808", "9" * 40], ids=repr
)
def test_item021_item022_add_to_what_is_no_number_ends_the_connection_and_changes_nothing(
    store, other, text
):
    store.set("n", text)
    with pytest.raises(dist.DistNetworkError, match=r"^Failed to recv, got 0 bytes\."):
        store.add("n", 1)
    with pytest.raises(dist.DistNetworkError):  # torch never reconnects
        for _ in range(3):
            store.num_keys()
    assert other.get("n") == text.encode()
    assert other.add("m", 1) == 1


def test_item023_delete_returns_whether_there_was_a_value(store, other):
    store.set("key", "value")
    assert store.delete_key("key") is True
    assert not store.check(["key"])
    assert not other.check(["key"])
    assert store.delete_key("key") is False
    assert store.delete_key("never") is False


def test_item024_a_world_of_one_counts_init_among_the_keys(client):
    store = client(world_size=1, wait_for_workers=True)
    assert store.num_keys() == 1
    for key in ("key", "key0", "key1", "key2", "key3"):
        store.set(key, "value")
    assert store.num_keys() == 6


def test_item025_without_waiting_for_workers_there_are_no_keys(store):
    assert store.num_keys() == 0


@pytest.mark.parametrize("world_size", [None, -1, 5])
def test_item025_a_world_size_without_waiting_is_not_counted(client, world_size):
    assert client(world_size=world_size).num_keys() == 0


def test_item026_only_a_delete_of_something_reduces_the_number_of_keys(store):
    store.set("a", "1")
    store.set("b", "2")
    assert store.delete_key("absent") is False
    assert store.num_keys() == 2
    assert store.delete_key("a") is True
    assert store.num_keys() == 1


def test_item027_a_key_may_start_with_a_minus(store):
    store.set("-key3", "minus")
    store.set("key3", "plain")
    assert store.get("-key3") == b"minus"
    assert store.delete_key("-key3") is True
    assert store.get("key3") == b"plain"
    assert store.num_keys() == 1


@pytest.mark.parametrize(
    "key", ["a/b", "/", "//", "with space", "ключ", "init/", "tab\tnew\nline", "nul\0nul"]
)
def test_item028_any_text_can_be_a_key(store, other, key):
    store.set(key, "value")
    assert other.get(key) == b"value"
    assert other.list_keys() == [key]
    assert store.delete_key(key) is True


def test_item028_any_bytes_can_be_a_key(store, other):
    key = bytes(range(256))
    store.set(key, "value")
    assert other.get(key) == b"value"
    assert other.check([key])
    assert other.add(b"\xff\xfe", 5) == 5
    assert store.get(b"\xff\xfe") == b"5"


def test_item028_bytes_and_text_spell_the_same_key(store):
    store.set(b"key", "value")
    assert store.get("key") == b"value"


def test_item029_the_empty_key_is_a_key(store, other):
    store.set("", "value of nothing")
    assert other.get("") == b"value of nothing"
    assert other.list_keys() == [""]
    assert store.num_keys() == 1
    assert store.delete_key("") is True


def test_item030_compare_set_of_an_absent_key_gives_back_the_expectation(store):
    assert store.compare_set("key", "wrong_old_value", "new") == b"wrong_old_value"
    assert not store.check(["key"])
    assert store.num_keys() == 0


def test_item031_compare_set_with_an_empty_expectation_creates(store, other):
    assert store.compare_set("key", "", "new") == b"new"
    assert other.get("key") == b"new"


def test_item032_compare_set_with_a_wrong_expectation_returns_the_value(store):
    store.set("key", "current")
    assert store.compare_set("key", "wrong", "new") == b"current"
    assert store.get("key") == b"current"


def test_item033_compare_set_with_the_right_expectation_replaces(store):
    store.set("key", "current")
    assert store.compare_set("key", "current", "new") == b"new"
    assert store.get("key") == b"new"


def test_item034_compare_set_with_an_empty_expectation_does_not_overwrite(store):
    store.set("key", "current")
    assert store.compare_set("key", "", "new") == b"current"
    assert store.get("key") == b"current"


def test_item035_an_empty_value_equals_an_empty_expectation(store):
    store.set("key", "")
    assert store.compare_set("key", "", "new") == b"new"
    assert store.get("key") == b"new"


def test_item035_compare_set_compares_and_stores_any_bytes(store):
    everything = bytes(range(256))
    assert store.compare_set("key", b"", everything) == everything
    assert store.compare_set("key", everything[:-1], b"no") == everything
    assert store.compare_set("key", everything, b"\0") == b"\0"
    assert store.compare_set("key", b"\0", b"") == b""
    assert store.get("key") == b""


def test_item036_creating_with_compare_set_releases_a_waiter(server, store, other):
    waiter = Background(store.get, "key").parked(store, server)
    assert other.compare_set("key", "", "made") == b"made"
    assert waiter.result() == b"made"


@pytest.mark.muster_differs(
    "PyTorch's server wakes waiters of a key even if the compare_set stored nothing",
    torch_answers="DID NOT RAISE",
)
def test_item037_a_compare_set_that_stores_nothing_releases_no_waiter(server, client, other):
    store = client(timeout_s=3)
    waiter = Background(store.get, "key").parked(store, server)
    assert other.compare_set("key", "something else", "made") == b"something else"
    assert other.num_keys() == 0
    with pytest.raises(dist.DistStoreError, match="^wait timeout after 3000ms, keys: /key$"):
        waiter.result()  # after a wrong release: an empty value


def test_item038_no_update_is_lost_between_clients_that_compare_and_set(server, client):
    clients, increments = 6, 30

    def count_up(store):
        done, current = 0, store.compare_set("n", "", "0")
        while done < increments:
            # The value names its writer, so a success differs from another client's equal number.
            mine = f"{int(current.split(b' ')[0]) + 1} by {id(store)}".encode()
            after = store.compare_set("n", current, mine)
            done += after == mine
            current = after

    calls = [Background(count_up, client()) for _ in range(clients)]
    for call in calls:
        call.result()
    assert connect(server).get("n").split(b" ")[0] == str(clients * increments).encode()
