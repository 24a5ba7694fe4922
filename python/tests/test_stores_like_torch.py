"""The same names, results and errors as torch's own stores; both with one server or one file."""

from __future__ import annotations

import inspect
import pathlib
import re
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Callable

import pytest
from servers import PATIENCE_S, free_port

import muster
from muster import utils

dist = pytest.importorskip("torch.distributed")
elastic_store = pytest.importorskip("torch.distributed.elastic.utils.store")
elastic_distributed = pytest.importorskip("torch.distributed.elastic.utils.distributed")

PATIENCE = timedelta(seconds=PATIENCE_S)
KINDS = ("Store", "TCPStore", "FileStore", "HashStore", "PrefixStore")
ERRORS = ("DistError", "DistStoreError", "DistNetworkError", "QueueEmptyError")
# torch's public names that muster lacks; none at present.
MISSING: dict[str, str] = {}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_name_is_there(kind: str) -> None:
    missing = public(getattr(dist, kind)) - public(getattr(muster, kind)) - set(MISSING)
    assert not missing


def torch_arguments(function: Any) -> list[tuple[str, str]]:
    """Name and default of each argument in torch's signature."""
    signature = function.__doc__.splitlines()[0]
    assert "Overloaded" not in function.__doc__
    text = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    arguments = []
    for part in re.split(r", (?=\w+: )", text):
        name, _, rest = part.partition(": ")
        arguments.append((name, rest.partition(" = ")[2]))
    return [argument for argument in arguments if argument[0] != "self"]


def our_arguments(function: Any) -> list[tuple[str, str]]:
    signature = function.__doc__.splitlines()[0]
    text = signature[signature.index("(self") + 5 : signature.rindex(") ->")].removeprefix(", ")
    parts = re.split(r", (?=\w+: )", text) if text else []
    return [(part.partition(": ")[0], part.partition(" = ")[2]) for part in parts]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_constructors_take_the_same(kind: str) -> None:
    theirs = torch_arguments(getattr(dist, kind).__init__)
    assert our_arguments(getattr(muster, kind).__init__) == theirs


def test_methods_take_the_same() -> None:
    for name in sorted(public(dist.Store) - {"timeout", "wait"}):
        theirs = torch_arguments(getattr(dist.Store, name))
        ours = our_arguments(getattr(muster.Store, name))
        assert len(ours) == len(theirs), name
        for (our_name, our_default), (their_name, their_default) in zip(ours, theirs):
            assert our_default == their_default, name
            if not re.fullmatch(r"arg\d", their_name):  # by position only, in torch
                assert our_name == their_name, name


@pytest.mark.parametrize("name", [*elastic_store.__all__, *elastic_distributed.__all__])
def test_helpers_take_the_same(name: str) -> None:
    module = elastic_store if hasattr(elastic_store, name) else elastic_distributed
    theirs = [
        (p.name, p.default) for p in inspect.signature(getattr(module, name)).parameters.values()
    ]
    ours = getattr(utils, name)
    if inspect.isfunction(ours):
        found = [(p.name, p.default) for p in inspect.signature(ours).parameters.values()]
    else:
        signature = ours.__doc__.splitlines()[0]
        text = signature[signature.index("(") + 1 : signature.rindex(") ->")]
        parts = re.split(r", (?=\w+: )", text) if text else []
        empty = inspect.Parameter.empty
        found = [
            (part.partition(": ")[0], eval(part.partition(" = ")[2]) if " = " in part else empty)
            for part in parts
        ]
    assert found == theirs


def test_errors_have_the_same_order() -> None:
    for name in ERRORS:
        theirs = [error.__name__ for error in getattr(dist, name).__mro__]
        assert [error.__name__ for error in getattr(muster, name).__mro__] == theirs
        assert not issubclass(getattr(muster, name), dist.DistError)
    assert issubclass(muster.StoreTimeoutError, muster.DistStoreError)


# --- The same play --------------------------------------------------------------------------------


