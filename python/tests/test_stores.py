"""One contract for every kind of store; threads; classes of stores written in Python."""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import pathlib
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Callable, Union

import pytest
from python_store import PythonStore
from servers import etcd_server, free_port, until

import muster
from muster import utils

KINDS = ("tcp", "file", "hash", "prefix", "etcd", "python")
WITH_QUEUES = ("tcp", "hash", "prefix", "etcd")
PATIENCE_S = 60
Value = Union[str, bytes]


@pytest.fixture(scope="module")
def server() -> Iterator[muster.StoreServer]:
    with muster.StoreServer("127.0.0.1") as running:
        yield running


@pytest.fixture(scope="module")
def etcd() -> Iterator[str]:
    with etcd_server() as endpoint:
        yield endpoint


def tcp(server: muster.StoreServer) -> muster.TCPStore:
    return muster.TCPStore("127.0.0.1", server.port, timeout=PATIENCE_S)


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Callable[[str], muster.Store]:
    """An empty store of this kind."""

    def made(kind: str) -> muster.Store:
        if kind == "etcd":
            endpoint = request.getfixturevalue("etcd")
            return muster.EtcdStore(endpoint, prefix=f"/test/{uuid.uuid4()}", timeout=PATIENCE_S)
        if kind == "file":
            return muster.FileStore(tmp_path / "store")
        if kind in ("hash", "python"):
            return muster.HashStore() if kind == "hash" else PythonStore()
        own = muster.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE_S)
        return own if kind == "tcp" else muster.PrefixStore("part", own)

    return made


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, make: Callable[[str], muster.Store]) -> muster.Store:
    return make(request.param)


@pytest.fixture(params=WITH_QUEUES)
def with_queues(
    request: pytest.FixtureRequest, make: Callable[[str], muster.Store]
) -> muster.Store:
    return make(request.param)


# --- The contract ---------------------------------------------------------------------------------


def test_values_are_bytes_however_they_were_given(store: muster.Store) -> None:
    for key, value in (("text", "grün"), (b"bytes", b"\x00\xff"), ("empty", ""), ("", "no key")):
        store.set(key, value)
        assert store.get(key) == (value.encode() if isinstance(value, str) else value)
    store.set(b"text", bytearray(b"over"))
    assert store.get("text") == b"over"


def test_counters_compare_and_append(store: muster.Store) -> None:
    assert [store.add("n", 5), store.add("n", -7), store.add("n", 0)] == [5, -2, -2]
    assert store.get("n") == b"-2"
    assert store.compare_set("c", "", "first") == b"first"
    assert store.compare_set("c", "wrong", "second") == b"first"
    assert store.compare_set("c", b"first", b"second") == b"second"
    assert store.compare_set("absent", "expected", "x") == b"expected"
    store.append("log", "a")
    store.append("log", b"b")
    assert store.get("log") == b"ab"


def test_keys_can_be_looked_for_and_removed(store: muster.Store) -> None:
    store.set("a", "1")
    assert store.check(["a"]) and not store.check(["a", "b"])
    assert "a" in store.list_keys()
    assert store.num_keys() >= 1
    assert store.delete_key("a")
    assert not store.check(["a"]) and "a" not in store.list_keys()


def test_keys_that_are_not_text_come_back_as_they_were(store: muster.Store) -> None:
    store.set(b"\xff\x00k", "v")
    (key,) = [key for key in store.list_keys() if key.endswith("k")]
    assert store.get(key) == b"v"


def test_several_at_once(store: muster.Store) -> None:
    store.multi_set(["a", "b"], ["1", b"2"])
    assert store.multi_get(("b", "a")) == [b"2", b"1"]
    assert isinstance(store.has_extended_api(), bool)


def test_waits_end_with_their_timeout(store: muster.Store) -> None:
    store.set_timeout(timedelta(milliseconds=200))
    assert store.timeout == timedelta(milliseconds=200)
    for call in (
        lambda: store.get("absent"),
        lambda: store.wait(["absent"]),
        lambda: store.wait(["absent"], timedelta(milliseconds=50)),
        lambda: store.wait(["absent"], 0.05),
        lambda: store.multi_get(["absent"]),
        lambda: store.barrier("absent", 2, 0.05),
    ):
        with pytest.raises(muster.StoreTimeoutError) as raised:
            call()
        assert isinstance(raised.value, muster.DistStoreError)
        assert isinstance(raised.value, muster.DistError)
        assert isinstance(raised.value, RuntimeError)
    store.set("still", "works")
    assert store.get("still") == b"works"


