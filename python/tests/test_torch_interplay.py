"""Torch's objects in muster's functions, and muster's in torch's, without an explicit adapter."""

from __future__ import annotations

import itertools
import pathlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.elastic import rendezvous as theirs  # noqa: E402
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend  # noqa: E402
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as their_dynamic  # noqa: E402
from torch.distributed.elastic.rendezvous import registry as their_registry  # noqa: E402
from torch.distributed.elastic.utils import store as their_utils  # noqa: E402

import muster  # noqa: E402
from muster import rendezvous as ours  # noqa: E402
from muster import utils  # noqa: E402
from muster.torch import as_torch_store  # noqa: E402

ADDRESS = "127.0.0.1"
PATIENCE = timedelta(seconds=60)
SHORT = timedelta(milliseconds=50)
SECOND = timedelta(seconds=1)
KINDS = ("tcp", "file", "hash", "prefix", "python")
numbers = itertools.count()


def written_in_python(library: Any) -> Any:
    """A user's store, on either library."""

    class Written(library.Store):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = library.HashStore()

        def set(self, key: Any, value: Any) -> None:
            self.inner.set(key, value)

        def get(self, key: Any) -> bytes:
            return self.inner.get(key)  # type: ignore[no-any-return]

        def add(self, key: Any, value: int) -> int:
            return self.inner.add(key, value)  # type: ignore[no-any-return]

        def compare_set(self, key: Any, expected_value: Any, desired_value: Any) -> bytes:
            return self.inner.compare_set(key, expected_value, desired_value)  # type: ignore[no-any-return]

        def check(self, keys: Any) -> bool:
            return self.inner.check(keys)  # type: ignore[no-any-return]

        def wait(self, keys: Any, timeout: Any = PATIENCE) -> None:
            self.inner.wait(keys, timeout)

        def delete_key(self, key: Any) -> bool:
            return self.inner.delete_key(key)  # type: ignore[no-any-return]

        def clone(self) -> Any:
            made = Written()
            made.inner = self.inner.clone()
            return made

    return Written()


def make(library: Any, kind: str, folder: pathlib.Path) -> Any:
    if kind == "tcp":
        return library.TCPStore(ADDRESS, 0, is_master=True, timeout=PATIENCE)
    if kind == "file":
        return library.FileStore(str(folder / f"store-{next(numbers)}"))
    if kind == "prefix":
        return library.PrefixStore("inner", library.HashStore())
    return library.HashStore() if kind == "hash" else written_in_python(library)


