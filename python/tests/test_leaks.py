"""No resource grows over 10,000 calls of each kind on a store, or over 10,000 rendezvous.

Each scenario runs in a process of its own (this file, as a program), which counts its resources
after a warm-up and at the end. Bounds, from the warm-up to the end:

* threads and descriptors: none more;
* blocks of Python's allocator: 200 more, of thousands of calls; an object lost per call would be
  thousands. Interned strings and caches take a few, late.
* memory: 1 MiB, which is 128 bytes for each of 8,000 calls: a value, a connection or a handler that
  is lost in each of them is more. Pages that are touched late were seen to take 270 KiB.
* at the end, nanobind reports no objects that are left.

MUSTER_LEAK_RENDEZVOUS is the number of rendezvous (10,000, which take 20 s).
"""

from __future__ import annotations

import gc
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

CALLS = 10_000
WARM_UP = 2_000
RENDEZVOUS = int(os.environ.get("MUSTER_LEAK_RENDEZVOUS", "10000"))
BLOCKS_MAX = 200
BYTES_MAX = 1 << 20


def fewest(folder: str) -> int:
    """The number of entries. The server notices a client's end later than the client: the smallest
    number counts."""
    looks = []
    for _ in range(25):
        looks.append(len(os.listdir(folder)))
        time.sleep(0.02)
    return min(looks)


def held() -> dict[str, int]:
    """The resources of this process."""
    gc.collect()
    pages = pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return {
        "bytes": int(pages) * os.sysconf("SC_PAGE_SIZE"),
        "blocks": sys.getallocatedblocks(),
        "threads": fewest("/proc/self/task"),
        "descriptors": fewest("/proc/self/fd"),
    }


def use_store(store: Any, number: int) -> None:
    """Every kind of call, with keys that come and go."""
    key = f"key/{number}"
    store.set(key, b"x" * 100)
    assert store.get(key) == b"x" * 100
    assert store.compare_set(key, b"x" * 100, "y") == b"y"
    assert store.add("counter", 1) == number + 1
    store.queue_push("queue", key)
    assert store.queue_pop("queue") == key.encode()
    assert store.check([key])
    store.wait([key])
    assert store.delete_key(key)


def measure(call: Callable[[int], None], count: int, warm_up: int) -> None:
    for number in range(warm_up):
        call(number)
    before = held()
    for number in range(warm_up, count):
        call(number)
    print(json.dumps({"before": before, "after": held(), "calls": count - warm_up}))


def scenario(name: str) -> None:
    import muster
    from muster import rendezvous

    if name == "hash_store":
        own = muster.HashStore()
        measure(lambda number: use_store(own, number), CALLS, WARM_UP)
        return
    # Runs that are over are forgotten soon: remembering them is not a leak.
    with muster.StoreServer("127.0.0.1", threads=1, run_kept_max=0.05) as server:
        if name == "tcp_store":
            store = muster.TCPStore("127.0.0.1", server.port)
            measure(lambda number: use_store(store, number), CALLS, WARM_UP)
        elif name == "connections":

            def connect(number: int) -> None:
                client = muster.TCPStore("127.0.0.1", server.port)
                muster.PrefixStore("connections", client).set("key", str(number))

            measure(connect, 2_000, 500)
        elif name == "rendezvous":

            def meet(number: int) -> None:
                handler = rendezvous.get_rendezvous_handler(
                    rendezvous.RendezvousParameters(
                        "muster",
                        f"127.0.0.1:{server.port}",
                        f"run-{number}",
                        min_nodes=1,
                        max_nodes=1,
                        local_addr="127.0.0.1",
                        is_host=False,
                    )
                )
                info = handler.next_rendezvous()
                assert (info.rank, info.world_size) == (0, 1)
                info.store.set("key", "value")
                info.store.delete_key("key")  # Otherwise it would stay in the server.
                assert handler.shutdown()

            measure(meet, RENDEZVOUS, max(200, RENDEZVOUS // 5))


def check(name: str) -> None:
    done = subprocess.run(
        [sys.executable, __file__, name], text=True, capture_output=True, timeout=1200
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    reported = json.loads(done.stdout)
    before, after = reported["before"], reported["after"]
    grown = {what: after[what] - before[what] for what in before}
    print(f"{name}: over {reported['calls']} calls, from {before}: {grown}")
    assert grown["threads"] <= 0, reported
    assert grown["descriptors"] <= 0, reported
    assert grown["blocks"] <= BLOCKS_MAX, reported
    assert grown["bytes"] <= BYTES_MAX, reported


def test_calls_of_a_tcp_store_leave_nothing() -> None:
    check("tcp_store")


def test_calls_of_a_hash_store_leave_nothing() -> None:
    check("hash_store")


def test_stores_that_come_and_go_leave_nothing() -> None:
    check("connections")


def test_rendezvous_leave_nothing() -> None:
    check("rendezvous")


if __name__ == "__main__":
    assert threading.active_count() == 1
    scenario(sys.argv[1])