def outcome(call: Callable[[], Any]) -> object:
    try:
        return call()
    except Exception as error:
        name = type(error).__name__
        return "DistStoreError" if name == "StoreTimeoutError" else name


def play(store: Any, *, queues: bool = True) -> list[object]:
    """The outcomes of the same steps on any store. Only steps that wait in vain have a short
    timeout: what succeeds may take as long as a busy machine needs."""
    short = timedelta(milliseconds=20)
    store.set_timeout(PATIENCE)

    def in_vain(call: Callable[[], Any]) -> Callable[[], Any]:
        def step() -> Any:
            store.set_timeout(short)
            try:
                return call()
            finally:
                store.set_timeout(PATIENCE)

        return step

    steps: list[Callable[[], Any]] = [
        lambda: store.timeout,
        lambda: store.set("k", "v"),
        lambda: store.get("k"),
        lambda: store.set("bytes", b"\x00\x01\xff"),
        lambda: store.get("bytes"),
        lambda: store.get(b"k"),
        lambda: store.add("n", 4),
        lambda: store.add("n", -1),
        lambda: store.get("n"),
        lambda: store.check(["k", "n"]),
        lambda: store.check(["k", "absent"]),
        lambda: store.check([]),
        lambda: store.wait(["k"]),
        lambda: store.wait(["k"], PATIENCE),
        lambda: store.wait(["absent"], short),
        in_vain(lambda: store.wait(["absent"])),
        in_vain(lambda: store.get("absent")),
        lambda: store.compare_set("c", "", "one"),
        lambda: store.compare_set("c", "two", "three"),
        lambda: store.compare_set("c", "one", "two"),
        lambda: store.compare_set("none", "some", "thing"),
        lambda: store.get("c"),
        # Only those above; some stores have keys of their own.
        lambda: sorted({"k", "bytes", "n", "c", "none", "absent"} & set(store.list_keys())),
        lambda: store.append("log", "a"),
        lambda: store.append("log", "b"),
        lambda: store.get("log"),
        lambda: store.multi_set(["x", "y"], ["1", "2"]),
        lambda: store.multi_get(["y", "x"]),
        in_vain(lambda: store.multi_get(["absent"])),
        lambda: store.has_extended_api(),
        lambda: store.delete_key("k"),
        lambda: store.check(["k"]),
        lambda: store.barrier("alone", 1),
        lambda: store.barrier("two", 2, short),
        lambda: type(store.clone()).__name__,
        lambda: store.set(1, "v"),
        lambda: store.set("k", 1),
        lambda: store.add("n", "one"),
        lambda: store.wait("k"),
        lambda: store.wait(["k"], "soon"),
        lambda: store.set_timeout("soon"),
        lambda: store.get(),
    ]
    if queues:
        steps += [
            lambda: store.queue_len("q"),
            lambda: store.queue_push("q", "1"),
            lambda: store.queue_push("q", b"2"),
            lambda: store.queue_len("q"),
            lambda: store.queue_pop("q"),
            lambda: store.queue_pop("q", False),
            lambda: store.queue_pop("q", False),
            in_vain(lambda: store.queue_pop("q")),
        ]
    return [outcome(step) for step in steps]


def test_tcp_store_plays_the_same() -> None:
    theirs = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE)
    ours = muster.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE)
    assert play(ours) == play(theirs)


def test_hash_store_plays_the_same() -> None:
    assert play(muster.HashStore()) == play(dist.HashStore())


def test_file_store_plays_the_same(tmp_path: pathlib.Path) -> None:
    ours = play(muster.FileStore(str(tmp_path / "ours")), queues=False)
    theirs = play(dist.FileStore(str(tmp_path / "theirs")), queues=False)
    # torch has no class for a timeout here; muster's is a RuntimeError, too.
    assert [("RuntimeError" if step == "DistStoreError" else step) for step in ours] == theirs


