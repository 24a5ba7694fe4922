"""The error for a wrong argument names the argument, what was expected and what was given."""

from __future__ import annotations

import pathlib
from datetime import timedelta
from typing import Any, Callable

import pytest

import muster
from muster import utils

Call = Callable[..., object]


class Unexpected:
    """A value that no function accepts."""


THING = Unexpected()


@pytest.fixture(scope="module")
def store() -> muster.Store:
    made = muster.HashStore()
    made.set_timeout(1)
    return made


# Method and valid arguments; each of them is replaced by a wrong one.
METHODS: dict[str, dict[str, Any]] = {
    "set": {"key": "k", "value": "v"},
    "get": {"key": "k"},
    "add": {"key": "n", "value": 1},
    "compare_set": {"key": "k", "expected_value": "", "desired_value": "v"},
    "check": {"keys": ["k"]},
    "wait": {"keys": ["k"], "timeout": 1},
    "delete_key": {"key": "k"},
    "append": {"key": "k", "value": "v"},
    "multi_get": {"keys": ["k"]},
    "multi_set": {"keys": ["k"], "values": ["v"]},
    "queue_push": {"key": "k", "value": "v"},
    "queue_pop": {"key": "k", "block": False},
    "queue_len": {"key": "k"},
    "barrier": {"key": "b", "world_size": 1, "timeout": 1},
    "set_timeout": {"timeout": 1},
}
FUNCTIONS: dict[str, tuple[Call, dict[str, Any]]] = {
    "TCPStore": (
        muster.TCPStore,
        {
            "host_name": "127.0.0.1",
            "port": 0,
            "world_size": 1,
            "is_master": True,
            "timeout": 1,
            "wait_for_workers": True,
            "multi_tenant": False,
            "master_listen_fd": 1_000_000,
            "use_libuv": True,
        },
    ),
    "FileStore": (muster.FileStore, {"file_name": "/nowhere/at/all", "world_size": 1}),
    "PrefixStore": (muster.PrefixStore, {"prefix": "p", "store": muster.HashStore()}),
    "EtcdStore": (
        muster.EtcdStore,
        {
            "endpoint": "127.0.0.1:1",
            "protocol": "http",
            "cacert": "/x",
            "cert": "/x",
            "key": "/x",
            "user": "u",
            "password": "p",
            "prefix": "/p",
            "timeout": 0.1,
        },
    ),
    "StoreServer": (
        muster.StoreServer,
        {
            "host": "127.0.0.1",
            "port": 0,
            "threads": 1,
            "listen_fd": 1_000_000,
            "key_bytes_max": 100,
            "value_bytes_max": 100,
            "keys_per_request_max": 100,
            "request_bytes_max": 1000,
            "reply_bytes_max": 1000,
            "queued_reply_bytes_max": 1000,
            "store_bytes_max": 16 * 1024 * 1024,
            "handshake_max": 1,
            "stall_max": timedelta(seconds=1),
            "runs_max": 1,
            "nodes_per_run_max": 1,
            "run_kept_max": 1,
        },
    ),
    "barrier": (
        utils.barrier,
        {
            "store": muster.HashStore(),
            "world_size": 1,
            "key_prefix": "b",
            "barrier_timeout": 1,
            "rank": 0,
            "rank_tracing_decoder": str,
            "trace_timeout": 1,
        },
    ),
    "get_all": (
        utils.get_all,
        {"store": muster.HashStore(), "rank": 0, "prefix": "p", "world_size": 1},
    ),
    "synchronize": (
        utils.synchronize,
        {
            "store": muster.HashStore(),
            "data": "d",
            "rank": 0,
            "world_size": 1,
            "key_prefix": "s",
            "timeout": 1,
        },
    ),
    "create_c10d_store": (
        utils.create_c10d_store,
        {
            "is_server": True,
            "server_addr": "127.0.0.1",
            "server_port": -1,
            "world_size": 1,
            "timeout": 1,
            "wait_for_workers": True,
            "retries": 1,
            "use_libuv": True,
        },
    ),
}
EVERY = [
    *((f"Store.{name}", argument) for name, good in METHODS.items() for argument in good),
    *((name, argument) for name, (_, good) in FUNCTIONS.items() for argument in good),
]


