"""Fixtures of the tests with real PyTorch and muster. README.md says how and why."""

import faulthandler
import functools
import json
import os
import pathlib
import re
import sys
import time

import pytest

# Torch warns about every timeout that the tests provoke; the import reads this once.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
# Torch looks up the name of every peer address; an unreachable name server must not cost 5 s.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
# Variables of a launcher around the tests would turn servers into clients.
for variable in (
    "TORCHELASTIC_USE_AGENT_STORE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "USE_LIBUV",
):
    os.environ.pop(variable, None)

torch_is_missing = ""
try:
    import torch
except ImportError as failure:
    torch_is_missing = str(failure)

import peers  # noqa: E402

SKIPPED_STATUS = 77  # what ctest takes for "skipped"
FAILED_STATUS = 1
HANGING_S = 180
REAL_STDERR = os.fdopen(os.dup(2), "w")  # pytest captures the original


def reference_mode() -> bool:
    """Whether PyTorch's own server takes the place of muster's. Then the tests check its behaviour."""
    return os.environ.get("MUSTER_COMPAT_SERVER", "muster") == "torch"


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "muster_differs(reason, torch_answers=PATTERN, strict=True, run=True): muster deliberately "
        "does better than PyTorch's server; with MUSTER_COMPAT_SERVER=torch the test is expected "
        "to fail with an error in which the pattern is found",
    )
    config.addinivalue_line("markers", "muster_only: does not apply to PyTorch's server")


def pytest_report_header():
    if torch_is_missing:
        return None
    server = (
        "PyTorch's (reference mode)"
        if reference_mode()
        else os.environ.get("MUSTER_BIN", "MUSTER_BIN is not set")
    )
    return f"torch {torch.__version__}; server: {server}"


def pytest_sessionstart(session):
    # Before any test file is read, because they import torch.
    if torch_is_missing:
        files = ", ".join(pathlib.Path(argument).name for argument in session.config.args)
        is_required = os.environ.get("MUSTER_REQUIRE_TORCH") == "1"
        verdict = "FAILED (MUSTER_REQUIRE_TORCH=1)" if is_required else "SKIPPED"
        pytest.exit(
            f"{verdict}: {files}: {sys.executable} cannot import torch: {torch_is_missing}",
            returncode=FAILED_STATUS if is_required else SKIPPED_STATUS,
        )


def pytest_runtest_logstart():
    # A test that hangs prints where, and ends the run; its children end with it (die_with_parent).
    faulthandler.dump_traceback_later(HANGING_S, exit=True, file=REAL_STDERR)


def pytest_sessionfinish():
    faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(items):
    if reference_mode():
        for item in items:
            expect_reference_to_differ(item)


def expect_reference_to_differ(item):
    for marker in item.iter_markers("muster_differs"):
        is_run = marker.kwargs.get("run", True)
        assert not is_run or "torch_answers" in marker.kwargs, f"{item.nodeid}: what does torch do?"
        item.add_marker(
            pytest.mark.xfail(
                reason=marker.args[0],
                strict=marker.kwargs.get("strict", True),
                run=marker.kwargs.get("run", True),
            )
        )
    if item.get_closest_marker("muster_only"):
        item.add_marker(pytest.mark.skip(reason="needs muster's server"))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    """A failure is expected only with the answer that PyTorch's server is known to give."""
    report = (yield).get_result()
    marker = item.get_closest_marker("muster_differs")
    expected = marker.kwargs.get("torch_answers") if reference_mode() and marker else None
    if expected is None or not call.excinfo or not hasattr(report, "wasxfail"):
        return  # another outcome, or the test did not run
    error = str(call.excinfo.value)
    if call.when != "call" or not re.search(expected, error):
        del report.wasxfail
        report.outcome = "failed"
        report.longrepr = f"PyTorch's server was expected to cause '{expected}', not:\n{error}"


def children() -> set[int]:
    """Pids of the living children of this process."""
    return {
        int(pid)
        for task in pathlib.Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    }


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left_behind():
    before = children()
    yield
    assert children() <= before


@pytest.fixture
def start_server(tmp_path):
    """Starts servers, each fresh, and ends all of them. muster's must then end with status 0."""
    started = []

    def start(listen: str = "127.0.0.1:0", *options: str):
        if reference_mode():
            assert listen.endswith(":0") and not options, "PyTorch's server has no such options"
            server = peers.TorchServer()
        else:
            server = peers.MusterServer(tmp_path, listen, *options)
        started.append(server)
        return server

    yield start
    failures = []
    for server in started:
        try:
            server.stop()
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, failures


@pytest.fixture
def server(start_server):
    return start_server()


@pytest.fixture
def client(server):
    """Makes torch clients of this test's server."""
    return functools.partial(peers.connect, server)


@pytest.fixture
def store(client):
    return client()


@pytest.fixture
def other(client):
    """A second client, with a connection of its own."""
    return client()


class Workers:
    """Processes that have already imported torch (workers.py)."""

    def __init__(self, directory: pathlib.Path):
        command = [sys.executable, "-B", peers.HERE / "workers.py"]
        self._child = peers.Child(command, directory / f"workers-{time.monotonic_ns()}.log")
        assert self._child.output.line(peers.IMPORT_S) == "ready", self._child.errors()

    def start(self, task: str, workers: int, **arguments) -> None:
        self._child.say(json.dumps({"task": task, "workers": workers, "arguments": arguments}))

    def outcomes(self) -> list[dict]:
        """Results of the last call: "returned" or "error" of each worker, in rank order."""
        return json.loads(self._child.output.line(patience_s=60))

    def run(self, task: str, workers: int, **arguments) -> list:
        self.start(task, workers, **arguments)
        outcomes = self.outcomes()
        errors = [outcome["error"] for outcome in outcomes if "error" in outcome]
        assert not errors, f"{errors[0]}\n{self._child.errors()}"
        return [outcome["returned"] for outcome in outcomes]

    def end(self) -> None:
        self._child.process.stdin.close()
        assert self._child.ended() == 0, self._child.errors()


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    processes = Workers(tmp_path_factory.mktemp("workers"))
    yield processes
    processes.end()


@pytest.fixture(scope="module")
def torch_nodes(tmp_path_factory):
    """Starts nodes of PyTorch's rendezvous."""
    import rendezvous_peers

    nodes = rendezvous_peers.TorchNodes(tmp_path_factory.mktemp("nodes"))
    yield nodes
    nodes.end()


@pytest.fixture(params=["muster", "torch"])
def meeting(request, tmp_path, torch_nodes):
    """A rendezvous on either server; its nodes end with the test."""
    import rendezvous_peers

    of_muster = request.param == "muster"
    server = peers.MusterServer(tmp_path) if of_muster else peers.TorchServer()
    try:
        meeting = rendezvous_peers.Meeting(server, torch_nodes, tmp_path)
        try:
            yield meeting
        finally:
            meeting.end()
    finally:
        server.stop()


@pytest.fixture
def job(tmp_path):
    """Starts agents of one job. None of its processes may outlive the test."""
    import launchers

    job = launchers.Job(tmp_path)
    yield job
    job.end()
