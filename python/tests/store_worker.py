"""One of several processes that form a process group on a muster store. Not a test itself.

    store_worker.py SPECIFICATION RANK WORLD_SIZE

SPECIFICATION: file:///PATH, tcp://HOST:PORT/[PREFIX], etcd://HOST:PORT/PREFIX, hash:///[PREFIX].
"""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import muster
from muster.torch import as_torch_store


def open_store(specification: str) -> muster.Store:
    kind, _, rest = specification.partition("://")
    if kind == "file":
        return muster.FileStore(rest)
    if kind == "etcd":
        return muster.EtcdStore(specification, timeout=timedelta(seconds=60))
    address, _, prefix = rest.partition("/")
    store: muster.Store
    if kind == "hash":
        store = muster.HashStore()
    else:
        host, _, port = address.partition(":")
        store = muster.TCPStore(host, int(port), timeout=timedelta(seconds=60))
    return muster.PrefixStore(prefix, store) if prefix else store


def main(specification: str, rank: int, world_size: int) -> None:
    dist.init_process_group(
        "gloo", store=as_torch_store(open_store(specification)), rank=rank, world_size=world_size
    )
    value = torch.tensor([float(rank + 1)])
    dist.all_reduce(value)
    print(value.item())
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 4, generator=generator)).square().mean().backward()
        optimizer.step()
    print([value.item() for parameter in model.parameters() for value in parameter.flatten()])
    dist.barrier()
    group = dist.new_group([*range(world_size)])
    dist.all_reduce(value, group=group)
    print(value.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
