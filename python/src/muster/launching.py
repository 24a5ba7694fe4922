"""Elastic jobs from Python: muster.launch()."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import pickle
import re
import shlex
import signal
import sys
import sysconfig
import tempfile
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Union, cast, overload

from muster import _job

__all__ = ["LaunchError", "WorkerFailure", "launch"]

Result = TypeVar("Result")
Command = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

# Not with -m: files in the folder where the job is started must not replace our imports.
_WORKER = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "from muster import _worker; sys.exit(_worker.main(sys.argv[1]))"
)

BACKENDS = ("muster", "c10d", "static", "etcd", "etcd-v2")
WORDS_FOR_NPROC = ("auto", "cpu", "gpu", "xpu")


@dataclasses.dataclass(frozen=True)
class WorkerFailure:
    """A worker that failed."""

    rank: int
    """Among all workers of the job."""
    local_rank: int
    """On its node."""
    host: str
    pid: int
    exitcode: int
    """Its exit status; the negative number of the signal that ended it."""
    signal: str | None
    """The name of that signal, as SIGKILL; None if it ended by itself."""
    message: str
    """Its traceback; or its last lines on stderr, if that goes to a file (redirects="2")."""

    def __str__(self) -> str:
        how = f"was ended by {self.signal}" if self.signal else f"exit code {self.exitcode}"
        text = (
            f"rank {self.rank} (local rank {self.local_rank}, pid {self.pid} on {self.host}): {how}"
        )
        if self.message:
            text += "\n" + self.message.rstrip()
        return _printable(text)


def _printable(text: str) -> str:
    """Without control characters for a terminal: workers and other nodes wrote this text."""

    def shown(c: str) -> str:
        obeyed = unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        return ascii(c)[1:-1] if obeyed and c not in "\n\t" else c

    return "".join(map(shown, text))


class LaunchError(RuntimeError):
    """A job failed.

    Attributes:
        status: the exit status of `muster run`.
        root_cause: the worker that failed first in the whole job; None if no worker failed,
            for instance because the nodes did not meet.
        failures: all workers of this node that failed, and that one.
    """

    def __init__(self, text: str, status: int, failures: Sequence[WorkerFailure] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.failures = tuple(failures)
        self.root_cause = self.failures[0] if self.failures else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pools of processes pass errors on as pickles."""
        return type(self), (str(self), self.status, self.failures)


@overload
def launch(
    job: Callable[..., Result],
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    nproc_per_node: int | str = 1,
    nnodes: int | str = 1,
    rdzv_backend: str | None = None,
    rdzv_endpoint: str = "",
    rdzv_conf: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    node_rank: int | None = None,
    local_addr: str | None = None,
    max_restarts: int = 0,
    env: Mapping[str, str] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    redirects: str | None = None,
    tee: str | None = None,
    timeout: float | datetime.timedelta | None = None,
) -> dict[int, Result]: ...


@overload
def launch(
    job: Command,
    *,
    nproc_per_node: int | str = 1,
    nnodes: int | str = 1,
    rdzv_backend: str | None = None,
    rdzv_endpoint: str = "",
    rdzv_conf: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    node_rank: int | None = None,
    local_addr: str | None = None,
    max_restarts: int = 0,
    env: Mapping[str, str] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    redirects: str | None = None,
    tee: str | None = None,
    timeout: float | datetime.timedelta | None = None,
) -> None: ...


