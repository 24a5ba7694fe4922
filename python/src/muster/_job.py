"""Runs `muster run` for launch(): finds it, shows its output, ends it in order."""

from __future__ import annotations

import codecs
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from typing import IO, TextIO

# Becomes the program that its arguments name. If the process that started it is killed, the system
# ends it: a job does not outlive a notebook whose kernel was restarted.
_ENDS_WITH_ITS_PARENT = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
# After that long, `muster run` has certainly ended its workers; then it is killed.
PATIENCE_S = 60.0


def find_program() -> str:
    """The program `muster` of this installation; MUSTER_BIN names another."""
    chosen = os.environ.get("MUSTER_BIN")
    if chosen:
        if not os.access(chosen, os.X_OK) or os.path.isdir(chosen):
            raise FileNotFoundError(f"MUSTER_BIN={chosen} is no program that can be run")
        return os.path.abspath(chosen)
    package = pathlib.Path(__file__).parent
    candidates = [
        pathlib.Path(sysconfig.get_path("scripts")),
        package.parent / "bin",  # pip install --target
        package.parent.parent.parent.parent / "bin",  # --prefix: lib/pythonX.Y/site-packages
        pathlib.Path(sysconfig.get_path("scripts", "posix_user")),
    ]
    for folder in candidates:
        if os.access(folder / "muster", os.X_OK):
            return str(folder / "muster")
    found = shutil.which("muster")
    if found is None:
        places = ", ".join(str(folder) for folder in candidates)
        raise FileNotFoundError(
            f"the program muster, which comes with this package, is not in {places}, nor on PATH; "
            "install the package again, or name the program in the variable MUSTER_BIN"
        )
    return found


class _Shown:
    """A stream of the job, passed on to one of Python's streams as whole lines."""

    def __init__(self, source: IO[bytes], target: TextIO) -> None:
        self.source = source
        self._target = target
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    def read(self) -> bool:
        """Passes on what is there. False at the end."""
        data = os.read(self.source.fileno(), 1 << 16)
        text = self._rest + self._decoder.decode(data, final=not data)
        whole, newline, self._rest = text.rpartition("\n")
        if not data:
            whole, newline, self._rest = text, "", ""
        if whole or newline:
            self._target.write(whole + newline)
            self._target.flush()
        return bool(data)


class Job:
    """`muster run` in a session of its own: Ctrl-C reaches it once, through this process."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        # If Python's streams are not the process's, as in a notebook, the output is passed on.
        pumped = [
            stream is not original or original is None
            for stream, original in ((sys.stdout, sys.__stdout__), (sys.stderr, sys.__stderr__))
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _ENDS_WITH_ITS_PARENT, str(os.getpid()), *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pumped[0] else None,
            stderr=subprocess.PIPE if pumped[1] else None,
            start_new_session=True,
        )
        self._shown: list[_Shown] = []
        if self._process.stdout is not None:
            self._shown.append(_Shown(self._process.stdout, sys.stdout))
        if self._process.stderr is not None:
            self._shown.append(_Shown(self._process.stderr, sys.stderr))

    def wait(self, timeout_s: float | None) -> int | None:
        """The status of `muster run`; None if it is still running after that time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            if not self._show(deadline):
                return None
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._process.wait(left)
        except subprocess.TimeoutExpired:
            return None

    def end(self, first: signal.Signals) -> None:
        """Signals the job to end, and waits until it has; another Ctrl-C makes it end faster."""
        number = first
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._process.send_signal(number)
                if self.wait(max(0.0, deadline - time.monotonic())) is None:
                    self._process.kill()  # Its guardian ends the workers.
                    self._process.wait()
                break
            except KeyboardInterrupt:
                number = signal.SIGTERM
        self.close()

    def close(self) -> None:
        for shown in self._shown:
            shown.source.close()

    def _show(self, deadline: float | None) -> bool:
        """Shows the job's output to its end. False if the time is over before."""
        with selectors.DefaultSelector() as selector:
            for shown in self._shown:
                if not shown.source.closed:
                    selector.register(shown.source, selectors.EVENT_READ, shown)
            while selector.get_map():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                for key, _ in selector.select(left):
                    shown = key.data
                    if not shown.read():
                        selector.unregister(shown.source)
                        shown.source.close()
        return True
