"""The same modules and names as torch's rendezvous, with the same arguments."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

pytest.importorskip("torch.distributed")

from muster import rendezvous  # noqa: E402

THEIRS = "torch.distributed.elastic.rendezvous"
# Names of each module that are documented, but not all in its __all__.
DOCUMENTED = {
    "": {"RendezvousHandler"},
    "api": {"RendezvousError"},
    "dynamic_rendezvous": {"Token", "RendezvousSettings"},
    "registry": {"get_rendezvous_handler"},
    "c10d_rendezvous_backend": {"C10dRendezvousBackend", "create_backend", "DEFAULT_PORT"},
    "static_tcp_rendezvous": {"StaticTCPRendezvous"},
    "utils": {"parse_rendezvous_endpoint", "_parse_rendezvous_config"},
}
CLASSES = {
    "api": (
        "RendezvousHandler",
        "RendezvousHandlerRegistry",
        "RendezvousInfo",
        "RendezvousParameters",
        "RendezvousStoreInfo",
    ),
    "dynamic_rendezvous": ("RendezvousBackend", "RendezvousTimeout", "RendezvousSettings"),
    "c10d_rendezvous_backend": ("C10dRendezvousBackend",),
    "static_tcp_rendezvous": ("StaticTCPRendezvous",),
}
FUNCTIONS = {
    "api": (
        "RendezvousParameters",
        "RendezvousParameters.get",
        "RendezvousParameters.get_as_bool",
        "RendezvousParameters.get_as_int",
        "RendezvousInfo",
        "RendezvousStoreInfo.build",
        "RendezvousHandlerRegistry.register",
        "RendezvousHandlerRegistry.create_handler",
    ),
    "dynamic_rendezvous": (
        "RendezvousTimeout",
        "RendezvousSettings",
        "DynamicRendezvousHandler.from_backend",
        "RendezvousBackend.set_state",
        "create_handler",
    ),
    "registry": ("get_rendezvous_handler",),
    "c10d_rendezvous_backend": (
        "C10dRendezvousBackend",
        "C10dRendezvousBackend.set_state",
        "create_backend",
    ),
    "static_tcp_rendezvous": ("StaticTCPRendezvous", "create_rdzv_handler"),
    "utils": ("parse_rendezvous_endpoint", "_parse_rendezvous_config"),
}


def both(module: str) -> tuple[object, object]:
    end = f".{module}" if module else ""
    return importlib.import_module(THEIRS + end), importlib.import_module("muster.rendezvous" + end)


@pytest.mark.parametrize("module", DOCUMENTED)
def test_a_module_has_the_names(module: str) -> None:
    theirs, ours = both(module)
    wanted = DOCUMENTED[module] | set(getattr(theirs, "__all__", ()))
    assert all(hasattr(theirs, name) for name in wanted)
    assert {name for name in wanted if not hasattr(ours, name)} == set()
    assert set(getattr(theirs, "__all__", ())) <= set(ours.__all__)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in CLASSES.items() for name in names]
)
def test_a_class_has_the_members(module: str, name: str) -> None:
    def public(thing: object) -> set[str]:
        return {each for each in dir(thing) if not each.startswith("_")}

    theirs, ours = (getattr(each, name) for each in both(module))
    assert public(theirs) - public(ours) == set()
    assert getattr(rendezvous, name) is ours


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in FUNCTIONS.items() for name in names]
)
def test_a_function_takes_the_arguments(module: str, name: str) -> None:
    """The order and the defaults are torch's; muster may add arguments that have defaults."""

    def arguments(thing: object) -> list[inspect.Parameter]:
        for part in name.split("."):
            thing = getattr(thing, part)
        return list(inspect.signature(thing).parameters.values())  # type: ignore[arg-type]

    theirs, ours = (arguments(each) for each in both(module))
    for their, our in zip(theirs, ours):
        assert (our.name, our.kind) == (their.name, their.kind)
        # muster gives local_addr a default: build(rank, store) is enough.
        assert our.default == their.default or their.name == "local_addr"
    assert len(ours) >= len(theirs)
    further = ours[len(theirs) :]
    assert all(each.default is not each.empty for each in further)


def test_what_a_handler_reserves_is_what_torchs_does() -> None:
    theirs, ours = both("api")
    reserved = {
        name
        for name, member in vars(ours.RendezvousHandler).items()  # type: ignore[attr-defined]
        if isinstance(member, property)
    }
    assert reserved == {"use_agent_store", "active_backend"}
    for name in theirs.RendezvousHandler.__abstractmethods__:  # type: ignore[attr-defined]
        their = inspect.signature(getattr(theirs.RendezvousHandler, name))  # type: ignore[attr-defined]
        our = inspect.signature(getattr(ours.RendezvousHandler, name))  # type: ignore[attr-defined]
        assert list(our.parameters) == list(their.parameters), name


# --- Errors ---------------------------------------------------------------------------------------

CATCHING = """
{first}
{second}
from torch.distributed.elastic.rendezvous import api
from muster import rendezvous
for name in rendezvous.__all__:
    ours, theirs = getattr(rendezvous, name), getattr(api, name, None)
    if not (name.endswith("Error") and theirs):
        continue
    for caught in (theirs, api.RendezvousError, ours, rendezvous.RendezvousError):
        try:
            raise ours("of its own")
        except caught as error:
            assert str(error) == "of its own" and type(error) is ours
    assert not issubclass(ours, (RuntimeError, muster.DistError))
store = muster.TCPStore("127.0.0.1", 0, is_master=True)
parameters = rendezvous.RendezvousParameters(
    "muster", "127.0.0.1:%d" % store.port, "run", 2, 2, "127.0.0.1", is_host=False, join_timeout=1)
try:
    rendezvous.get_rendezvous_handler(parameters).next_rendezvous()
except api.RendezvousTimeoutError as error:
    print("caught")
"""


@pytest.mark.parametrize("order", [1, -1], ids=["muster first", "torch first"])
def test_code_that_catches_torchs_errors_catches_ours(order: int) -> None:
    first, second = ["import muster", "import torch.distributed"][::order]
    done = subprocess.run(
        [sys.executable, "-c", CATCHING.format(first=first, second=second)],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.returncode, done.stdout) == (0, "caught\n"), done.stderr