def call_with(store: muster.Store, function: str, argument: str, value: object) -> None:
    if function.startswith("Store."):
        name = function.removeprefix("Store.")
        getattr(store, name)(**{**METHODS[name], argument: value})
    else:
        call, good = FUNCTIONS[function]
        call(**{**good, argument: value})


@pytest.mark.parametrize(("function", "argument"), EVERY)
def test_wrong_types_are_named(store: muster.Store, function: str, argument: str) -> None:
    for wrong in (THING, 1.5j, {1: 2}):
        with pytest.raises(TypeError) as raised:
            call_with(store, function, argument, wrong)
        message = str(raised.value)
        assert message.startswith(f"{argument}"), message
        assert f"not {type(wrong).__name__}" in message or "must be a str" in message, message


# Arguments for which None means the default.
OPTIONAL = {
    *(
        "Store.wait.timeout",
        "Store.barrier.timeout",
        "barrier.rank",
        "barrier.rank_tracing_decoder",
    ),
    *("TCPStore.world_size", "TCPStore.timeout", "TCPStore.master_listen_fd", "TCPStore.use_libuv"),
    *(f"EtcdStore.{name}" for name in FUNCTIONS["EtcdStore"][1] if name != "endpoint"),
    *(
        f"StoreServer.{name}"
        for name in FUNCTIONS["StoreServer"][1]
        if name.endswith(("_max", "_fd"))
    ),
    "create_c10d_store.use_libuv",
    "PrefixStore.store",  # a ValueError, as in torch: test_python_stores.py
}


@pytest.mark.parametrize(
    ("function", "argument"), [each for each in EVERY if ".".join(each) not in OPTIONAL]
)
def test_none_is_not_a_value(store: muster.Store, function: str, argument: str) -> None:
    with pytest.raises(TypeError, match=f"^{argument} must be .*, not NoneType$"):
        call_with(store, function, argument, None)


WRONG_VALUES: list[tuple[str, str, object]] = [
    ("Store.set", "key", "\ud800"),
    ("Store.set", "value", "\ud800"),
    ("Store.add", "value", 2**63),
    ("Store.add", "value", -(2**63) - 1),
    ("Store.wait", "timeout", float("nan")),
    ("Store.wait", "timeout", float("inf")),
    ("Store.wait", "timeout", 10**400),
    ("Store.set_timeout", "timeout", timedelta.max),
    ("Store.barrier", "world_size", 0),
    ("Store.multi_set", "values", ["a", "b"]),
    ("TCPStore", "port", -1),
    ("TCPStore", "port", 65536),
    ("TCPStore", "world_size", 2**40),
    ("TCPStore", "world_size", 0),
    ("TCPStore", "master_listen_fd", -1),
    ("FileStore", "file_name", ""),
    ("FileStore", "file_name", "a\0b"),
    ("FileStore", "world_size", -2),
    ("EtcdStore", "endpoint", "host:99999"),
    ("EtcdStore", "endpoint", ["a", "b:x"]),
    ("EtcdStore", "protocol", "ftp"),
    ("EtcdStore", "timeout", 0),
    ("StoreServer", "port", 70000),
    ("StoreServer", "threads", -1),
    ("StoreServer", "listen_fd", -5),
    ("StoreServer", "key_bytes_max", 0),
    ("StoreServer", "stall_max", 0),
    ("barrier", "world_size", 0),
    ("barrier", "rank", 1),
    ("get_all", "rank", -1),
    ("get_all", "world_size", 0),
    ("synchronize", "rank", 5),
    ("create_c10d_store", "server_port", 65536),
    ("create_c10d_store", "server_port", -2),
    ("create_c10d_store", "retries", 0),
]


