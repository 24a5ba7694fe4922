"""Torch processes on demand: imports torch once, then forks workers that run one task each.

Reads a JSON request in each line, {"task": NAME, "workers": N, "arguments": {...}}. Answers each with one line: a list
of what the workers have "returned", or their "error", in rank order. Tasks are functions below; each gets its rank
first. Importing torch takes seconds, a fork milliseconds.
"""

import json
import os
import signal
import sys
import time
import traceback

import torch
import torch.distributed as dist

import peers

DEADLINE_S = 45.0


def client(port: int, **options) -> dist.TCPStore:
    options.setdefault("wait_for_workers", False)
    return dist.TCPStore("127.0.0.1", port, timeout=peers.ms(30_000), **options)


def add_many(rank: int, port: int, key: str, times: int) -> int:
    """Increments a shared key repeatedly; returns the last sum that this worker saw."""
    store = client(port)
    return [store.add(key, 1) for _ in range(times)][-1]


def add_to_file(rank: int, path: str, key: str, times: int, world_size: int) -> int:
    store = dist.FileStore(path, world_size)
    return [store.add(key, 1) for _ in range(times)][-1]


def append_to_file(rank: int, path: str, key: str, times: int, world_size: int) -> int:
    """Appends records that no other worker writes, so that lost and torn ones are recognised."""
    store = dist.FileStore(path, world_size)
    for number in range(times):
        store.append(key, f"<{rank}:{number}>")
    return times


def park_until_killed(rank: int, port: int, ready: str, never: str) -> None:
    """Waits for a key that does not come; killed by the deadline or by its parent."""
    store = client(port)
    store.set(f"{ready}/{rank}", str(os.getpid()))
    store.wait([never], peers.ms(300_000))


def meet(rank: int, port: int, world_size: int) -> list[str]:
    """Each worker sets a key of its own and waits for all; returns what it read."""
    store = client(port, world_size=world_size, wait_for_workers=True)
    store.set(f"rank/{rank}", f"here-{rank}")
    keys = [f"rank/{other}" for other in range(world_size)]
    store.wait(keys, peers.ms(30_000))
    store.barrier("met", world_size)
    return [value.decode() for value in store.multi_get(keys)]


def process_group(rank: int, world_size: int, port: int, how: str) -> list[float]:
    """A Gloo process group whose store is the server on `port`; returns the results of its collectives."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    options: dict = {"rank": rank, "world_size": world_size, "timeout": peers.ms(30_000)}
    if how in ("tcp", "env"):
        # As torchrun does for its workers: the store is there, and rank 0 must not start one.
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = str(port)
        options["init_method"] = f"tcp://127.0.0.1:{port}" if how == "tcp" else "env://"
    elif how == "store":
        options["store"] = client(port)
    elif how == "prefix":
        options["store"] = dist.PrefixStore("outer", dist.PrefixStore("job", client(port)))
    elif how == "clone":
        options["store"] = client(port).clone()
    else:
        raise ValueError(how)
    dist.init_process_group("gloo", **options)
    tensor = torch.tensor([float(rank + 1), 10.0 * rank])
    dist.all_reduce(tensor)
    gathered = [torch.zeros(1) for _ in range(world_size)]
    dist.all_gather(gathered, torch.tensor([float(rank)]))
    half = dist.new_group(
        list(range(world_size // 2))
    )  # a second group: more traffic through the store
    if rank < world_size // 2:
        dist.all_reduce(tensor.clone(), group=half)
    dist.barrier()
    dist.destroy_process_group()
    return tensor.tolist() + [float(item) for item in gathered]


def run_worker(task: str, rank: int, arguments: dict, pipe: int) -> None:
    """The life of a forked worker. It must not return into the loop that it was forked from."""
    peers.die_with_parent()
    status = 1
    try:
        outcome = {"returned": globals()[task](rank, **arguments)}
        status = 0
    except BaseException:  # the parent reports it
        outcome = {"error": traceback.format_exc()}
    with os.fdopen(pipe, "w") as out:
        json.dump(outcome, out)
    os._exit(status)


def start_worker(task: str, rank: int, arguments: dict) -> tuple[int, int]:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        run_worker(task, rank, arguments, theirs)
    os.close(theirs)
    return pid, ours


def finish_worker(pid: int, pipe: int, give_up: float) -> dict:
    """The worker's result. A worker that is still running when the time is up is killed."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > give_up:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(pipe) as printed:
        text = printed.read()
    return (
        json.loads(text)
        if text
        else {"error": f"ended with status {os.waitstatus_to_exitcode(status)}"}
    )


def main() -> None:
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        workers = [
            start_worker(request["task"], rank, request["arguments"])
            for rank in range(request["workers"])
        ]
        give_up = time.monotonic() + DEADLINE_S
        print(json.dumps([finish_worker(*worker, give_up) for worker in workers]), flush=True)


if __name__ == "__main__":
    main()
