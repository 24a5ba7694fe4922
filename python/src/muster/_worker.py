"""The program of a worker of muster.launch(): main(FILE).

FILE lies in a folder that only its owner can read; a process that could write there could run
anything.
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import stat
import sys
import time
import traceback
from types import TracebackType
from typing import Any


def result_file(job_file: str, local_rank: str) -> pathlib.Path:
    """The file for the result of a worker's function. launching.py reads it."""
    return pathlib.Path(job_file).parent / f"result.{local_rank}"


def _record(failure: BaseException, shown: TracebackType | None) -> bool:
    """Writes the error to the launcher's error file, in the form of PyTorch's `record`."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return False
    trace = "".join(traceback.format_exception(type(failure), failure, shown))
    message = {
        "message": f"{type(failure).__name__}: {failure}",
        "extraInfo": {"py_callstack": trace, "timestamp": str(int(time.time()))},
    }
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"message": message}, file)
    except OSError as also:
        print(f"muster: the error could not be recorded in {path}: {also}", file=sys.stderr)
        return False
    return True


def _is_reported() -> bool:
    """Whether launch() raises what was recorded: after a restart it does not. A log has it too."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    is_last = restarts == os.environ.get("TORCHELASTIC_MAX_RESTARTS")
    return is_last and not stat.S_ISREG(os.fstat(2).st_mode)


def _dump(value: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(value)
    dumped: bytes = cloudpickle.dumps(value)
    return dumped


def _keep(value: Any, file: pathlib.Path) -> None:
    rank = int(os.environ["RANK"])
    try:
        data = _dump((rank, value))
    except Exception as failure:
        raise TypeError(
            f"the {type(value).__name__} that the function returned on rank {rank} cannot be "
            f"pickled, so launch() cannot return it: {failure}"
        ) from failure
    unfinished = file.with_name(file.name + ".new")
    unfinished.write_bytes(data)
    unfinished.replace(file)


def main(job_file: str) -> int:
    """Runs the function of the file. Returns the exit status of the worker."""
    kept = result_file(job_file, os.environ["LOCAL_RANK"])
    kept.unlink(missing_ok=True)  # From the last attempt, perhaps with another rank.
    try:
        with open(job_file, "rb") as file:
            job = pickle.load(file)
        sys.path[:] = job["path"]
        function, args, kwargs = pickle.loads(job["call"])
        try:
            value = function(*args, **kwargs)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise
            value = None
        _keep(value, kept)
    except SystemExit:
        raise
    except BaseException as failure:
        # Without this frame, which means nothing to the user.
        shown = failure.__traceback__.tb_next if failure.__traceback__ else None
        shown = shown or failure.__traceback__
        if not (_record(failure, shown) and _is_reported()):
            traceback.print_exception(type(failure), failure, shown)
        return 1
    return 0