def launch(
    job: Callable[..., Any] | Command,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    nproc_per_node: int | str = 1,
    nnodes: int | str = 1,
    rdzv_backend: str | None = None,
    rdzv_endpoint: str = "",
    rdzv_conf: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    node_rank: int | None = None,
    local_addr: str | None = None,
    max_restarts: int = 0,
    env: Mapping[str, str] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    redirects: str | None = None,
    tee: str | None = None,
    timeout: float | datetime.timedelta | None = None,
) -> dict[int, Any] | None:
    """Runs this node's part of an elastic job, and returns when it is done.

    The workers are new processes. `muster run` starts, watches and restarts them, with the
    environment that torchrun would give them. Their output goes where Python's output goes. Ctrl-C
    ends the job in order, and then raises KeyboardInterrupt.

    Args:
        job: a function, called as job(*args, **kwargs) in each worker; or a command: a list such as
            ["train.py", "--epochs", "3"], or the same as one string. A command that begins with a
            file *.py is run with this Python, one that begins with "-m" is one of its modules, and
            anything else is a program. As with torchrun, ${local_rank} stands for the worker's
            local rank, and $$ for one $. Functions of a notebook, or of the running script, are
            passed with cloudpickle, others by name.
        args, kwargs: the arguments of the function.
        nproc_per_node: workers on this node: a number, "gpu", "xpu", "cpu" or "auto".
        nnodes: number of nodes, or "MIN:MAX" where they may come and go. Each calls launch().
        rdzv_backend: "muster" (the default), "c10d", "static", "etcd" or "etcd-v2".
        rdzv_endpoint: "host:port" where the nodes meet. Not needed for one node.
        rdzv_conf: options of the backend, such as {"join_timeout": 600}.
        run_id: name of the job, the same on all nodes.
        node_rank: which node this is, for the backend "static".
        local_addr: the address under which other nodes reach this one.
        max_restarts: how often this node's workers may fail and restart.
        env: variables for the workers, in addition to those of this process.
        log_dir: where logs and error files go. Without it they are removed at the end.
        redirects, tee: which streams go to files, as in `muster run`: "3" is both.
        timeout: seconds, or a timedelta, after which the job is ended.

    Returns:
        For a function, the results of this node's workers, by global rank. None for a command.

    Raises:
        LaunchError: the job failed; the text has the first worker that did, with its traceback.
        TimeoutError: the job took longer than `timeout`, and was ended.
        TypeError, ValueError: an argument is invalid; the message names it.
        FileNotFoundError: the program `muster` is not there.
    """
    options = _Options(
        nproc_per_node=_number_or(nproc_per_node, "nproc_per_node", WORDS_FOR_NPROC),
        nnodes=_nnodes(nnodes),
        backend=_one_of(rdzv_backend, "rdzv_backend", BACKENDS),
        endpoint=_text(rdzv_endpoint, "rdzv_endpoint") or "",
        conf=_mapping(rdzv_conf, "rdzv_conf"),
        run_id=_text(run_id, "run_id"),
        node_rank=None if node_rank is None else _number(node_rank, "node_rank", 0),
        local_addr=_text(local_addr, "local_addr"),
        max_restarts=_number(max_restarts, "max_restarts", 0),
        log_dir=_path(log_dir, "log_dir"),
        redirects=_text(redirects, "redirects"),
        tee=_text(tee, "tee"),
    )
    options.check()
    patience_s = _seconds(timeout, "timeout")
    environment = _environment(env)
    function = job if callable(job) else None
    if function is None:
        if args or kwargs:
            which = "args" if args else "kwargs"
            raise ValueError(
                f"{which} is for functions: put a command's arguments into the command"
            )
        command = _command(cast(Command, job))
    elif isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise TypeError(f"args must be a tuple or a list, not {type(args).__name__}")
    else:
        keywords = _mapping(kwargs, "kwargs")
    program = _job.find_program()

    # Readable only by its owner, because its content is executed.
    with tempfile.TemporaryDirectory(prefix="muster_launch_") as folder:
        if function is not None:
            file = os.path.join(folder, "job")
            _write_private(file, _pickled(function, tuple(args), keywords))
            command = ["--no-python", sys.executable, "-u", "-c", _WORKER, file]
            _make_importable(environment)
        report = os.path.join(folder, "report.json")
        arguments = [program, "run", *options.arguments(folder), "--failure-report", report]
        what = "the job" if function is None else f"{_name_of(function)}()"
        _run([*arguments, *command], environment | options.secrets(), patience_s, report, what)
        return None if function is None else _results(folder)


# --- The command line of `muster run`.