def test_prefix_store_plays_the_same() -> None:
    theirs = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE)
    ours = muster.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE)
    assert play(muster.PrefixStore("p", ours)) == play(dist.PrefixStore("p", theirs))


def test_connecting_without_a_server_fails_the_same() -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        port = nobody_listens.getsockname()[1]
        short = timedelta(milliseconds=200)
        ours = outcome(lambda: muster.TCPStore("127.0.0.1", port, timeout=short))
        theirs = outcome(lambda: dist.TCPStore("127.0.0.1", port, timeout=short))
    assert ours == theirs == "DistNetworkError"


# --- One server, one file, both libraries ---------------------------------------------------------


@pytest.fixture(params=["ours", "theirs"])
def both(request: pytest.FixtureRequest) -> Iterator[tuple[muster.TCPStore, Any]]:
    """Clients of both libraries at one server, muster's or torch's."""
    if request.param == "ours":
        server: Any = muster.StoreServer("127.0.0.1")
    else:
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE)
    ours = muster.TCPStore("127.0.0.1", server.port, timeout=PATIENCE)
    yield ours, dist.TCPStore("127.0.0.1", server.port, timeout=PATIENCE)


def test_both_at_one_server(both: tuple[muster.TCPStore, Any]) -> None:
    ours, theirs = both
    ours.set("from muster", b"\x00m")
    theirs.set("from torch", "t")
    assert theirs.get("from muster") == b"\x00m" and ours.get("from torch") == b"t"
    assert [ours.add("n", 1), theirs.add("n", 1), ours.add("n", 1)] == [1, 2, 3]
    ours.queue_push("q", "1")
    assert theirs.queue_pop("q") == b"1"
    assert sorted(ours.list_keys()) == sorted(theirs.list_keys())
    assert ours.multi_get(["from torch"]) == theirs.multi_get(["from torch"])


def test_both_wait_for_each_other(both: tuple[muster.TCPStore, Any]) -> None:
    ours, theirs = both
    for one, other in ((ours, theirs), (theirs, ours)):
        key = f"late for {type(one).__module__}"
        results: list[bytes] = []
        thread = threading.Thread(
            target=lambda one=one, key=key, results=results: results.append(one.get(key))
        )
        thread.start()
        other.set(key, "here")
        thread.join(PATIENCE_S)
        assert results == [b"here"]


def test_both_meet_at_a_barrier(both: tuple[muster.TCPStore, Any]) -> None:
    ours, theirs = both
    thread = threading.Thread(target=lambda: theirs.barrier("meet", 2, PATIENCE))
    thread.start()
    ours.barrier("meet", 2, PATIENCE)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_both_exchange_with_the_helpers(both: tuple[muster.TCPStore, Any]) -> None:
    ours, theirs = both
    results: list[object] = []
    thread = threading.Thread(
        target=lambda: results.append(elastic_store.synchronize(theirs, b"torch", 1, 2, "swap"))
    )
    thread.start()
    assert utils.synchronize(ours, "muster", 0, 2, "swap") == [b"muster", b"torch"]
    thread.join(PATIENCE_S)
    assert results == [[b"muster", b"torch"]]


def test_both_in_one_file(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "store")
    ours, theirs = muster.FileStore(path), dist.FileStore(path)
    ours.set("from muster", "m")
    theirs.set("from torch", "t")
    assert theirs.get("from muster") == b"m" and ours.get("from torch") == b"t"
    assert [ours.add("n", 1), theirs.add("n", 1)] == [1, 2]


def test_both_meet_as_one_world() -> None:
    port = free_port()
    made: list[Any] = []
    thread = threading.Thread(
        target=lambda: made.append(muster.TCPStore("127.0.0.1", port, 2, True, PATIENCE))
    )
    thread.start()
    theirs = dist.TCPStore("127.0.0.1", port, 2, False, PATIENCE)
    thread.join(PATIENCE_S)
    theirs.set("k", "v")
    assert made[0].get("k") == b"v"
