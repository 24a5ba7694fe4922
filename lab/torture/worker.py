"""A worker of a job under attack, as a program. It reports itself in one line, and works until it is ended. If the file
FINISH exists, it ends with status 0.

    python3 -I -S lab/torture/worker.py FINISH [WORD...]

Words: `deaf` ignores SIGTERM; `parent` starts a process that leaves its session, ignores SIGTERM, and never ends by
itself.
"""

import json
import os
import signal
import sys
import time

LOOK_S = 0.1
NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_PORT",
           "TORCHELASTIC_RESTART_COUNT")


def leave_a_child():
    if os.fork():
        return
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # otherwise readers of our output would wait for its end
        os.dup2(nowhere, stream)
    os.execvp("sleep", ["sleep", "100000"])


def main(finish, *words):
    if "deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "parent" in words:
        leave_a_child()
    account = {name.lower(): int(os.environ[name]) for name in NUMBERS}
    account |= {"event": "worker", "pid": os.getpid(), "master_addr": os.environ["MASTER_ADDR"]}
    os.write(1, (json.dumps(account) + "\n").encode())  # one write: many workers write to this stream
    while not os.path.exists(finish):
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