@dataclasses.dataclass(frozen=True)
class _Options:
    nproc_per_node: str
    nnodes: str
    backend: str | None
    endpoint: str
    conf: dict[str, Any]
    run_id: str | None
    node_rank: int | None
    local_addr: str | None
    max_restarts: int
    log_dir: str | None
    redirects: str | None
    tee: str | None

    def is_alone(self) -> bool:
        return self.nnodes in ("1", "1:1")

    def check(self) -> None:
        if not self.is_alone() and not self.endpoint:
            raise ValueError(
                f"rdzv_endpoint is missing: {self.nnodes} nodes have to meet somewhere; "
                'give all of them the same "host:port"'
            )
        if self.node_rank is not None and self.backend != "static":
            raise ValueError(
                'node_rank is for rdzv_backend="static": other backends number the nodes'
            )

    def arguments(self, folder: str) -> list[str]:
        found = ["--nnodes", self.nnodes, "--nproc-per-node", self.nproc_per_node]
        found += ["--max-restarts", str(self.max_restarts)]
        found += ["--log-dir", self.log_dir or os.path.join(folder, "logs")]
        if self.is_alone() and not (self.endpoint or self.backend or self.run_id):
            found.append("--standalone")
        for name, value in (
            ("--rdzv-backend", self.backend),
            ("--rdzv-endpoint", "" if self._endpoint_is_secret() else self.endpoint),
            ("--rdzv-id", self.run_id),
            ("--local-addr", self.local_addr),
            ("--redirects", self.redirects),
            ("--tee", self.tee),
        ):
            if value:
                found.append(f"{name}={value}")
        if self.node_rank is not None:
            found.append(f"--node-rank={self.node_rank}")
        shown = {k: v for k, v in self.conf.items() if k != "password"}
        if shown:
            found.append("--rdzv-conf=" + ",".join(f"{k}={v}" for k, v in shown.items()))
        return found

    def secrets(self) -> dict[str, str]:
        """Values for the environment that must not be on a command line."""
        found = {"PET_RDZV_ENDPOINT": self.endpoint} if self._endpoint_is_secret() else {}
        if "password" in self.conf:
            found["MUSTER_ETCD_PASSWORD"] = str(self.conf["password"])
        return found

    def _endpoint_is_secret(self) -> bool:
        """Whether it has "user:password@" before its hosts."""
        return re.match(r"(\w+://)?[^/@]*:[^/]*@", self.endpoint) is not None


def _command(job: Command) -> list[str]:
    if isinstance(job, str):
        words = shlex.split(job)
    elif isinstance(job, os.PathLike):
        words = [os.fspath(job)]
    elif isinstance(job, Sequence) and not isinstance(job, (bytes, bytearray)):
        for word in job:
            if not isinstance(word, (str, os.PathLike)):
                raise TypeError(f"job must be made of strings, not {type(word).__name__}: {word!r}")
        words = [os.fspath(word) for word in job]
    else:
        raise TypeError(f"job must be a function, a string or a list, not {type(job).__name__}")
    if not words:
        raise ValueError("job is an empty command")
    if words[0] == "-m":
        if len(words) == 1:
            raise ValueError('job: "-m" needs the name of a module')
        return ["--no-python", sys.executable, "-u", *words]
    if words[0].endswith(".py"):
        return ["--no-python", sys.executable, "-u", *words]
    return ["--no-python", *words]


# --- Running it.


def _run(
    command: list[str], env: dict[str, str], patience_s: float | None, report: str, what: str
) -> None:
    started = time.monotonic()
    # The error that is raised has the launcher's report, which would otherwise be shown twice.
    job = _job.Job(command, env | {"MUSTER_CALLER_REPORTS": "1"})
    try:
        status = job.wait(patience_s)
    except BaseException as interruption:
        job.end(signal.SIGINT if isinstance(interruption, KeyboardInterrupt) else signal.SIGTERM)
        raise
    if status is None:
        job.end(signal.SIGTERM)
        raise TimeoutError(
            f"the job was ended after {time.monotonic() - started:.1f} s: "
            f"timeout was {patience_s:g} s"
        )
    job.close()
    if status != 0:
        raise _error(status, pathlib.Path(report), what)


