"""Processes that share values through a store. No PyTorch, no launcher.

python store_only.py [PROCESSES]
"""

from __future__ import annotations

import datetime
import multiprocessing
import sys

import muster


def work(rank: int, size: int, port: int) -> None:
    """The work of each process; all of them are clients of one server."""
    store = muster.TCPStore("127.0.0.1", port, timeout=datetime.timedelta(seconds=60))
    mine = muster.PrefixStore("example", store)  # Other keys are separate from these.

    mine.set(f"name/{rank}", f"process {rank}")
    mine.wait([f"name/{other}" for other in range(size)])  # Wait until all are here.
    if rank == 0:
        names = [mine.get(f"name/{other}").decode() for other in range(size)]
        print("met:", ", ".join(names), flush=True)

    mine.add("sum", rank + 1)
    if mine.compare_set("first", "", str(rank)) == str(rank).encode():
        print("one of them was first", flush=True)  # Exactly one.
    if mine.add("done", 1) == size:
        mine.set("all done", "")
    mine.wait(["all done"])
    if rank == 0:
        print("sum:", mine.add("sum", 0), flush=True)


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    # On a free port, for this machine only. PyTorch's TCPStores could be its clients, too.
    server = muster.StoreServer("127.0.0.1")
    # A fork of the process that opened a store cannot use it: start new processes.
    processes = [
        multiprocessing.get_context("spawn").Process(target=work, args=(rank, size, server.port))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


if __name__ == "__main__":
    main()