def test_queues(with_queues: muster.Store) -> None:
    store = with_queues
    assert store.queue_len("q") == 0
    store.queue_push("q", "1")
    store.queue_push("q", b"\x002")
    assert store.queue_len("q") == 2
    assert [store.queue_pop("q"), store.queue_pop("q", block=False)] == [b"1", b"\x002"]
    with pytest.raises(muster.QueueEmptyError):
        store.queue_pop("q", False)
    store.set_timeout(0.05)
    with pytest.raises(muster.StoreTimeoutError):
        store.queue_pop("q")


def test_a_store_without_queues_reports_it(tmp_path: pathlib.Path) -> None:
    for store in (muster.FileStore(str(tmp_path / "f")), PythonStore()):
        with pytest.raises(NotImplementedError):
            store.queue_push("q", "1")


# --- Threads --------------------------------------------------------------------------------------


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def test_others_run_while_one_waits(store: muster.Store) -> None:
    """The GIL is released: this thread, which sets the key, runs while the other waits."""
    waiting = store.clone()
    thread, results = in_thread(lambda: waiting.get("late"))
    until(lambda: time.sleep(0.05) or thread.is_alive(), "the thread waits")
    store.set("late", "here")
    thread.join(PATIENCE_S)
    assert results == [b"here"]


def test_all_meet_at_a_barrier(store: muster.Store) -> None:
    stores = [store, store.clone(), store.clone()]
    members = [in_thread(lambda own=own: own.barrier("meet", 3, PATIENCE_S)) for own in stores]
    for thread, results in members:
        thread.join(PATIENCE_S)
        assert results == [None]


def test_many_threads_on_one_object_and_on_clones(store: muster.Store) -> None:
    def count(own: muster.Store) -> None:
        for _ in range(20):
            own.add("sum", 1)

    members = [
        in_thread(lambda own=own: count(own))
        for own in [store] * 3 + [store.clone(), store.clone()]
    ]
    for thread, results in members:
        thread.join(PATIENCE_S)
        assert results == [None]
    assert store.add("sum", 0) == 100


# --- The kinds ------------------------------------------------------------------------------------


def test_tcp_store_with_its_own_server() -> None:
    host = muster.TCPStore(
        "localhost", 0, 2, True, timedelta(seconds=PATIENCE_S), wait_for_workers=False
    )
    assert host.port > 0 and host.host == "localhost" and host.libuvBackend and host.is_master
    client = muster.TCPStore("localhost", host.port, 2, False, use_libuv=False)
    client.set("k", "v")
    assert host.get("k") == b"v"
    assert not client.libuvBackend  # what was asked for
    client_form = f"client=TCPClient(localhost:{host.port})"
    assert repr(client) == f"TCPStore({client_form}, server=<nullptr>)"
    assert repr(host) == f"TCPStore({client_form}, server=TCPServer(port={host.port}))"


def test_tcp_store_waits_for_its_world() -> None:
    port = free_port()
    thread, results = in_thread(lambda: muster.TCPStore("127.0.0.1", port, 2, True, PATIENCE_S))
    client = muster.TCPStore("127.0.0.1", port, 2, timeout=PATIENCE_S)
    thread.join(PATIENCE_S)
    assert isinstance(results[0], muster.TCPStore), results
    client.set("k", "v")


def test_tcp_store_whose_world_does_not_come() -> None:
    with pytest.raises(muster.StoreTimeoutError):
        muster.TCPStore("127.0.0.1", 0, 2, True, 0.2)


def test_tcp_store_without_a_server_names_the_endpoint() -> None:
    port = utils.get_free_port()
    with pytest.raises(muster.DistNetworkError, match=str(port)):
        muster.TCPStore("127.0.0.1", port, timeout=0.3)


def test_tcp_store_takes_over_a_socket() -> None:
    listening = utils.get_socket_with_port()
    port = listening.getsockname()[1]
    store = muster.TCPStore(
        "localhost", port, 1, True, timeout=PATIENCE_S, master_listen_fd=listening.detach()
    )
    assert store.port == port
    store.set("k", "v")