@pytest.fixture(params=KINDS)
def torchs(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Any:
    return make(dist, request.param, tmp_path)


@pytest.fixture(params=KINDS)
def musters(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Any:
    return make(muster, request.param, tmp_path)


def use(outer: Any, inner: Any) -> None:
    """Every operation of a store, through a PrefixStore of the other library."""
    outer.set("k", b"\x00v")
    assert inner.get("p/k") == outer.get("k") == b"\x00v"
    assert (outer.add("n", 2), outer.add("n", 3)) == (2, 5)
    assert outer.compare_set("k", b"\x00v", "w") == b"w"
    assert outer.compare_set("new", "", "x") == b"x"
    assert outer.check(["k", "n"]) and not outer.check(["absent"])
    outer.wait(["k"], SHORT)
    outer.append("log", "a")
    outer.append("log", "b")
    assert outer.get("log") == b"ab"
    outer.multi_set(["x", "y"], ["1", "2"])
    assert outer.multi_get(["y", "x"]) == [b"2", b"1"]
    outer.barrier("gate", 1)
    assert outer.has_extended_api() == inner.has_extended_api()
    assert outer.delete_key("k")
    assert not inner.check(["p/k"])
    with pytest.raises(RuntimeError):
        outer.wait(["absent"], SHORT)


def in_pairs(work: Callable[[int], Any]) -> list[Any]:
    """The results of two threads. Each thread needs its own clone() of a store."""
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(work, range(2)))


# --- Torch's in muster's --------------------------------------------------------------------------


def test_a_prefix_of_torchs_store(torchs: Any) -> None:
    outer = muster.PrefixStore("p", torchs)
    use(outer, torchs)
    assert outer.underlying_store is torchs
    innermost = torchs.underlying_store if isinstance(torchs, dist.PrefixStore) else torchs
    assert outer._underlying_non_prefix_store is innermost
    assert repr(torchs) in repr(outer)


def test_the_helpers_on_torchs_store(torchs: Any) -> None:
    def member(rank: int) -> object:
        store = torchs.clone()
        utils.barrier(store, 2, "gate", 60, rank=rank)
        return utils.synchronize(store, f"of {rank}", rank, 2, "swap", 60)

    assert in_pairs(member) == [[b"of 0", b"of 1"]] * 2


@pytest.mark.parametrize("kind", ["tcp", "hash"])
def test_a_dynamic_rendezvous_on_torchs_store(kind: str, tmp_path: pathlib.Path) -> None:
    store = make(dist, kind, tmp_path)

    def node(rank: int) -> Any:
        handler = ours.DynamicRendezvousHandler.from_backend(
            "run",
            store.clone(),
            ours.C10dRendezvousBackend(store.clone(), "run"),
            2,
            2,
            ADDRESS,
            their_dynamic.RendezvousTimeout(PATIENCE, SECOND),
        )
        return handler.next_rendezvous()

    infos = in_pairs(node)
    infos[0].store.set("key", "value")
    assert infos[1].store.get("key") == b"value"
    assert sorted(info.rank for info in infos) == [0, 1]


def test_torchs_backend_of_a_rendezvous() -> None:
    store = dist.HashStore()
    handlers = [
        ours.DynamicRendezvousHandler.from_backend(
            "run",
            store,
            c10d_rendezvous_backend.C10dRendezvousBackend(store, "run"),
            2,
            2,
            ADDRESS,
            ours.RendezvousTimeout(PATIENCE, SECOND),
        )
        for _ in range(2)
    ]
    infos = in_pairs(lambda rank: handlers[rank].next_rendezvous())
    assert sorted(info.rank for info in infos) == [0, 1]
    assert handlers[0].shutdown()


def test_store_info_of_torchs_store() -> None:
    store = dist.HashStore()
    built = ours.RendezvousStoreInfo.build(0, store, "host", 29)
    read = theirs.RendezvousStoreInfo.build(1, store, "other")
    assert (read.master_addr, read.master_port) == (built.master_addr, built.master_port)


def test_torchs_parameters() -> None:
    given = theirs.RendezvousParameters(
        "c10d", f"{ADDRESS}:0", "run", 1, 1, ADDRESS, is_host=True, last_call_timeout=1
    )
    handler = ours.get_rendezvous_handler(given)
    assert handler.next_rendezvous().world_size == 1
    backend, store = ours.create_backend(given)
    assert ours.create_handler(store, backend, given).get_run_id() == "run"


def test_torchs_handler_in_musters_registry() -> None:
    registry = ours.RendezvousHandlerRegistry()
    registry.register("static", their_registry.get_rendezvous_handler)
    given = ours.RendezvousParameters("static", f"{ADDRESS}:1", "run", 1, 1, rank=0)
    assert isinstance(registry.create_handler(given), theirs.RendezvousHandler)


def test_a_timeout_for_a_while() -> None:
    store = dist.HashStore()
    before = store.timeout
    with utils.store_timeout(store, 7):
        assert store.timeout == timedelta(seconds=7)
    assert store.timeout == before


def test_an_error_of_torchs_store_comes_out_as_it_was() -> None:
    store = dist.TCPStore(ADDRESS, 0, is_master=True)
    with pytest.raises(dist.DistStoreError):
        muster.PrefixStore("p", store).wait(["absent"], SHORT)
    with pytest.raises(dist.QueueEmptyError):
        muster.PrefixStore("p", store).queue_pop("q", False)
    with pytest.raises(NotImplementedError):
        muster.PrefixStore("p", written_in_python(dist)).queue_push("q", "x")


def test_missing_ranks_of_a_barrier_on_torchs_store() -> None:
    store = dist.TCPStore(ADDRESS, 0, is_master=True)
    with pytest.raises(muster.StoreTimeoutError, match=r"\[1\] did not come"):
        utils.barrier(store, 2, "gate", SHORT, rank=0, trace_timeout=SHORT)


def test_an_error_of_torchs_backend_is_musters_with_that_cause() -> None:
    class Broken(their_dynamic.RendezvousBackend):  # type: ignore[misc]
        name = "broken"

        def get_state(self) -> None:
            raise theirs.RendezvousConnectionError("out of reach")

        def set_state(self, state: bytes, token: object = None) -> None:
            raise theirs.RendezvousConnectionError("out of reach")

    handler = ours.DynamicRendezvousHandler.from_backend(
        "run", muster.HashStore(), Broken(), 1, 1, ADDRESS, ours.RendezvousTimeout(SECOND)
    )
    with pytest.raises(ours.RendezvousConnectionError, match="out of reach") as raised:
        handler.next_rendezvous()
    assert isinstance(raised.value, theirs.RendezvousConnectionError)
    assert type(raised.value.__cause__) is theirs.RendezvousConnectionError


def test_a_clone_of_a_prefix_of_torchs_store() -> None:
    store = dist.HashStore()
    outer = muster.PrefixStore("p", store)
    outer.clone().set("k", "v")
    assert store.get("p/k") == b"v"


def test_torchs_store_is_waited_for_in_a_thread() -> None:
    store = dist.TCPStore(ADDRESS, 0, is_master=True)
    heard: list[bytes] = []
    outer = muster.PrefixStore("p", store)
    waiting = threading.Thread(target=lambda: heard.append(outer.get("later")))
    waiting.start()
    dist.TCPStore(ADDRESS, store.port).set("p/later", "now")
    waiting.join(PATIENCE.total_seconds())
    assert heard == [b"now"]


def test_there_and_back_is_torchs_store_again() -> None:
    store = dist.HashStore()
    back = as_torch_store(muster.PrefixStore("p", store))
    assert isinstance(back, dist.PrefixStore)
    assert back.underlying_store is store
    assert as_torch_store(store) is store


# --- Muster's in torch's --------------------------------------------------------------------------


def test_torchs_prefix_of_a_store(musters: Any) -> None:
    use(dist.PrefixStore("p", musters), musters)


def test_torchs_prefix_takes_its_arguments_by_name() -> None:
    store = muster.HashStore()
    dist.PrefixStore(prefix="p", store=store).set("k", "v")
    assert store.get("p/k") == b"v"
    with pytest.raises(ValueError, match="store argument cannot be None"):
        dist.PrefixStore("p", None)
    with pytest.raises(TypeError):
        dist.PrefixStore("p", "no store")


@pytest.fixture
def group() -> Iterator[Callable[[Any], None]]:
    """A process group of one on a store, with a collective and a second group."""

    def work_on(store: Any) -> None:
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=PATIENCE)
        total = torch.ones(3)
        dist.all_reduce(total)
        assert total.tolist() == [1.0, 1.0, 1.0]
        dist.barrier(dist.new_group([0]))

    yield work_on
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_process_group_on_a_store(musters: Any, group: Callable[[Any], None]) -> None:
    group(musters)


