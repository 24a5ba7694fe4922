"""muster's stores as torch.distributed.Store: by hand, from torch's C++, under process groups."""

from __future__ import annotations

import contextlib
import gc
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

dist = pytest.importorskip("torch.distributed")

from servers import PATIENCE_S, etcd_server, muster_server  # noqa: E402

import muster  # noqa: E402
from muster.torch import as_torch_store  # noqa: E402

HERE = pathlib.Path(__file__).parent
KINDS = ["hash", "file", "tcp", "prefix of hash", "prefix of tcp", "etcd"]


@pytest.fixture(scope="module")
def specifications(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The address of each kind of store, for this process and others: see store_worker.py."""
    folder = tmp_path_factory.mktemp("stores")
    with contextlib.ExitStack() as servers:
        made: dict[str, str] = {}

        def of(kind: str) -> str:
            server = "etcd" if kind == "etcd" else "tcp"
            if server not in made and kind in ("etcd", "tcp", "prefix of tcp"):
                made[server] = (
                    servers.enter_context(etcd_server())
                    if server == "etcd"
                    else f"tcp://127.0.0.1:{servers.enter_context(muster_server())}"
                )
            name = f"{kind.replace(' ', '-')}-{time.monotonic_ns()}"
            if kind == "file":
                return f"file://{folder}/{name}"
            if kind in ("tcp", "prefix of tcp"):
                return f"{made['tcp']}/{name if kind.startswith('prefix') else ''}"
            if kind == "etcd":
                return f"{made['etcd']}/{name}"
            return f"hash:///{name if kind.startswith('prefix') else ''}"

        yield of


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, specifications: Callable[[str], str]) -> dist.Store:
    sys.path.insert(0, str(HERE))
    from store_worker import open_store

    return as_torch_store(open_store(specifications(request.param)))


def test_it_is_a_store_of_torchs(store: dist.Store) -> None:
    assert isinstance(store, dist.Store)


@pytest.mark.parametrize("wrapped", [False, True], ids=["by hand", "from C++"])
def test_all_operations(store: dist.Store, wrapped: bool) -> None:
    if wrapped:
        store = dist.PrefixStore("wrapped", store)
    name = f"{time.monotonic_ns()}"
    store.set(f"{name}a", "1")
    store.set(f"{name}b", b"\x00\xff")
    assert store.get(f"{name}a") == b"1"
    assert store.get(f"{name}b") == b"\x00\xff"
    assert store.add(f"{name}n", 2) == 2
    assert store.add(f"{name}n", 3) == 5
    assert store.compare_set(f"{name}a", "1", "2") == b"2"
    assert store.compare_set(f"{name}a", "1", "3") == b"2"
    assert store.check([f"{name}a", f"{name}b"])
    assert not store.check([f"{name}a", f"{name}-"])
    store.wait([f"{name}a"])
    store.wait([f"{name}a"], timedelta(seconds=5))
    store.append(f"{name}a", "x")
    assert store.get(f"{name}a") == b"2x"
    store.multi_set([f"{name}c", f"{name}d"], ["3", "4"])
    assert store.multi_get([f"{name}c", f"{name}d"]) == [b"3", b"4"]
    before = store.num_keys()
    assert store.delete_key(f"{name}a")
    assert not store.check([f"{name}a"])
    assert store.num_keys() <= before


@pytest.mark.parametrize("wrapped", [False, True], ids=["by hand", "from C++"])
def test_timeouts_are_torchs_errors(store: dist.Store, wrapped: bool) -> None:
    store = dist.PrefixStore("wrapped", store) if wrapped else store
    began = time.monotonic()
    with pytest.raises(dist.DistStoreError):
        store.wait(["never"], timedelta(milliseconds=200))
    before = store.timeout
    store.set_timeout(timedelta(milliseconds=200))
    assert store.timeout == timedelta(milliseconds=200)
    with pytest.raises(dist.DistStoreError):
        store.get("never")
    with pytest.raises(dist.DistStoreError):
        store.wait(["never"])
    store.set_timeout(before)
    assert time.monotonic() - began < 30


def test_a_wait_in_one_clone_is_ended_by_another(store: dist.Store) -> None:
    other = store.clone()
    received: list[bytes] = []
    waiting = threading.Thread(target=lambda: received.append(other.get("later")))
    waiting.start()
    store.set("later", "now")
    waiting.join(PATIENCE_S)
    assert received == [b"now"]


def test_torch_may_hold_it_longer_than_python(store: dist.Store) -> None:
    """From then on only torch's C++ refers to the inner store."""
    outer = dist.PrefixStore("p", dist.PrefixStore("q", store))
    del store
    gc.collect()
    outer.set("key", "value")
    assert outer.get("key") == b"value"
    clone = outer.clone()
    del outer
    gc.collect()
    assert clone.get("key") == b"value"


def test_the_same_store_has_one_adapter() -> None:
    store = muster.HashStore()
    assert as_torch_store(store) is as_torch_store(store)
    adapted = as_torch_store(store)
    assert as_torch_store(adapted) is adapted


def test_a_tcp_store_becomes_torchs_own_client() -> None:
    server = muster.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    adapted = as_torch_store(muster.PrefixStore("p", server))
    assert isinstance(adapted, dist.PrefixStore)
    assert isinstance(adapted.underlying_store, dist.TCPStore)
    assert (adapted.underlying_store.host, adapted.underlying_store.port) == (
        "127.0.0.1",
        server.port,
    )
    adapted.set("key", "value")
    assert server.get("p/key") == b"value"


def test_the_adapter_keeps_the_server_alive() -> None:
    adapted = as_torch_store(
        muster.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    )
    gc.collect()
    adapted.set("key", "value")
    assert adapted.get("key") == b"value"


@pytest.mark.parametrize("given", [None, "store", 1, object()])
def test_what_is_no_store_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match="store must be a muster.Store"):
        as_torch_store(given)  # type: ignore[arg-type]


def test_errors_of_the_store_surface_from_c() -> None:
    store = dist.PrefixStore("p", as_torch_store(muster.HashStore()))
    store.set("word", "no number")
    with pytest.raises(Exception, match="number"):
        store.add("word", 1)


@pytest.mark.parametrize("kind", ["file", "tcp", "prefix of tcp", "etcd"])
def test_process_groups_on_every_kind(kind: str, specifications: Callable[[str], str]) -> None:
    """Two processes: all_reduce and DDP over gloo, on nothing but the store."""
    specification = specifications(kind)
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "store_worker.py"), specification, str(rank), "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        printed = [process.communicate(timeout=PATIENCE_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (out, errors) in zip(processes, printed):
        assert process.returncode == 0, errors
        assert "nanobind" not in errors, errors
        assert out == printed[0][0]
