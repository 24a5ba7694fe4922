"""The behaviour of PyTorch 2.13 and 2.15 itself where muster depends on it, or differs from it on purpose.

muster is not involved, so no test here is named after an item of the checklist. A failure means that PyTorch has
changed, and that docs/reference/protocol.md must be checked.
"""

import inspect
import time

import pytest
import torch
import torch.distributed as dist

from peers import Background, RawClient, TorchServer, blob, connect, ms


@pytest.fixture
def server():
    server = TorchServer()
    yield server
    server.stop()


@pytest.fixture
def store(server):
    return connect(server)


def test_the_reference_is_2_13_or_2_15():
    assert torch.__version__.startswith(("2.13.", "2.15."))


def test_every_operation_of_torchs_client_is_known_here():
    """A new public method would be a new operation, perhaps with its own opcode."""
    operations = """
        add append barrier check clone compare_set delete_key get has_extended_api list_keys
        multi_get multi_set num_keys queue_len queue_pop queue_push set set_timeout timeout wait
        host port libuvBackend
    """
    members = inspect.getmembers(dist.TCPStore, lambda member: not inspect.isclass(member))
    assert {name for name, _ in members if name[0] != "_"} == {*operations.split()}


def test_torchs_prefix_does_not_look_at_the_separator(store):
    store.set("foobar/x", "")
    store.set("foo/y", "")
    assert sorted(dist.PrefixStore("foo", store).list_keys()) == ["ar/x", "y"]
    store.set("foo", "")
    with pytest.raises(IndexError):
        dist.PrefixStore("foo", store).list_keys()


def test_torchs_list_keys_cannot_show_keys_that_are_no_text(store):
    store.set(b"\xff", "")
    with pytest.raises(UnicodeDecodeError):
        store.list_keys()
    assert store.num_keys() == 1  # the answer was read completely


def test_a_prefix_does_not_pass_its_timeout_on_to_its_barrier(server, store):
    store.set_timeout(ms(100))
    prefixed = dist.PrefixStore("p", store)
    assert prefixed.timeout == ms(100)
    call = Background(prefixed.barrier, "gate", 2).parked(store, server)
    time.sleep(0.5)  # the claim is about time: 100 ms would be over by now
    assert call.running
    dist.PrefixStore("p", connect(server)).barrier("gate", 2)
    call.result()


def test_a_prefix_needs_a_store():
    with pytest.raises(ValueError, match="store argument cannot be None"):
        dist.PrefixStore("p", None)


def test_torch_times_out_at_once_if_the_timeout_is_0(store):
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 0ms, keys: /key$"):
        store.wait(["key"], ms(0))
    assert store.num_keys() == 0


def test_the_owner_of_a_server_waits_for_its_world_in_whole_seconds():
    started = time.monotonic()
    text = r"^Timed out after 3 seconds waiting for clients\. 1/2 clients joined\.$"
    with pytest.raises(dist.DistStoreError, match=text):
        dist.TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=ms(2000))
    assert 3 <= time.monotonic() - started < 6


def test_what_torch_does_not_take_for_arguments():
    with pytest.raises(ValueError, match=r"^TCPStore world size cannot be 0$"):
        dist.TCPStore("127.0.0.1", 0, 0, is_master=True)
    with pytest.raises(TypeError):
        dist.TCPStore("127.0.0.1", 65536, 1, is_master=True)
    with pytest.raises(TypeError):
        dist.TCPStore("127.0.0.1", 0, 1, 1)


@pytest.mark.parametrize(
    "request_bytes",
    [b"\x03" + blob(b"/absent"), b"\x10" + blob(b"/queue")],
    ids=["get_of_an_absent_key", "queue_len"],
)
def test_the_older_server_hangs_up_where_the_newer_one_answers(server, request_bytes):
    with RawClient(server) as raw:
        raw.send(request_bytes)
        assert raw.receive(8) == bytes(8)
    older = TorchServer(use_libuv=False)
    with RawClient(older) as raw:
        raw.send(request_bytes)
        assert raw.hung_up()
    older.stop()


@pytest.fixture
def file_store(tmp_path):
    store = dist.FileStore(str(tmp_path / "file"))
    store.set_timeout(ms(250))
    return store


def test_torchs_file_store_drops_a_suffix_that_equals_the_value(file_store):
    file_store.append("key", "same")
    file_store.append("key", "same")
    assert file_store.get("key") == b"same"


def test_torchs_file_store_lists_its_own_keys_cut_short(file_store):
    file_store.set("key", "")
    assert sorted(file_store.list_keys()) == ["efcount/", "key"]


def test_torchs_file_store_measures_its_timeout_in_whole_seconds(file_store):
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"^Timeout waiting for key: key after 250 ms$"):
        file_store.get("key")
    assert 1 <= time.monotonic() - started < 6
    with pytest.raises(RuntimeError, match=r"^Wait timeout$"):
        file_store.wait(["key"], ms(250))


def test_torchs_file_store_has_no_queues(file_store):
    with pytest.raises(NotImplementedError):
        file_store.queue_push("queue", "")
    assert file_store.has_extended_api() is False


def test_torchs_hash_store_does_not_wake_on_add():
    store = dist.HashStore()
    waiter = Background(store.wait, ["n"], ms(1000))
    time.sleep(0.1)  # the claim is about time
    store.add("n", 1)
    started = time.monotonic()
    waiter.result()
    assert time.monotonic() - started > 0.5


def test_torchs_hash_store_reports_wait_timeout():
    store = dist.HashStore()
    store.set_timeout(ms(100))
    with pytest.raises(dist.DistStoreError, match=r"^Wait timeout$"):
        store.get("key")
