"""Data-parallel training that any of the launchers starts, one process for each worker:

    muster run --standalone --nproc-per-node 2 ddp.py
    torchrun --rdzv-backend=muster --rdzv-endpoint=host0:29400 --nnodes=2 --nproc-per-node=2 ddp.py

The script uses only PyTorch; muster is the launcher or the rendezvous.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    steps = parser.parse_args().steps

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # Each worker sees other data; the model is the same on all.
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = torch.tensor([[1.0], [-2.0], [0.5]])

    for _ in range(steps):
        points = torch.randn(64, 3)
        loss = torch.nn.functional.mse_loss(model(points), points @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    weights = [round(weight, 1) for weight in model.module.weight.flatten().tolist()]
    if rank == 0:
        print(f"{world} workers learned {weights} in {steps} steps, loss {loss.item():.4f}")
    dist.barrier()
    del model  # It uses the group, so it is destroyed first.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