def test_tcp_stores_share_a_server() -> None:
    port = free_port()
    one, two = (
        muster.TCPStore("127.0.0.1", port, is_master=True, multi_tenant=True, timeout=PATIENCE_S)
        for _ in range(2)
    )
    one.set("k", "v")
    assert two.get("k") == b"v"


def test_server_closes_once_and_forever() -> None:
    server = muster.StoreServer(
        "127.0.0.1", threads=1, value_bytes_max=100, stall_max=timedelta(seconds=9)
    )
    store = tcp(server)
    store.set("k", "v")
    assert server.address == f"127.0.0.1:{server.port}"
    assert repr(server) == f"<StoreServer at {server.address}>"
    server.close()
    server.close()
    assert "closed" in repr(server)
    with pytest.raises(muster.DistNetworkError):
        store.get("k")


def test_server_listens_on_a_socket() -> None:
    listening = utils.get_socket_with_port()
    port = listening.getsockname()[1]
    with muster.StoreServer(listen_fd=listening.detach()) as server:
        assert server.port == port
        tcp(server).set("k", "v")


def test_file_store_goes_with_its_last_user(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store"
    one, two = muster.FileStore(path, 2), muster.FileStore(str(path), world_size=2)
    one.set("k", "v")
    assert two.get("k") == b"v" and one.path == str(path) and repr(one) == f"FileStore('{path}')"
    del one
    assert path.exists()
    del two
    assert not path.exists()


def test_prefix_store_knows_what_it_is_part_of(make: Callable[[str], muster.Store]) -> None:
    for kind in ("hash", "python"):
        inner = make(kind)
        store = muster.PrefixStore("outer", muster.PrefixStore("inner", inner))
        store.set("k", "v")
        assert inner.get("inner/outer/k") == b"v"
        assert store.prefix == "outer" and store.underlying_non_prefix_store is inner
        assert store.underlying_store.underlying_store is inner  # type: ignore[attr-defined]
        assert store.clone().get("k") == b"v"
        assert store.list_keys() == ["k"]


def test_etcd_store_names_its_prefix_and_endpoints(etcd: str) -> None:
    host = etcd.removeprefix("etcd://")
    for endpoint in (etcd + "/mine", [host, host]):
        store = muster.EtcdStore(endpoint, timeout=timedelta(seconds=PATIENCE_S))
        assert store.prefix in ("/mine", "/muster/store")
        store.set("k", endpoint[0])
        assert store.get("k") == endpoint[0].encode()


def test_etcd_that_is_not_there() -> None:
    with pytest.raises(muster.DistNetworkError, match="127.0.0.1"):
        muster.EtcdStore(f"127.0.0.1:{utils.get_free_port()}", timeout=0.5)


# --- muster.utils ---------------------------------------------------------------------------------


def test_exchange_between_members(store: muster.Store) -> None:
    stores = [store, store.clone(), store.clone()]
    members = [
        in_thread(lambda r=r, own=own: utils.synchronize(own, f"of {r}", r, 3, "swap", PATIENCE_S))
        for r, own in enumerate(stores)
    ]
    for thread, results in members:
        thread.join(PATIENCE_S)
        assert results == [[b"of 0", b"of 1", b"of 2"]]


def test_get_all_alone() -> None:
    store = muster.HashStore()
    store.set("p/0", "a")
    assert utils.get_all(store, 0, "p/", 1) == [b"a"]


def test_barrier_names_missing_ranks() -> None:
    with pytest.raises(muster.DistStoreError, match="node of 1"):
        utils.barrier(
            muster.HashStore(),
            2,
            "b",
            barrier_timeout=0.1,
            rank=0,
            rank_tracing_decoder=lambda rank: f"node of {rank}",
            trace_timeout=timedelta(milliseconds=100),
        )


def test_barrier_of_one() -> None:
    utils.barrier(muster.HashStore(), 1, "b")


def test_a_timeout_for_a_while() -> None:
    store = muster.HashStore()
    before = store.timeout
    with contextlib.suppress(LookupError), utils.store_timeout(store, 7):
        assert store.timeout == timedelta(seconds=7)
        raise LookupError
    assert store.timeout == before


def test_created_store_finds_its_port() -> None:
    store = utils.create_c10d_store(True, "localhost")
    other = utils.create_c10d_store(
        False, "localhost", store.port, timeout=PATIENCE_S, wait_for_workers=False
    )
    other.set("k", "v")
    assert store.get("k") == b"v"


def test_creating_a_store_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "muster.utils")
    store = utils.create_c10d_store(True, "localhost", timeout=PATIENCE_S)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert "localhost:-1: world_size 1, is_server True" in caplog.messages[0]
    assert f"localhost:{store.port} is open" in caplog.messages[1]
    utils.create_c10d_store(True, "localhost", timeout=PATIENCE_S, use_libuv=True)
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 1 and "use_libuv" in warned[0]


