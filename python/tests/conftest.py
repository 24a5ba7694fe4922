"""Shared by all tests: none hangs without printing where, none leaves a process behind."""

from __future__ import annotations

import faulthandler
import os
import pathlib
import time
from collections.abc import Iterator

import pytest

# Torch warns about every timeout that the tests provoke; the import reads this once.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
# Torch looks up the name of every peer address; an unreachable name server must not cost 5 s.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
# Leaks of the native module, when Python ends: some tests look for the report.
os.environ["MUSTER_TELL_LEAKS"] = "1"
# Variables of a launcher around the tests.
for _variable in [*os.environ]:
    if _variable.startswith(("TORCHELASTIC_", "PET_")) or _variable in (
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "USE_LIBUV",
    ):
        del os.environ[_variable]

HANGING_S = 240
REAL_STDERR = os.fdopen(os.dup(2), "w")  # pytest captures the original.


def pytest_runtest_logstart() -> None:
    faulthandler.dump_traceback_later(HANGING_S, exit=True, file=REAL_STDERR)


def pytest_sessionfinish() -> None:
    faulthandler.cancel_dump_traceback_later()


def children() -> set[int]:
    """Children of this process that still exist, zombies included."""
    found: set[int] = set()
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            found.update(int(pid) for pid in (task / "children").read_text().split())
        except FileNotFoundError:
            continue  # The thread has just ended.
    return found


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    before = children()
    yield
    deadline = time.monotonic() + 30
    while not children() <= before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children() <= before
