"""How long torchrun's handlers take to form a round: the plug-in `muster` compared with torch's own
c10d.

    python bench/formation.py [--handlers 16 64] [--repetitions 5] [--json FILE]

Every handler is in a process of its own, as under torchrun, and is made through torch's registry. A
server of the backend's kind runs in one more process. All handlers are constructed first. The time
begins when they are released together, and ends when the last of them has its RendezvousInfo. Both
backends take turns in the same run, under the same load.

Processes are forked from one that has torch loaded: otherwise the disk would be measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import select
import signal
import statistics
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

import muster

ADDRESS = "127.0.0.1"
PATIENCE_S = 300.0
BACKENDS = ("c10d", "muster")
REPORT = struct.Struct("dii")  # When it had its place, by the machine's clock; rank; world size.


class Child:
    """A fork that runs `work` and reports through a pipe."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self.reader)
                work(writer)
                status = 0
            except BaseException:  # noqa: BLE001 - or the fork would go on as its parent
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(writer)

    def receive(self, size: int) -> bytes:
        ready, _, _ = select.select([self.reader], [], [], PATIENCE_S)
        found = os.read(self.reader, size) if ready else b""
        if len(found) != size:
            raise SystemExit("formation: a process of the benchmark has failed; see above")
        return found

    def end(self, is_asked: bool = True) -> None:
        if not is_asked:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.reader)
        os.waitpid(self.pid, 0)


def serve(backend: str) -> tuple[Child, int]:
    def work(writer: int) -> None:
        server: Any
        if backend == "c10d":
            server = dist.TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
        else:
            server = muster.StoreServer(host=ADDRESS, port=0)
        os.write(writer, struct.pack("i", server.port))
        signal.pause()

    child = Child(work)
    return child, struct.unpack("i", child.receive(4))[0]


def form(backend: str, port: int, count: int, run_id: str) -> float:
    """Seconds."""
    gate, opens = os.pipe()
    leave, leaves = os.pipe()

    def node(writer: int) -> None:
        os.close(opens)
        os.close(leaves)
        options = {"is_host": False, "timeout": 900}
        handler = get_rendezvous_handler(
            RendezvousParameters(
                backend, f"{ADDRESS}:{port}", run_id, count, count, ADDRESS, **options
            )
        )
        os.write(writer, b"!")
        os.read(gate, 1)  # until its pipe is closed
        info = handler.next_rendezvous()
        os.write(writer, REPORT.pack(time.monotonic(), info.rank, info.world_size))
        os.read(leave, 1)

    nodes = [Child(node) for _ in range(count)]
    is_done = False
    try:
        for each in nodes:
            each.receive(1)
        released = time.monotonic()
        os.close(opens)
        reports = [REPORT.unpack(each.receive(REPORT.size)) for each in nodes]
        os.close(leaves)
        is_done = True
    finally:
        for each in nodes:
            each.end(is_asked=is_done)
    os.close(gate)
    os.close(leave)
    ranks = sorted(rank for _, rank, _ in reports)
    if ranks != [*range(count)] or {size for _, _, size in reports} != {count}:
        raise SystemExit(f"formation: {backend} has not formed one round of {count}: {reports}")
    return max(when for when, _, _ in reports) - released


def measure(counts: list[int], repetitions: int) -> list[dict[str, Any]]:
    rows = []
    for count in counts:
        times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
        for repetition in range(repetitions):
            for backend in BACKENDS:
                server, port = serve(backend)
                try:
                    times[backend].append(form(backend, port, count, f"{count}-{repetition}"))
                finally:  # otherwise it would outlive this process
                    server.end(is_asked=False)
        c10d, ours = (statistics.median(times[backend]) for backend in BACKENDS)
        rows.append({"handlers": count, "seconds": times, "ratio": c10d / ours})
        for backend in BACKENDS:
            found = times[backend]
            print(
                f"{count:>8}  {backend:<8}{statistics.median(found) * 1e3:>10.1f}"
                f"{min(found) * 1e3:>10.1f}{max(found) * 1e3:>10.1f}"
                + (f"{rows[-1]['ratio']:>9.1f} x" if backend == "muster" else ""),
                flush=True,
            )
    return rows


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("--handlers", type=int, nargs="+", default=[16, 64], metavar="N")
    words.add_argument("--repetitions", type=int, default=5, metavar="N")
    words.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures there")
    options = words.parse_args()
    gc.freeze()  # forks share the imported modules
    print(f"{'handlers':>8}  {'backend':<8}{'median ms':>10}{'min ms':>10}{'max ms':>10}   faster")
    rows = measure(options.handlers, options.repetitions)
    if options.json:
        about = {"torch": torch.__version__, "cpus": os.cpu_count()}
        options.json.write_text(json.dumps({**about, "formation": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
