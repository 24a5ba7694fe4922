"""Processes that never outlive this one."""

import contextlib
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def start(command, **options):
    """The kernel kills it when this process dies. To be called on the main thread: it is that thread's death that
    counts.

    In a session of its own: Ctrl-C is for the harness, which then ends the others in order.
    """
    options = {"stdin": subprocess.DEVNULL, "cwd": ROOT, "start_new_session": True, **options}
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], **options)


def end(process):
    """Gone when this returns, with its pipes."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()


def forget_clock(pid):
    """What libfaketime leaves of a process that was killed."""
    for kind in ("faketime_shm_", "sem.faketime_sem_"):
        with contextlib.suppress(OSError):
            os.unlink(f"/dev/shm/{kind}{pid}")