def _error(status: int, report: pathlib.Path, what: str) -> LaunchError:
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    try:
        told = json.loads(report.read_text(encoding="utf-8"))
        first = _failure(told["root_cause"])
        others = [_failure(entry) for entry in told["failures"]]
    except (OSError, ValueError, KeyError, TypeError):
        return LaunchError(f"muster run {how}; its messages are on stderr", status)
    if first.pid == 0:  # No worker was started.
        return LaunchError(f"{what} failed: {_printable(first.message)}", status)
    failures = [first, *(entry for entry in others if entry != first)]
    text = f"{what} failed; first, {first}"
    if len(failures) > 1:
        ranks = ", ".join(str(entry.rank) for entry in failures[1:])
        text += f"\n(after it, on this node: rank {ranks})"
    return LaunchError(text, status, failures)


def _failure(entry: Mapping[str, Any]) -> WorkerFailure:
    name = entry.get("signal")
    message = entry["message"] if entry["error_file"] else entry["output"] or entry["message"]
    return WorkerFailure(
        rank=int(entry["rank"]),
        local_rank=int(entry["local_rank"]),
        host=str(entry["host"]),
        pid=int(entry["pid"]),
        exitcode=int(entry["exitcode"]),
        signal=None if name is None else str(name),
        message=str(message),
    )


def _results(folder: str) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for file in pathlib.Path(folder).glob("result.*"):  # The names are those of _worker.py.
        if file.suffix != ".new":
            rank, value = pickle.loads(file.read_bytes())
            found[rank] = value
    return dict(sorted(found.items()))


# --- Sending a function to its workers.


def _pickled(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    name = _name_of(function)
    try:
        import cloudpickle
    except ImportError:
        if not _is_importable(function):
            raise ImportError(
                f"launch() needs cloudpickle to carry {name}, a function of "
                f"{getattr(function, '__module__', 'this script')}, to its workers: "
                "pip install cloudpickle, or move the function to a module of its own"
            ) from None
        dumps = pickle.dumps
    else:
        dumps = cloudpickle.dumps
    try:
        call = dumps((function, args, kwargs))
    except Exception as failure:
        raise TypeError(f"job: {name} or its arguments cannot be pickled: {failure}") from failure
    return pickle.dumps({"path": [*sys.path], "call": call})


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _is_importable(function: Callable[..., Any]) -> bool:
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    if found is None or found.__name__ == "__main__":
        return False
    for part in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is function


def _write_private(file: str, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)


def _make_importable(env: dict[str, str]) -> None:
    """The workers must find this package, wherever this process imported it from."""
    place = str(pathlib.Path(__file__).parent.parent)
    if place not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        known = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
        if place not in known:
            env["PYTHONPATH"] = os.pathsep.join([*known, place])


# --- Arguments. Errors name the wrong one.


def _number(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value


def _number_or(value: object, name: str, words: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        return str(_number(value, name, 1))
    if value not in words and not re.fullmatch(r"0*[1-9][0-9]*", value):
        allowed = ", ".join(repr(word) for word in words)
        raise ValueError(f"{name} must be a number from 1, or one of {allowed}, not {value!r}")
    return value


def _nnodes(value: object) -> str:
    if not isinstance(value, str):
        return str(_number(value, "nnodes", 1))
    match = re.fullmatch(r"([0-9]+)(?::([0-9]+))?", value)
    least = int(match[1]) if match else 0
    most = int(match[2] or match[1]) if match else 0
    if least < 1 or most < least:
        raise ValueError(f'nnodes must be a number from 1, or "MIN:MAX", not {value!r}')
    return value


def _text(value: object, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return value


def _one_of(value: object, name: str, allowed: tuple[str, ...]) -> str | None:
    text = _text(value, name)
    if text is not None and text not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"{name} must be one of {choices}, not {text!r}")
    return text


def _path(value: object, name: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {type(value).__name__}")
    return os.path.abspath(os.fspath(value))


def _mapping(value: object, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, not {type(value).__name__}")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{name} must have str as keys, not {type(key).__name__}: {key!r}")
    return dict(value)


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    # Variables that would change the meaning of our own arguments are removed.
    found = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    for name, value in _mapping(env, "env").items():
        if not isinstance(value, str):
            raise TypeError(f"env[{name!r}] must be a str, not {type(value).__name__}")
        found[name] = value
    return found


def _seconds(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(
            f"{name} must be a datetime.timedelta or a number of seconds, "
            f"not {type(value).__name__}"
        )
    if not value > 0:
        raise ValueError(f"{name} must be more than 0 s, not {value:g} s")
    return float(value)
