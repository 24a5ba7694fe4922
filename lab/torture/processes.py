"""Processes that never outlive this one."""

import contextlib
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def start(command, **options):
    """Starts a process that the kernel kills when this one dies. Call it on the main thread: the death of the calling
    thread counts.

    The process has a session of its own: Ctrl-C reaches only the harness, which then ends the others in order.
    """
    options = {"stdin": subprocess.DEVNULL, "cwd": ROOT, "start_new_session": True, **options}
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], **options)


def end(process):
    """When this returns the process is gone, and its pipes are closed."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()


def forget_clock(pid):
    """Removes what libfaketime leaves behind of a process that was killed."""
    for kind in ("faketime_shm_", "sem.faketime_sem_"):
        with contextlib.suppress(OSError):
            os.unlink(f"/dev/shm/{kind}{pid}")