def test_members_that_do_not_come_are_a_timeout_error() -> None:
    with pytest.raises(TimeoutError, match="1/2") as raised:
        utils.create_c10d_store(True, "localhost", 0, world_size=2, timeout=1)
    assert isinstance(raised.value, muster.StoreTimeoutError)


def test_free_port_is_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", utils.get_free_port()))


def test_a_port_that_cannot_be_had_is_a_runtime_error() -> None:
    program = """
import resource
from muster import utils
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
for get in (utils.get_free_port, utils.get_socket_with_port):
    try:
        get()
    except RuntimeError as error:
        print(error)
"""
    lines = python(program).stdout.splitlines()
    assert len(lines) == 2 and all("no free port" in line for line in lines)


# --- The module -----------------------------------------------------------------------------------


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )


def test_import_needs_neither_torch_nor_asyncio() -> None:
    program = "import sys, muster; print([x for x in ('torch', 'asyncio') if x in sys.modules])"
    assert python(program).stdout == "[]\n"


def test_version_is_that_of_the_project() -> None:
    project = pathlib.Path(__file__).parents[2] / "CMakeLists.txt"
    assert f"project(muster VERSION {muster.__version__} " in project.read_text(encoding="utf-8")
    assert importlib.metadata.version("muster-elastic") == muster.__version__


def test_all_public_names_are_there() -> None:
    for name in muster.__all__:
        if name not in ("torch", "torchrun"):  # these import torch
            assert getattr(muster, name) is not None
    assert set(muster.__all__) <= set(dir(muster))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        muster.nothing  # noqa: B018


def test_everything_has_a_docstring() -> None:
    for name in dir(muster._native):
        described = getattr(muster._native, name)
        if not isinstance(described, type) or described.__module__ != "muster":
            continue
        assert described.__doc__, name
        for member in vars(described):
            if not member.startswith("_"):
                assert getattr(described, member).__doc__, f"{name}.{member}"


def test_the_stub_has_all_that_is_there() -> None:
    stub = pathlib.Path(muster.__file__).with_name("_native.pyi")
    described: set[str] = set()

    def describe(body: list[ast.stmt], before: str) -> None:
        for each in body:
            if isinstance(each, (ast.FunctionDef, ast.ClassDef)):
                described.add(before + each.name)
            if isinstance(each, ast.ClassDef):
                describe(each.body, f"{before}{each.name}.")

    describe(ast.parse(stub.read_text(encoding="utf-8")).body, "")
    native = muster._native
    for name in dir(native):
        thing = getattr(native, name)
        if name.startswith("_"):
            continue
        assert name in described, name
        for member in vars(thing) if isinstance(thing, type) else ():
            if not member.startswith("_") and not hasattr(thing, "__members__"):
                assert f"{name}.{member}" in described, f"{name}.{member}"
    for name in described:
        thing = native
        for part in name.split("."):
            thing = getattr(thing, part)


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "raise LookupError"])
def test_nothing_is_left_when_python_ends(ending: str) -> None:
    program = f"""
import muster, threading
class Mine(muster.Store):
    def __init__(self):
        super().__init__()
    def set(self, key, value):
        self.last = value
server = muster.StoreServer("127.0.0.1")
store = muster.TCPStore("127.0.0.1", server.port)
own = muster.TCPStore("127.0.0.1", 0, is_master=True)
part = muster.PrefixStore("p", store)
mine = Mine()
mine.part = muster.PrefixStore("p", mine)  # leads back to itself
mine.part.set("k", "v")
hashed = muster.HashStore()
threading.Thread(target=lambda: store.clone().get("never"), daemon=True).start()
try:
    hashed.wait(["x"], 0.01)
except muster.DistStoreError as error:
    kept = error
{ending}
"""
    ended = python(program)
    assert ended.returncode == (0 if not ending else 3 if "3" in ending else 1)
    assert "nanobind" not in ended.stderr, ended.stderr
