"""N of PyTorch's rendezvous handlers in one process, all starting at once: `torch_rendezvous.py HOST:PORT N SECONDS`.

Ends after so many seconds in any case. Prints one JSON object like those of `muster-lab bench rendezvous`.
lab/bench/rendezvous.py runs it with a Python that can import torch.
"""

import json
import os
import sys
import threading
import time
import uuid

from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler


class CountingBackend:
    """Counts the calls of the handler to its backend."""

    def __init__(self, backend):
        self.backend = backend
        self.reads = self.writes = self.lost = 0

    @property
    def name(self):
        return self.backend.name

    def get_state(self):
        self.reads += 1
        return self.backend.get_state()

    def set_state(self, state, token=None):
        self.writes += 1
        result = self.backend.set_state(state, token)
        self.lost += result is None or not result[2]
        return result


def main():
    endpoint, count, patience = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    run_id = f"bench-torch-{uuid.uuid4()}"
    nodes = []
    for _ in range(count):
        parameters = RendezvousParameters("c10d", endpoint, run_id, count, count, local_addr="127.0.0.1",
                                          is_host=False)
        backend, store = create_backend(parameters)
        counting = CountingBackend(backend)
        nodes.append((counting, create_handler(store, counting, parameters)))
    start = threading.Barrier(count + 1)
    ranks = []

    def join(handler):
        start.wait()
        ranks.append(handler.next_rendezvous().rank)

    threads = [threading.Thread(target=join, args=(handler,), daemon=True) for _, handler in nodes]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join(max(0.0, began + patience - time.monotonic()))
    finished = not any(thread.is_alive() for thread in threads)
    seconds = time.monotonic() - began
    totals = {name: sum(getattr(backend, name) for backend, _ in nodes) for name in ("writes", "lost", "reads")}
    result = {"nodes": count, "seconds": round(seconds, 4),
              **{f"{name}_per_node": round(total / count, 2) for name, total in totals.items()},
              "finished": finished, "errors": int(finished and sorted(ranks) != list(range(count)))}
    print(json.dumps(result), flush=True)
    # Threads of the handlers are still running, and nothing waits for them.
    os._exit(0)


if __name__ == "__main__":
    main()
