"""muster.launch(): jobs from Python, with real processes."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading
from typing import Any

import pytest
import servers

import muster

# One write, so that the output of several workers is not mixed.
SCRIPT = """
import os, sys
sys.stdout.write("rank {RANK} of {WORLD_SIZE}".format(**os.environ)
                 + f" has {sys.argv[1:]} {sys.executable}\\n")
"""


@pytest.fixture(autouse=True)
def folder_for_temporary_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder for each test, which must be empty at its end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    assert [*folder.iterdir()] == []


# --- Functions for workers. Functions of a module are passed by name.


def times_rank(number: int, plus: int = 0) -> int:
    return number * int(os.environ["RANK"]) + plus


def fail_on_rank_1(how: str) -> int:
    if os.environ["RANK"] == "1":
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leaves":
            sys.exit(7)
        raise ValueError(f"rank 1 has a {how}")
    return 0


def fail_the_first_time() -> str:
    count = os.environ["TORCHELASTIC_RESTART_COUNT"]
    if count == "0" and os.environ["RANK"] == "0":
        raise RuntimeError("the first attempt")
    return f"attempt {count}"


def see_own_files() -> tuple[int, int]:
    job = pathlib.Path(sys.argv[1])
    return stat.S_IMODE(job.stat().st_mode), stat.S_IMODE(job.parent.stat().st_mode)


def return_a_lock() -> Any:
    return threading.Lock()


# --- Commands.


def test_commands_are_lists_strings_modules_and_programs(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train me.py"
    script.write_text(SCRIPT)
    assert muster.launch([script, "--epochs", "3"], nproc_per_node=2) is None
    printed = capfd.readouterr().out
    assert "rank 0 of 2" in printed and "rank 1 of 2" in printed
    assert f"['--epochs', '3'] {sys.executable}" in printed
    muster.launch(f"'{script}' 'a b'")
    assert "['a b']" in capfd.readouterr().out
    muster.launch("-m this")
    assert "Zen of Python" in capfd.readouterr().out
    muster.launch(["sh", "-c", "echo $ROLE_NAME $EXTRA"], env={"EXTRA": "ours"})
    assert "default ours" in capfd.readouterr().out


def test_what_workers_print_goes_where_python_prints(capfd: pytest.CaptureFixture[str]) -> None:
    notebook, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(notebook), contextlib.redirect_stderr(errors):
        muster.launch(["sh", "-c", "echo Grüße; printf unfinished; echo oops >&2"])
    assert notebook.getvalue() == "Grüße\nunfinished"
    assert "oops\n" in errors.getvalue()
    assert capfd.readouterr() == ("", "")


def test_a_command_that_fails_is_reported_with_its_last_lines() -> None:
    with pytest.raises(muster.LaunchError, match="exit code 3") as raised:
        muster.launch(["sh", "-c", "echo no such data >&2; exit 3"], redirects="2")
    assert raised.value.status == 1
    assert raised.value.root_cause is not None and raised.value.root_cause.exitcode == 3
    assert "no such data" in str(raised.value)


# --- Functions.


def test_functions_return_their_values_by_rank() -> None:
    assert muster.launch(times_rank, args=(7,), nproc_per_node=3) == {0: 0, 1: 7, 2: 14}
    assert muster.launch(times_rank, args=[7], kwargs={"plus": 1}) == {0: 1}


def test_functions_of_the_script_that_runs_travel_by_value(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(
        "import muster, os\n"
        "factor = 3\n"
        "class Answer:\n"
        "    def __init__(self, value): self.value = value\n"
        "def work(number):\n"
        "    return Answer(factor * number + int(os.environ['RANK']))\n"
        "answers = muster.launch(work, args=(5,), nproc_per_node=2)\n"
        "print({rank: answer.value for rank, answer in answers.items()})\n"
    )
    done = subprocess.run([sys.executable, script], text=True, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "{0: 15, 1: 16}\n"), done.stderr


def test_without_cloudpickle_functions_of_modules_still_travel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)  # type: ignore[arg-type]
    assert muster.launch(times_rank, args=(7,)) == {0: 0}
    with pytest.raises(ImportError, match="pip install cloudpickle"):
        muster.launch(lambda: 1)


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(TypeError, match="job: times_rank or its arguments cannot be pickled"):
        muster.launch(times_rank, args=(threading.Lock(),))
    with pytest.raises(muster.LaunchError, match="lock that the function returned on rank 0"):
        muster.launch(return_a_lock)


def test_only_their_owner_can_read_the_files_of_a_job() -> None:
    assert muster.launch(see_own_files) == {0: (0o600, 0o700)}


@pytest.mark.parametrize(
    ("how", "reported", "exitcode", "signal_name"),
    [
        ("problem", "ValueError: rank 1 has a problem", 1, None),
        ("killed", "was ended by SIGKILL", -9, "SIGKILL"),
        ("leaves", "exit code 7", 7, None),
    ],
)
def test_a_worker_that_fails_is_named_with_its_traceback(
    how: str, reported: str, exitcode: int, signal_name: str | None
) -> None:
    with pytest.raises(muster.LaunchError) as raised:
        muster.launch(fail_on_rank_1, args=(how,), nproc_per_node=2)
    cause = raised.value.root_cause
    assert cause is not None and (cause.rank, cause.local_rank) == (1, 1)
    assert (cause.exitcode, cause.signal) == (exitcode, signal_name)
    assert "rank 1" in str(raised.value) and reported in str(raised.value)
    if how == "problem":
        assert "in fail_on_rank_1" in str(raised.value)
        assert "_worker.py" not in str(raised.value)


def test_an_error_appears_once_and_is_headed_by_the_function() -> None:
    shown, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(errors),
        pytest.raises(muster.LaunchError) as raised,
    ):
        muster.launch(fail_on_rank_1, args=("problem",), nproc_per_node=2)
    assert str(raised.value).startswith("fail_on_rank_1() failed; first, rank 1 ")
    assert str(raised.value).count("rank 1 has a problem") == 1
    assert "has a problem" not in shown.getvalue() + errors.getvalue()


def test_failed_workers_are_started_again() -> None:
    done = muster.launch(fail_the_first_time, nproc_per_node=2, max_restarts=1)
    assert done == {0: "attempt 1", 1: "attempt 1"}


def test_logs_are_kept_where_requested(tmp_path: pathlib.Path) -> None:
    muster.launch(["echo", "kept"], log_dir=tmp_path / "logs", redirects="3", run_id="kept")
    logs = [*(tmp_path / "logs").glob("kept_*/attempt_0/0/stdout.log")]
    assert [log.read_text() for log in logs] == ["kept\n"]


# --- Nodes, threads, time and Ctrl-C.


def test_two_nodes_meet_from_two_threads() -> None:
    with servers.muster_server() as port:
        answers: dict[int, int] = {}

        def node() -> None:
            answers.update(
                muster.launch(
                    times_rank,
                    args=(10,),
                    nnodes="2",
                    nproc_per_node=2,
                    rdzv_endpoint=f"127.0.0.1:{port}",
                    local_addr="127.0.0.1",
                    run_id="threads",
                    rdzv_conf={"join_timeout": 90},
                )
            )

        threads = [threading.Thread(target=node) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(servers.PATIENCE_S)
        assert answers == {0: 0, 1: 10, 2: 20, 3: 30}


def test_nodes_that_do_not_meet_are_an_error() -> None:
    with servers.muster_server() as port, pytest.raises(muster.LaunchError) as raised:
        muster.launch(
            ["true"],
            nnodes=2,
            rdzv_endpoint=f"127.0.0.1:{port}",
            local_addr="127.0.0.1",
            rdzv_conf={"join_timeout": 1},
        )
    assert raised.value.root_cause is None and raised.value.status == 1
    assert "1 of 2 nodes are here" in str(raised.value)


@pytest.mark.parametrize("timeout", [1.5, datetime.timedelta(seconds=1.5)])
def test_a_job_that_takes_too_long_is_ended(timeout: Any, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pid"
    with pytest.raises(TimeoutError, match=r"timeout was 1\.5 s"):
        muster.launch(["sh", "-c", f"echo $$$$ > {file}; exec sleep 600"], timeout=timeout)
    if file.exists() and file.read_text():
        assert not is_running(int(file.read_text()))


def is_running(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def caller_with_a_job(tmp_path: pathlib.Path) -> tuple[subprocess.Popen[str], int]:
    """A process that has called launch(), and its worker."""
    file = tmp_path / "pid"
    script = (
        "import muster, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n"
        f"    muster.launch(['sh', '-c', 'echo $$$$ > {file}.new; mv {file}.new {file};'\n"
        "                   ' exec sleep 600'])\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        servers.until(file.exists, "the worker is there")
    except AssertionError:
        caller.send_signal(signal.SIGINT)
        caller.communicate()
        raise
    return caller, int(file.read_text())


def test_ctrl_c_ends_the_job_and_then_interrupts(tmp_path: pathlib.Path) -> None:
    caller, worker = caller_with_a_job(tmp_path)
    caller.send_signal(signal.SIGINT)
    printed, _ = caller.communicate(timeout=servers.PATIENCE_S)
    assert (printed, caller.returncode) == ("interrupted\n", 0)
    assert not is_running(worker)


def test_a_job_does_not_outlive_its_caller(
    tmp_path: pathlib.Path, folder_for_temporary_files: pathlib.Path
) -> None:
    caller, worker = caller_with_a_job(tmp_path)
    caller.kill()
    caller.communicate(timeout=servers.PATIENCE_S)
    servers.until(lambda: not is_running(worker), "the worker is gone")
    # No process was left to remove these; the job itself may still be writing there.
    servers.until(
        lambda: subprocess.call(["rm", "-rf", *folder_for_temporary_files.iterdir()]) == 0, "gone"
    )


# --- Arguments.


@pytest.mark.parametrize(
    ("job", "options", "error", "reported"),
    [
        (3, {}, TypeError, "job must be a function, a string or a list, not int"),
        (["a", 3], {}, TypeError, "job must be made of strings, not int: 3"),
        ([], {}, ValueError, "job is an empty command"),
        (["-m"], {}, ValueError, 'job: "-m" needs the name of a module'),
        ("true", {"args": (1,)}, ValueError, "args is for functions"),
        ("true", {"kwargs": {"a": 1}}, ValueError, "kwargs is for functions"),
        (times_rank, {"args": "abc"}, TypeError, "args must be a tuple or a list, not str"),
        (times_rank, {"kwargs": [1]}, TypeError, "kwargs must be a dict, not list"),
        (times_rank, {"kwargs": {1: 1}}, TypeError, "kwargs must have str as keys, not int: 1"),
        ("true", {"nproc_per_node": 0}, ValueError, "nproc_per_node must be at least 1, not 0"),
        ("true", {"nproc_per_node": "all"}, ValueError, "nproc_per_node must be a number from 1"),
        ("true", {"nproc_per_node": 1.5}, TypeError, "nproc_per_node must be an int, not float"),
        ("true", {"nproc_per_node": True}, TypeError, "nproc_per_node must be an int, not bool"),
        ("true", {"nnodes": "2:1"}, ValueError, "nnodes must be a number from 1, or"),
        ("true", {"nnodes": 2}, ValueError, "rdzv_endpoint is missing"),
        ("true", {"rdzv_backend": "zookeeper"}, ValueError, "rdzv_backend must be one of 'muster'"),
        ("true", {"rdzv_endpoint": 29500}, TypeError, "rdzv_endpoint must be a str, not int"),
        ("true", {"rdzv_conf": "a=b"}, TypeError, "rdzv_conf must be a dict, not str"),
        ("true", {"run_id": 7}, TypeError, "run_id must be a str, not int"),
        ("true", {"node_rank": 0}, ValueError, 'node_rank is for rdzv_backend="static"'),
        ("true", {"max_restarts": -1}, ValueError, "max_restarts must be at least 0, not -1"),
        ("true", {"env": {"A": 1}}, TypeError, r"env\['A'\] must be a str, not int"),
        ("true", {"log_dir": 3}, TypeError, "log_dir must be a path, not int"),
        ("true", {"timeout": "1"}, TypeError, "timeout must be a datetime.timedelta or a number"),
        ("true", {"timeout": 0}, ValueError, "timeout must be more than 0 s"),
    ],
)
def test_invalid_arguments_are_named(
    job: Any, options: dict[str, Any], error: type[Exception], reported: str
) -> None:
    with pytest.raises(error, match=reported):
        muster.launch(job, **options)


def test_a_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_BIN", "/nowhere/muster")
    with pytest.raises(FileNotFoundError, match="MUSTER_BIN=/nowhere/muster is no program"):
        muster.launch("true")


def test_the_program_is_found_without_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_BIN", raising=False)
    assert muster.launch(times_rank, args=(1,)) == {0: 0}