def test_a_process_group_on_the_store_of_a_round(group: Callable[[Any], None]) -> None:
    with muster.StoreServer(ADDRESS) as server:
        given = ours.RendezvousParameters(
            "muster", f"{ADDRESS}:{server.port}", "run", 1, 1, ADDRESS, is_host=False
        )
        handler = ours.get_rendezvous_handler(given)
        group(handler.next_rendezvous().store)
        dist.destroy_process_group()
        handler.shutdown()


def test_remote_calls_and_a_process_group_on_one_store(group: Callable[[Any], None]) -> None:
    from torch.distributed import rpc

    store = muster.TCPStore(ADDRESS, 0, is_master=True, timeout=PATIENCE)
    scheme = f"muster{next(numbers)}"
    dist.register_rendezvous_handler(scheme, lambda url, **options: iter([(store, 0, 1)]))
    group(store)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"{scheme}://")
    rpc.init_rpc("one", rank=0, world_size=1, rpc_backend_options=options)
    try:
        assert rpc.rpc_sync("one", max, args=(3, 4)) == 4
    finally:
        rpc.shutdown()


def test_torchs_helpers_on_a_store(musters: Any) -> None:
    def member(rank: int) -> object:
        store = musters.clone()
        their_utils.barrier(store, 2, "gate", 60)
        return their_utils.synchronize(store, b"of %d" % rank, rank, 2, "swap", 60)

    assert in_pairs(member) == [[b"of 0", b"of 1"]] * 2