@pytest.mark.parametrize(("function", "argument", "value"), WRONG_VALUES)
def test_wrong_values_are_named(
    store: muster.Store, function: str, argument: str, value: object
) -> None:
    with pytest.raises(ValueError) as raised:
        call_with(store, function, argument, value)
    assert str(raised.value).startswith(argument), raised.value


WRONG_TYPES: list[tuple[str, str, object, str]] = [
    ("Store.add", "value", True, "value must be an int, not bool"),
    ("Store.add", "value", 1.0, "value must be an int, not float"),
    ("Store.queue_pop", "block", 1, "block must be a bool, not int"),
    ("Store.check", "keys", "abc", "keys must be a list of str or bytes, not str"),
    ("Store.check", "keys", ["a", 1], r"keys\[1\] must be a str or bytes, not int"),
    (
        "Store.wait",
        "timeout",
        "1",
        "timeout must be a datetime.timedelta or a number of seconds, not str",
    ),
    ("Store.wait", "timeout", True, "timeout must be .* not bool"),
    ("Store.set_timeout", "timeout", None, "timeout must be .* not NoneType"),
    ("TCPStore", "host_name", b"h", "host_name must be a str, not bytes"),
    ("EtcdStore", "endpoint", ["a", 3], r"endpoint\[1\] must be a str, not int"),
    ("PrefixStore", "store", 3, "store must be a muster.Store, not int"),
]


@pytest.mark.parametrize(("function", "argument", "value", "message"), WRONG_TYPES)
def test_the_texts_of_messages(
    store: muster.Store, function: str, argument: str, value: object, message: str
) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        call_with(store, function, argument, value)


def test_what_goes_together() -> None:
    with pytest.raises(ValueError, match="^port must be from 1 to 65535"):
        muster.TCPStore("127.0.0.1", 0)
    with pytest.raises(ValueError, match="^rank_tracing_decoder needs"):
        utils.barrier(muster.HashStore(), 1, "b", rank_tracing_decoder=str)
    with pytest.raises(ValueError, match="TCPStore world size cannot be 0$"):
        muster.TCPStore("localhost", 1, 0)
    with pytest.raises(ValueError, match="^server_port must be from 1 to 65535, not 0"):
        utils.create_c10d_store(False, "localhost", 0)
    with pytest.raises(ValueError, match="^server_port must be given"):
        utils.create_c10d_store(True, "localhost", world_size=2)
    with pytest.raises(TypeError, match="no argument 'treads'"):
        muster.StoreServer(treads=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="^store must be a muster.Store, not int"):
        with utils.store_timeout(3, 1):  # type: ignore[arg-type]
            pass


def test_too_few_and_too_many_arguments(store: muster.Store) -> None:
    for call in (
        lambda: store.set("k"),  # type: ignore[call-arg]
        lambda: store.get(),  # type: ignore[call-arg]
        lambda: store.get("k", "l"),  # type: ignore[call-arg]
        lambda: store.get(nokey="k"),  # type: ignore[call-arg]
        lambda: muster.TCPStore(),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError):
            call()


def test_integers_of_other_libraries(store: muster.Store) -> None:
    class Index:
        def __index__(self) -> int:
            return 4

    assert store.add("other", Index()) == 4  # type: ignore[arg-type]


def test_small_and_odd_times(store: muster.Store) -> None:
    store.set_timeout(timedelta(microseconds=1))
    assert store.timeout == timedelta(milliseconds=1)  # not 0, which has no limit
    store.set_timeout(1.5)
    assert store.timeout == timedelta(milliseconds=1500)
    store.set_timeout(0)
    assert store.timeout == timedelta(0)
    store.set_timeout(timedelta(milliseconds=1001))
    assert store.timeout == timedelta(milliseconds=1001)


def test_a_missing_folder_is_an_error_of_the_path(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="^file_name: .*folder"):
        (tmp_path / "folder").mkdir()
        muster.FileStore(tmp_path / "folder")
