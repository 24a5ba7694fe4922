"""Trains a small model under torchrun until the file `stop` is there, and writes what it does.

    elastic_worker.py FOLDER [hang]

Lines of JSON in FOLDER/PID.jsonl. With `hang`, a worker whose collective fails waits to be ended,
as with a backend that does not notice it; otherwise it fails. Not a test itself.
"""

from __future__ import annotations

import time

BEGAN = time.time()  # before torch is imported, which takes longer than anything else

import json  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import sys  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1])
HANGS = sys.argv[2:] == ["hang"]


def tell(event: str, **more: object) -> None:
    line = {"event": event, "agent": os.getppid(), "time": time.time(), **more}
    with (FOLDER / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def train() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    is_over = torch.zeros(1)
    step = 0
    while not is_over.item():
        data = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), data.sum(1, keepdim=True)).backward()
        optimizer.step()
        step += 1
        if step == 1:
            tell("training", rank=rank, world=world, began=BEGAN)
        if rank == 0:
            is_over[0] = float((FOLDER / "stop").exists())
        dist.broadcast(is_over, 0)
        time.sleep(0.02)
    weights = [value.item() for parameter in model.parameters() for value in parameter.flatten()]
    tell("done", rank=rank, world=world, step=step, weights=weights)
    dist.destroy_process_group()


try:
    train()
except RuntimeError as error:
    tell("failed", why=str(error))
    if not HANGS:
        raise
    time.sleep(3600)
