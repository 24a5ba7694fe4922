"""Training that continues after a node is lost. On each of two nodes:

    muster run --nnodes 1:2 --rdzv-id job7 --rdzv-endpoint host0:29400 elastic_resume.py model.pt

When nodes come or go, the workers of all nodes restart with new ranks. So the script begins with
its last checkpoint, on a disk that all nodes see.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def load(file: pathlib.Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The epoch to begin with."""
    if not file.exists():
        return 0
    kept: dict[str, Any] = torch.load(file, weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    return int(kept["epoch"]) + 1


def save(
    file: pathlib.Path, epoch: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Writes the old state or the new one, never a part."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    kept = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(kept, unfinished)
    unfinished.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.2, help="what an epoch takes at least")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    first = load(options.checkpoint, model.module, optimizer)
    if rank == 0:
        print(f"{world} workers begin with epoch {first}", flush=True)

    for epoch in range(first, options.epochs):
        points = torch.randn(64, 3)
        loss = torch.nn.functional.mse_loss(model(points), points.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.seconds)  # A placeholder for more work.
        if rank == 0:
            save(options.checkpoint, epoch, model.module, optimizer)
            print(f"epoch {epoch} is done, loss {loss.item():.4f}", flush=True)
    # No worker leaves before the last checkpoint is written.
    dist.barrier()
    del model  # It uses the group, so it is destroyed first.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
