"""The parameters of handlers: what is accepted, what is refused and with which messages."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import muster
from muster import rendezvous
from muster.rendezvous import (
    DynamicRendezvousHandler,
    RendezvousHandler,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeout,
)


def parameters(**options: Any) -> RendezvousParameters:
    return RendezvousParameters("muster", "localhost:29400", "run", 1, 2, "here", **options)


def test_parameters_hold_what_they_were_given() -> None:
    params = parameters(a=1, b="two", c=None)
    assert (params.backend, params.endpoint, params.run_id) == ("muster", "localhost:29400", "run")
    assert (params.min_nodes, params.max_nodes, params.local_addr) == (1, 2, "here")
    assert params.config == {"a": 1, "b": "two", "c": None}
    assert params.get("b") == "two"
    assert params.get("c", "default") is None
    assert params.get("d", "default") == "default"
    assert "b='two'" in repr(params)
    assert RendezvousParameters("x", "", "run", 1, 1).local_addr is None


@pytest.mark.parametrize("value", [True, 1, "1", "true", "T", "Yes", "y"])
def test_texts_for_true(value: object) -> None:
    assert parameters(option=value).get_as_bool("option") is True


@pytest.mark.parametrize("value", [False, 0, "0", "False", "f", "no", "N"])
def test_texts_for_false(value: object) -> None:
    assert parameters(option=value).get_as_bool("option") is False


@pytest.mark.parametrize("value", ["", " true", "on", "01", 4, 1.0, [], "4"])
def test_what_is_no_boolean_names_the_option(value: object) -> None:
    with pytest.raises(ValueError, match="'option'"):
        parameters(option=value).get_as_bool("option")


def test_booleans_that_are_not_there() -> None:
    params = parameters(option=None)
    assert params.get_as_bool("option", True) is None
    assert params.get_as_bool("other") is None
    assert params.get_as_bool("other", True) is True


@pytest.mark.parametrize(
    ("value", "number"), [(5, 5), (" -7 ", -7), ("1_000", 1000), (2.9, 2), (True, 1), ("+3", 3)]
)
def test_integers(value: object, number: int) -> None:
    assert parameters(option=value).get_as_int("option") == number


@pytest.mark.parametrize("value", ["", "abc", "0a", "0x10", "1.5", float("inf"), float("nan")])
def test_what_is_no_integer_names_the_option(value: object) -> None:
    with pytest.raises(ValueError, match="'option'"):
        parameters(option=value).get_as_int("option")


def test_integers_that_are_not_there() -> None:
    params = parameters(option=None)
    assert params.get_as_int("option", 3) is None
    assert params.get_as_int("other", 3) == 3


def test_timeouts_have_torchelastics_defaults() -> None:
    timeout = RendezvousTimeout()
    assert (timeout.join, timeout.last_call) == (timedelta(seconds=600), timedelta(seconds=30))
    assert (timeout.close, timeout.heartbeat) == (timedelta(seconds=30), timedelta(seconds=5))
    assert RendezvousTimeout(close=timedelta(seconds=7)).close == timedelta(seconds=7)


class Backend:
    name = "own"

    def get_state(self) -> None: ...

    def set_state(self, state: bytes, token: object = None) -> None: ...


def make(**changes: Any) -> RendezvousParameters:
    given: dict[str, Any] = {
        "backend": "c10d",
        "endpoint": "localhost:0",
        "run_id": "run",
        "min_nodes": 1,
        "max_nodes": 1,
    }
    return RendezvousParameters(**{**given, **changes})


def from_backend(**changes: Any) -> DynamicRendezvousHandler:
    given: dict[str, Any] = {
        "run_id": "run",
        "store": muster.HashStore(),
        "backend": Backend(),
        "min_nodes": 1,
        "max_nodes": 1,
        "local_addr": "localhost",
    }
    return DynamicRendezvousHandler.from_backend(**{**given, **changes})


def handler(**changes: Any) -> RendezvousHandler:
    return rendezvous.get_rendezvous_handler(make(**changes))


def build(*args: Any) -> RendezvousStoreInfo:
    return RendezvousStoreInfo.build(*args)


def c10d_state(*args: Any) -> object:
    return rendezvous.C10dRendezvousBackend(muster.HashStore(), "run").set_state(*args)


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda: make(backend=3), TypeError, "backend must be a str, not int"),
        (lambda: make(backend=None), ValueError, "backend name must be a non-empty string"),
        (lambda: make(backend=""), ValueError, "backend name must be a non-empty string"),
        (lambda: make(endpoint=b"x"), TypeError, "endpoint must be a str, not bytes"),
        (lambda: make(run_id=7), TypeError, "run_id"),
        (lambda: make(min_nodes="1"), TypeError, "min_nodes must be an int, not str"),
        (lambda: make(min_nodes=True), TypeError, "min_nodes"),
        (lambda: make(min_nodes=1.0), TypeError, "min_nodes"),
        (lambda: make(min_nodes=0), ValueError, "min_nodes"),
        (lambda: make(min_nodes=0), ValueError, "nodes (0) must be greater than zero"),
        (lambda: make(max_nodes=None), TypeError, "max_nodes"),
        (lambda: make(min_nodes=3, max_nodes=2), ValueError, "max_nodes (2)"),
        (lambda: make(local_addr=3), TypeError, "local_addr"),
        (lambda: RendezvousTimeout(join=timedelta(0)), ValueError, "join"),
        (lambda: RendezvousTimeout(heartbeat="x"), TypeError, "heartbeat"),  # type: ignore[arg-type]
        (lambda: RendezvousTimeout(close=float("nan")), ValueError, "close"),  # type: ignore[arg-type]
        (lambda: handler(backend="no-such"), ValueError, "no-such"),
        (lambda: handler(endpoint="localhost:port"), ValueError, "localhost:port"),
        (lambda: handler(run_id=""), ValueError, "run id"),
        (lambda: handler(store_type="sql"), ValueError, "store_type"),
        (lambda: handler(read_timeout=0), ValueError, "read_timeout"),
        (lambda: handler(is_host=[]), ValueError, "is_host"),
        (lambda: handler(join_timeout=object()), ValueError, "join_timeout"),
        (lambda: handler(join_timeout=timedelta(0)), ValueError, "join"),
        (lambda: handler(is_host="perhaps"), ValueError, "is_host"),
        (lambda: handler(join_timeout=-1), ValueError, "join"),
        (lambda: handler(join_timeout=2**70), ValueError, "join_timeout"),
        (lambda: handler(backend="muster", rank_policy="best"), ValueError, "rank policy 'best'"),
        (lambda: handler(backend="muster", grace="x"), ValueError, "grace"),
        (lambda: handler(backend="static"), ValueError, "rank"),
        (lambda: handler(backend="static", rank=1), ValueError, "rank 1"),
        (lambda: handler(backend="static", rank=0, endpoint="x"), ValueError, "port"),
        (lambda: handler(backend="etcd", endpoint="ftp://x"), ValueError, "ftp"),
        (lambda: rendezvous.get_rendezvous_handler(3), TypeError, "params"),  # type: ignore[arg-type]
        (lambda: from_backend(run_id=""), ValueError, "run_id"),
        (lambda: from_backend(run_id=None), TypeError, "run_id"),
        (lambda: from_backend(store=None), TypeError, "store"),
        (lambda: from_backend(store="store"), TypeError, "store"),
        (lambda: from_backend(backend=3), TypeError, "backend"),
        (lambda: from_backend(min_nodes=0), ValueError, "min_nodes"),
        (lambda: from_backend(max_nodes=0), ValueError, "max_nodes"),
        (lambda: from_backend(local_addr=3), TypeError, "local_addr"),
        (lambda: from_backend(timeout=3), TypeError, "timeout must be a RendezvousTimeout"),
        (lambda: from_backend(keep_alive_interval="x"), TypeError, "keep_alive_interval"),
        (lambda: from_backend(keep_alive_interval=0), ValueError, "keep_alive_interval"),
        (lambda: from_backend(keep_alive_max_attempt=0), ValueError, "keep_alive_max_attempt"),
        (lambda: from_backend(keep_alive_max_attempt=1.5), TypeError, "keep_alive_max_attempt"),
        (lambda: from_backend(cas_backoff_max_seconds=-1), ValueError, "cas_backoff_max_seconds"),
        (lambda: from_backend(cas_backoff_max_seconds="1"), TypeError, "cas_backoff_max_seconds"),
        (lambda: from_backend().await_event("soon"), TypeError, "timeout"),  # type: ignore[arg-type]
        (lambda: from_backend().await_event(None), TypeError, "timeout"),  # type: ignore[arg-type]
        (lambda: from_backend().set_closed(3), TypeError, "reason"),  # type: ignore[arg-type]
        (lambda: build("0", muster.HashStore(), "x"), TypeError, "rank"),
        (lambda: build(-1, muster.HashStore(), "x"), ValueError, "rank"),
        (lambda: build(0, {}, "x"), TypeError, "store"),
        (lambda: build(0, muster.HashStore(), 3), TypeError, "local_addr"),
        (lambda: build(0, muster.HashStore(), "x", 70_000), ValueError, "server_port"),
        (lambda: c10d_state("text"), TypeError, "state"),
        (lambda: rendezvous.C10dRendezvousBackend(None, "run"), TypeError, "store"),  # type: ignore[arg-type]
        (lambda: rendezvous.C10dRendezvousBackend(muster.HashStore(), 3), TypeError, "run_id"),  # type: ignore[arg-type]
        (lambda: rendezvous.C10dRendezvousBackend(muster.HashStore(), ""), ValueError, "run id"),
        (lambda: rendezvous.create_backend(None), TypeError, "params"),  # type: ignore[arg-type]
        (lambda: rendezvous.set_event_sink(3), TypeError, "sink"),  # type: ignore[arg-type]
        (lambda: rendezvous.parse_rendezvous_endpoint(3, 1), TypeError, "endpoint"),  # type: ignore[arg-type]
        (lambda: rendezvous.parse_rendezvous_endpoint("a", "1"), TypeError, "default_port"),  # type: ignore[arg-type]
        (lambda: rendezvous.parse_rendezvous_config("a"), ValueError, "a"),
        (
            lambda: rendezvous.parse_rendezvous_config("a=1,b"),
            ValueError,
            "rendezvous configuration option 'b' must have a value specified",
        ),
        (
            lambda: rendezvous.parse_rendezvous_config("a=1,=b"),
            ValueError,
            "The rendezvous configuration string must be in format",
        ),
        (
            lambda: rendezvous.parse_rendezvous_endpoint("host:port", 1),
            ValueError,
            "port number of the rendezvous endpoint 'host:port' must be an integer between 0 and",
        ),
        (
            lambda: rendezvous.parse_rendezvous_endpoint(":10", 1),
            ValueError,
            "hostname of the rendezvous endpoint ':10' must be a dot-separated list of labels",
        ),
        (lambda: rendezvous.MembershipEvent("lost"), TypeError, "kind"),  # type: ignore[arg-type]
    ],
)
def test_invalid_input_is_refused_by_name(
    call: Callable[[], object], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=re.escape(named)):
        call()


def test_endpoints_and_configurations_are_parsed() -> None:
    assert rendezvous.parse_rendezvous_endpoint("host", 1) == ("host", 1)
    assert rendezvous.parse_rendezvous_endpoint("[::1]:29", 1) == ("::1", 29)
    assert rendezvous.parse_rendezvous_endpoint("", -1) == ("localhost", -1)
    assert rendezvous.parse_rendezvous_endpoint(None, 5) == ("localhost", 5)
    assert rendezvous.parse_rendezvous_config("a=1, b = x=y") == {"a": "1", "b": "x=y"}
    assert rendezvous.parse_rendezvous_config("") == {}


def test_settings_are_those_of_the_parameters() -> None:
    made = handler(
        is_host=True,
        join_timeout=7,
        keep_alive_interval=2,
        keep_alive_max_attempt=4,
        cas_backoff_max_seconds="0.5",
    )
    assert isinstance(made, DynamicRendezvousHandler)
    settings = made.settings
    assert (settings.run_id, settings.min_nodes, settings.max_nodes) == ("run", 1, 1)
    assert settings.timeout.join == timedelta(seconds=7)
    assert settings.timeout.last_call == timedelta(seconds=30)
    assert settings.keep_alive_interval == timedelta(seconds=2)
    assert settings.keep_alive_max_attempt == 4
    assert settings.cas_backoff_max_seconds == 0.5
    parameters = make(cas_backoff_max_seconds="0.5")
    own = rendezvous.create_handler(muster.HashStore(), Backend(), parameters)  # type: ignore[arg-type]
    assert own.settings.cas_backoff_max_seconds == 0.5
    assert from_backend().settings.cas_backoff_max_seconds == 0


def test_options_of_a_dynamic_rendezvous_are_whole_seconds() -> None:
    given = make(
        is_host=True,
        join_timeout="10",
        last_call_timeout=20,
        close_timeout=" 30 ",
        heartbeat_timeout=40,
        keep_alive_interval="7",
        keep_alive_max_attempt="9",
    )
    own = rendezvous.create_handler(muster.HashStore(), Backend(), given)  # type: ignore[arg-type]
    for made in (rendezvous.get_rendezvous_handler(given), own):
        assert isinstance(made, DynamicRendezvousHandler)
        settings, times = made.settings, made.settings.timeout
        limits = (times.join, times.last_call, times.close, times.heartbeat)
        assert [limit.total_seconds() for limit in limits] == [10, 20, 30, 40]
        assert settings.keep_alive_interval == timedelta(seconds=7)
        assert settings.keep_alive_max_attempt == 9


def test_times_may_be_timedeltas() -> None:
    second = timedelta(seconds=1)
    made = handler(is_host=True, join_timeout=7 * second, keep_alive_interval=2 * second)
    assert isinstance(made, DynamicRendezvousHandler)
    assert made.settings.timeout.join == 7 * second
    own = rendezvous.create_handler(
        muster.HashStore(),
        Backend(),  # type: ignore[arg-type]
        make(last_call_timeout=3 * second, keep_alive_interval=2 * second),
    )
    assert own.settings.timeout.last_call == 3 * second
    assert from_backend(keep_alive_interval=4 * second).settings.keep_alive_interval == 4 * second
    made_static = rendezvous.StaticTCPRendezvous("::1", 29500, 1, 2, "run", 5 * second)
    assert made_static.timeout == 5 * second


def test_options_may_be_any_object() -> None:
    assert handler(anything=object(), more=["of", "it"]).get_backend() == "c10d"


def test_a_static_rendezvous_has_what_it_was_made_with() -> None:
    made = handler(backend="static", endpoint="[::1]:29500", rank="0", timeout="7")
    assert isinstance(made, rendezvous.StaticTCPRendezvous)
    assert (made.master_addr, made.master_port, made.rank) == ("::1", 29500, 0)
    assert (made.world_size, made.run_id) == (1, "run")
    assert made.timeout == timedelta(seconds=7)
    assert made.get_backend() == "static" and made.use_agent_store


def test_a_static_rendezvous_may_take_ten_minutes() -> None:
    made = handler(backend="static", endpoint="127.0.0.1:0", rank=0)
    assert isinstance(made, rendezvous.StaticTCPRendezvous)
    assert made.timeout == made.next_rendezvous().store.timeout == timedelta(seconds=600)


def test_store_info_is_published_by_rank_0() -> None:
    store = muster.HashStore()
    first = RendezvousStoreInfo.build(0, store, "host", 29500)
    assert first == RendezvousStoreInfo("host", 29500)
    assert RendezvousStoreInfo.build(1, store, "other") == first
    assert store.get(RendezvousStoreInfo.MASTER_ADDR_KEY) == b"host"
    assert store.get(RendezvousStoreInfo.MASTER_PORT_KEY) == b"29500"
    assert RendezvousStoreInfo.build(0, muster.HashStore(), None).master_port > 0


# --- The registry ---------------------------------------------------------------------------------


class OwnHandler(RendezvousHandler):
    """All that torchelastic requires, and nothing else."""

    def __init__(self, params: RendezvousParameters) -> None:
        self.params = params
        self.node = "of its own kind"  # the base class reserves neither name
        self.is_host = 3
        self.late = 0
        self.closed = False

    def get_backend(self) -> str:
        return str(self.params.get("claims", self.params.backend))

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(muster.HashStore(), 0, 1, RendezvousStoreInfo("host", 1))

    def is_closed(self) -> bool:
        return self.closed

    def set_closed(self) -> None:
        self.closed = True

    def num_nodes_waiting(self) -> int:
        return self.late

    def get_run_id(self) -> str:
        return self.params.run_id

    def shutdown(self) -> bool:
        return True


def test_a_python_handler_is_made_by_the_registry() -> None:
    registry = RendezvousHandlerRegistry()
    registry.register("own", OwnHandler)
    registry.register("own", OwnHandler)
    made = registry.create_handler(make(backend="own", anything=object()))
    assert isinstance(made, OwnHandler)
    info = made.next_rendezvous()
    assert (info.rank, info.world_size, info.round) == (0, 1, 0)
    with pytest.raises(ValueError, match="own"):
        registry.register("own", lambda params: OwnHandler(params))
    with pytest.raises(RuntimeError, match="other"):
        registry.create_handler(make(backend="own", claims="other"))
    with pytest.raises(ValueError, match="backend"):
        registry.register("", OwnHandler)
    with pytest.raises(TypeError, match="creator"):
        registry.register("x", 3)  # type: ignore[arg-type]


PLUGINS = """[torchrun.handlers]
plugged = plugged:creator
broken = plugged:fail
"""
PLUGGED = """
from test_rendezvous_parameters import OwnHandler
def creator(): return OwnHandler
def fail(): raise LookupError("no such network")
"""


def test_backends_of_other_packages_are_found_by_their_names(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = rendezvous.rendezvous_handler_registry
    monkeypatch.setattr(known, "_creators", dict(known._creators))
    (tmp_path / "plugged.py").write_text(PLUGGED, encoding="utf-8")
    installed = tmp_path / "plugged-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: plugged\nVersion: 1\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(PLUGINS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        assert isinstance(handler(backend="plugged"), OwnHandler)
    assert not caplog.records
    with pytest.raises(ValueError, match="'broken' is not registered"):
        handler(backend="broken")
    assert "'broken'" in caplog.text and "no such network" in caplog.text


def test_built_in_backends_are_taken() -> None:
    for backend in ("muster", "c10d", "static", "etcd", "etcd-v2"):
        with pytest.raises(ValueError, match=backend):
            rendezvous.rendezvous_handler_registry.register(backend, OwnHandler)


def test_a_python_handler_has_the_rest_by_itself() -> None:
    own = OwnHandler(make(backend="own"))
    assert own.await_event(0.01) is None
    own.late = 2
    event = own.await_event(timedelta(seconds=5))
    assert event is not None
    assert (event.kind, event.waiting) == (rendezvous.MembershipEvent.Kind.NODES_WAITING, 2)
    own.set_closed()
    event = own.await_event(1)
    assert event is not None and event.kind == rendezvous.MembershipEvent.Kind.CLOSED
    assert own.describe_wait().phase == rendezvous.WaitReport.Phase.IDLE
    assert (own.node, own.is_host) == ("of its own kind", 3)
    assert not (own.use_agent_store or own.stop_waiting())
    own.leave()
