"""A worker of a job that is struck, as a program: says who it is, in one line, and works on until it is ended, or the
file FINISH is there: then it ends well.

    python3 -I -S lab/torture/worker.py FINISH [WORD...]

Words: `deaf` to SIGTERM; `parent` of a process that leaves its session, is as deaf, and never ends by itself.
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
    for stream in range(3):  # no process may wait for the end of our output because of it
        os.dup2(nowhere, stream)
    os.execvp("sleep", ["sleep", "100000"])


def main(finish, *words):
    if "deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "parent" in words:
        leave_a_child()
    account = {name.lower(): int(os.environ[name]) for name in NUMBERS}
    account |= {"event": "worker", "pid": os.getpid(), "master_addr": os.environ["MASTER_ADDR"]}
    os.write(1, (json.dumps(account) + "\n").encode())  # one write: many workers write there
    while not os.path.exists(finish):
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
