"""One file under torch's FileStore and muster's at once. Items 22, 23, 27 and 93 to 97."""

import fcntl
import pathlib
import time

import pytest
import torch.distributed as dist

from peers import Background, FilePeer, ms

AWKWARD_VALUES = [
    *(b"", b"\0", b"\xff\xfe", bytes(range(256)), b"-", b"/", b"refcount/", b"%41 b"),
    b"x" * 70_000,
]
# Keys that a careless reader would read as a deletion or as one of the file's own records.
AWKWARD_KEYS = ["-key3", "", "/", "-/key", "refcount/", "cleanup/", "ключ", "with space"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def start_muster(tmp_path, path):
    """Starts muster's stores on the file, and ends those that are still there."""
    started = []

    def start(*world_size: int, file: pathlib.Path = path) -> FilePeer:
        started.append(FilePeer(tmp_path, file, *world_size))
        return started[-1]

    yield start
    for peer in started:
        peer.child.end()


@pytest.fixture
def torch_store(path):
    store = dist.FileStore(str(path))
    store.set_timeout(ms(20_000))
    return store


@pytest.fixture
def muster(start_muster, torch_store):  # after torch's, which then has the first record in the file
    return start_muster()


@pytest.fixture(params=["torch_to_muster", "muster_to_torch"])
def writer_and_reader(request, torch_store, muster):
    return (torch_store, muster) if request.param == "torch_to_muster" else (muster, torch_store)


def test_item093_each_reads_the_values_that_the_other_wrote(writer_and_reader):
    writer, reader = writer_and_reader
    for value in AWKWARD_VALUES:
        writer.set("key", value)
        assert reader.get("key") == value
        writer.set("key", value + b"!")
        assert reader.get("key") == value + b"!"


def test_item027_item093_each_reads_the_keys_that_the_other_wrote(writer_and_reader):
    writer, reader = writer_and_reader
    for key in AWKWARD_KEYS:
        writer.set("untouched", "stays")
        writer.set(key, "value")
        assert reader.check([key, "untouched"]) is True
        assert reader.get(key) == b"value"
        assert writer.delete_key(key) is True
        assert reader.check([key]) is False
        writer.set(key, "again")
        assert reader.get(key) == b"again"
        assert reader.get("untouched") == b"stays"


def test_item023_delete_of_an_unknown_key_returns_true_on_both(writer_and_reader):
    for store in writer_and_reader:
        assert store.delete_key("never") is True
        assert store.check(["never"]) is False


def test_item093_each_continues_with_the_numbers_of_the_other(writer_and_reader):
    writer, reader = writer_and_reader
    assert writer.add("n", 5) == 5
    assert reader.add("n", -7) == -2
    assert writer.get("n") == b"-2"
    writer.set("n", " 12abc")
    assert reader.add("n", 1) == 13


def test_item022_an_empty_value_counts_as_zero_and_a_word_not_at_all(torch_store, muster):
    for store in (torch_store, muster):
        store.set("n", "")
        assert store.add("n", 1) == 1
        store.set("n", "abc")
        with pytest.raises((ValueError, FilePeer.Error)):
            store.add("n", 1)
        store.set("n", "9" * 40)
        with pytest.raises((IndexError, FilePeer.Error)):
            store.add("n", 1)
        assert store.get("n") == b"9" * 40


def test_item093_each_compares_with_what_the_other_wrote(writer_and_reader):
    writer, reader = writer_and_reader
    assert writer.compare_set("key", "wrong", "x") == b"wrong"
    assert reader.check(["key"]) is False
    assert writer.compare_set("key", "", "1") == b"1"
    assert reader.compare_set("key", "", "2") == b"1"
    assert reader.compare_set("key", "1", "2") == b"2"
    assert writer.compare_set("key", "1", "3") == b"2"
    assert writer.compare_set("key", "2", "") == b""
    assert reader.compare_set("key", "", "4") == b"4"
    assert writer.get("key") == b"4"


def test_item059_muster_appends_what_torch_would_drop(torch_store, muster):
    """Torch's FileStore loses a suffix that equals the value; muster's must not."""
    torch_store.set("key", "same")
    muster.append("key", "same")
    assert torch_store.get("key") == b"samesame"
    torch_store.append("key", "!")
    assert muster.get("key") == b"samesame!"


def test_item093_each_is_woken_by_what_the_other_writes(torch_store, muster):
    waiter = Background(torch_store.get, "from muster")
    muster.set("from muster", "1")
    assert waiter.result() == b"1"
    waiter = Background(muster.get, "from torch")
    torch_store.set("from torch", "2")
    assert waiter.result() == b"2"


def play_the_example(store) -> None:
    """The example of the specification: every kind of record once."""
    store.set("k", "v")
    store.add("c", 5)
    store.add("c", -2)
    store.delete_key("k")


EXAMPLE = bytes.fromhex(
    """
    09 00 00 00 72 65 66 63 6f 75 6e 74 2f 01 00 00 00 31 02 00 00 00 2f 6b 01 00 00 00 76 02 00 00
    00 2f 63 01 00 00 00 35 02 00 00 00 2f 63 01 00 00 00 33 03 00 00 00 2d 2f 6b 00 00 00 00
    """
)
FAREWELL = bytes.fromhex(
    """
    08 00 00 00 63 6c 65 61 6e 75 70 2f 01 00 00 00 31 09 00 00 00 72 65 66 63 6f 75 6e 74 2f 01 00
    00 00 30
    """
)


def test_item093_torch_writes_the_bytes_of_the_specification(path):
    store = dist.FileStore(str(path))
    play_the_example(store)
    assert path.read_bytes() == EXAMPLE
    del store
    assert path.read_bytes() == EXAMPLE + FAREWELL


def test_item093_muster_writes_the_bytes_of_the_specification(path, start_muster):
    store = start_muster()
    play_the_example(store)
    assert path.read_bytes() == EXAMPLE
    store.quit()
    assert path.read_bytes() == EXAMPLE + FAREWELL


def test_item093_both_write_the_same_bytes_for_the_same_calls(tmp_path, start_muster):
    def play(store):
        play_the_example(store)
        store.delete_key("unknown")
        store.compare_set("cas", "wrong", "x")
        store.compare_set("cas", "", "y")
        store.compare_set("cas", "z", "x")
        store.compare_set("cas", "y", bytes(range(256)))
        store.set("-minus", "")
        store.delete_key("-minus")
        store.set("", "empty key")

    play(start_muster(file=tmp_path / "muster"))
    ours = dist.FileStore(str(tmp_path / "torch"))
    play(ours)
    assert (tmp_path / "muster").read_bytes() == (tmp_path / "torch").read_bytes()


@pytest.mark.parametrize("first", ["torch", "muster"])
def test_item094_the_file_goes_with_the_last_of_a_world(path, start_muster, first):
    peer = start_muster(1)
    store = dist.FileStore(str(path), 1)
    store.set("key", "value")
    if first == "torch":
        del store
        assert path.exists()
        assert peer.get("key") == b"value"
        peer.quit()
    else:
        peer.quit()
        assert path.exists()
        assert store.get("key") == b"value"
        del store
    assert not path.exists()


def test_item094_the_file_waits_for_as_many_as_the_world_has(path, start_muster):
    for _ in range(2):
        store = dist.FileStore(str(path), 3)
        del store
        assert path.exists()
    start_muster(3).quit()
    assert not path.exists()
    for _ in range(2):
        start_muster(3).quit()
        assert path.exists()
    store = dist.FileStore(str(path), 3)
    del store
    assert not path.exists()


def test_item094_a_new_file_under_the_old_name_starts_from_nothing(path, start_muster):
    store = dist.FileStore(str(path), 1)
    store.set("old", "value")
    del store
    assert not path.exists()
    peer = start_muster(1)
    assert (peer.num_keys(), peer.list_keys()) == (1, [])
    peer.quit()
    assert not path.exists()


def test_item095_without_a_world_size_the_file_stays(path, start_muster):
    store = dist.FileStore(str(path))
    store.set("key", "value")
    del store
    peer = start_muster()
    assert peer.get("key") == b"value"
    peer.quit()
    assert path.exists()
    assert dist.FileStore(str(path)).get("key") == b"value"


def test_item096_additions_of_both_at_once_are_all_counted(path, start_muster, workers):
    each = 150
    peers = [start_muster() for _ in range(2)]
    workers.start("add_to_file", 2, path=str(path), key="n", times=each, world_size=-1)
    calls = [
        Background(lambda peer=peer: [peer.add("n", 1) for _ in range(each)]) for peer in peers
    ]
    sums = [total for call in calls for total in call.result()]
    outcomes = workers.outcomes()
    assert all("returned" in outcome for outcome in outcomes), outcomes
    assert len(set(sums)) == 2 * each
    assert peers[0].get("n") == str(4 * each).encode()
    assert max([*sums, *(outcome["returned"] for outcome in outcomes)]) == 4 * each


def test_item096_appends_of_both_at_once_are_neither_lost_nor_torn(path, start_muster, workers):
    each = 60
    peers = {name: start_muster() for name in ("a", "b")}

    def append(name):
        for number in range(each):
            peers[name].append("log", f"<{name}:{number}>")

    workers.start("append_to_file", 2, path=str(path), key="log", times=each, world_size=-1)
    calls = [Background(append, name) for name in peers]
    for call in calls:
        call.result()
    outcomes = workers.outcomes()
    assert all("returned" in outcome for outcome in outcomes), outcomes
    records = peers["a"].get("log").decode().removeprefix("<").removesuffix(">").split("><")
    assert sorted(records) == sorted(
        f"{name}:{n}" for name in (0, 1, "a", "b") for n in range(each)
    )


def test_item097_five_keys_are_six_with_the_count_of_users(path, start_muster):
    store = dist.FileStore(str(path))
    for key in ("key", "key0", "key1", "key2", "key3"):
        store.set(key, "value")
    assert store.num_keys() == 6
    del store
    peer = start_muster()
    assert peer.num_keys() == 7  # one store has been closed, so cleanup/ is there, too
    assert peer.list_keys() == [b"key", b"key0", b"key1", b"key2", b"key3"]


def test_muster_takes_the_lock_that_torch_takes(path, torch_store, muster):
    size = path.stat().st_size
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = Background(muster.set, "key", "value")
        time.sleep(
            0.3
        )  # the claim is about time: nothing is written while another process has the lock
        assert writer.running
        assert path.stat().st_size == size
        fcntl.flock(file, fcntl.LOCK_UN)
        writer.result()
    assert torch_store.get("key") == b"value"


def test_torch_can_read_on_after_muster_met_a_record_that_was_cut_off(path, start_muster):
    """A writer died in the middle of a record. Torch's own reader would spin on it without end."""
    store = dist.FileStore(str(path))
    store.set("before", "1")
    with open(path, "ab") as file:
        file.write(bytes.fromhex("05 00 00 00 2f 63 75 74 21 ff ff"))
    peer = start_muster()
    assert peer.get("before") == b"1"
    peer.set("after", "2")
    assert Background(store.get, "after").result() == b"2"
    assert store.check(["cut!"]) is False
    assert store.num_keys() == peer.num_keys() == 3