@pytest.mark.parametrize("kind", ["tcp", "hash"])
def test_torchs_dynamic_rendezvous_on_musters(kind: str, tmp_path: pathlib.Path) -> None:
    """Store, backend and timeouts are muster's; one node is torch's, the other muster's."""
    store = make(muster, kind, tmp_path)

    def node(rank: int) -> Any:
        library = their_dynamic if rank == 0 else ours
        handler = library.DynamicRendezvousHandler.from_backend(
            "run",
            store.clone(),
            ours.C10dRendezvousBackend(store.clone(), "run"),
            2,
            2,
            ADDRESS,
            ours.RendezvousTimeout(PATIENCE, SECOND),
        )
        return handler.next_rendezvous(), handler

    (one, first), (other, second) = in_pairs(node)
    one.store.set("key", "value")
    assert other.store.get("key") == b"value"
    assert {one.rank, other.rank} == {0, 1}
    assert first.shutdown() and second.shutdown()


def test_torchs_backend_on_a_store_of_musters() -> None:
    store = muster.HashStore()
    backend = c10d_rendezvous_backend.C10dRendezvousBackend(store, "run")
    written, token, was_set = backend.set_state(b"state")
    assert (written, was_set) == (b"state", True)
    assert ours.C10dRendezvousBackend(store, "run").get_state() == (b"state", token)


def test_torchs_store_info_of_a_store() -> None:
    store = muster.HashStore()
    built = theirs.RendezvousStoreInfo.build(0, store, "host", 29)
    assert ours.RendezvousStoreInfo.build(1, store) == ours.RendezvousStoreInfo("host", 29)
    assert theirs.RendezvousInfo(store, 0, 1, built).store is store


def test_musters_parameters_in_torchs_registry() -> None:
    given = ours.RendezvousParameters(
        "c10d", f"{ADDRESS}:0", "run", 1, 1, ADDRESS, is_host=True, last_call_timeout=1
    )
    handler = their_registry.get_rendezvous_handler(given)
    assert handler.next_rendezvous().world_size == 1
    assert handler.shutdown()


def test_musters_handler_in_torchs_registry() -> None:
    registry = theirs.RendezvousHandlerRegistry()
    registry.register("muster", ours.get_rendezvous_handler)
    with muster.StoreServer(ADDRESS) as server:
        given = theirs.RendezvousParameters(
            "muster", f"{ADDRESS}:{server.port}", "run", 1, 1, ADDRESS, is_host=False
        )
        handler = registry.create_handler(given)
        info = handler.next_rendezvous()
        wrapped = dist.PrefixStore("torchelastic", info.store)
        wrapped.set("k", "v")
        assert info.store.get("torchelastic/k") == b"v"
        handler.set_closed()
        with pytest.raises(theirs.RendezvousClosedError):
            handler.next_rendezvous()


def test_an_error_of_musters_store_is_torchs_behind_torchs_prefix() -> None:
    outer = dist.PrefixStore("p", muster.HashStore())
    with pytest.raises(dist.DistStoreError):
        outer.wait(["absent"], SHORT)
    # Torch has no queues for stores that are written in Python, as our adapter is.
    outer = dist.PrefixStore("p", muster.TCPStore(ADDRESS, 0, is_master=True))
    with pytest.raises(dist.QueueEmptyError):
        outer.queue_pop("q", False)
