"""A training script as users write them: PyTorch's DDP with Gloo, started by a launcher.

Trains a tiny model on data that differs for each rank and step. At the end it checks that all ranks have the same
weights, and that one process would have found the same. Events are lines of JSON, appended to the file --account.
Options make it fail, or train longer.

It does not use muster, and of the tests only the variable that names the agent.
"""

import argparse
import json
import os
import pathlib
import sys
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

FEATURES = 4
LEARNING_RATE = 0.05
STEP_S = 0.01  # the minimum time of a step: training must leave the machine to the launchers
KEY_OF_ATTEMPT_0 = "written by attempt 0"
VALUES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--account", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--until", type=pathlib.Path, help="train on until this file exists")
    parser.add_argument("--method", choices=["env", "tcp"], default="env")
    parser.add_argument("--fail-rank", type=int, default=-1)
    parser.add_argument("--fail-step", type=int, default=2)
    parser.add_argument("--fail-attempt", type=int, default=0, help="only in this one")
    parser.add_argument("--leave-key", action="store_true", help="and fail, in attempt 0")
    parser.add_argument("--record", action="store_true")
    return parser.parse_args()


class Account:
    """One line is one write to the end of the file, so other workers' lines do not tear it."""

    def __init__(self, path: pathlib.Path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._about_us = {
            "agent": os.environ.get("MUSTER_TEST_AGENT", ""),
            "pid": os.getpid(),
            "attempt": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
            **{name.lower(): int(os.environ[name]) for name in VALUES},
        }

    def tell(self, event: str, **more) -> None:
        line = json.dumps({"event": event, **self._about_us, **more})
        os.write(self._file, f"{line}\n".encode())


def join_the_others(method: str) -> None:
    if method == "env":
        dist.init_process_group("gloo")
        return
    environment = os.environ
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}",
        rank=int(environment["RANK"]),
        world_size=int(environment["WORLD_SIZE"]),
    )


def new_model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Linear(FEATURES, 1)


def loss_of(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(8, FEATURES, generator=generator)
    wanted = inputs.sum(dim=1, keepdim=True)
    return torch.nn.functional.mse_loss(model(inputs), wanted)


def improve(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def weights_of(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def found_alone(world_size: int, steps: int) -> torch.Tensor:
    """The weights that one process finds with the data of all ranks."""
    model = new_model(seed=0)  # DDP begins with rank 0's
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(steps):
        losses = [loss_of(model, rank, step) for rank in range(world_size)]
        improve(optimizer, sum(losses) / world_size)
    return weights_of(model)


def check_weights(model: torch.nn.Module, steps: int) -> list[float]:
    mine = weights_of(model)
    everybodys = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, mine)
    for rank, weights in enumerate(everybodys):
        assert torch.equal(weights, mine), f"rank {rank} has {weights}, this one has {mine}"
    alone = found_alone(dist.get_world_size(), steps)
    torch.testing.assert_close(mine, alone, rtol=1e-4, atol=1e-5)
    return mine.tolist()


def has_ended(step: int, wanted: argparse.Namespace) -> bool:
    """All ranks receive rank 0's decision."""
    ended = wanted.until.exists() if wanted.until else step == wanted.steps
    reported = torch.tensor([int(ended)])
    dist.broadcast(reported, 0)
    return bool(reported.item())


def is_to_fail(rank: int, step: int, wanted: argparse.Namespace) -> bool:
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    now = (rank, step, attempt)
    return now == (wanted.fail_rank, wanted.fail_step, wanted.fail_attempt)


def leave_or_look_for_key(account: Account) -> None:
    """The default store of the process group: attempt 1 must not find what attempt 0 wrote."""
    store = dist.distributed_c10d._get_default_store()
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        store.set(KEY_OF_ATTEMPT_0, "a value")
        assert store.check([KEY_OF_ATTEMPT_0])
        account.tell("left the key")
        raise RuntimeError("attempt 0 must fail")
    account.tell("looked for the key", found=store.check([KEY_OF_ATTEMPT_0]))


def train() -> None:
    wanted = options()
    account = Account(wanted.account)
    torch.set_num_threads(1)
    join_the_others(wanted.method)
    rank = dist.get_rank()
    if wanted.leave_key:
        leave_or_look_for_key(account)
    model = DistributedDataParallel(new_model(seed=rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    step = 0
    while not has_ended(step, wanted):
        if is_to_fail(rank, step, wanted):
            account.tell("fails")
            raise ValueError(f"rank {rank} must fail at step {step}")
        improve(optimizer, loss_of(model, rank, step))
        step += 1
        if step == 1:
            account.tell("trains", elastic=dist.is_torchelastic_launched())
        time.sleep(STEP_S)
    account.tell("trained", steps=step, weights=check_weights(model, step))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    # On a busy machine some ranks aborted ("terminate called without an active exception") after they had trained, or
    # failed, probably in PyTorch's destructors at exit. That is not under test here.
    status = 1
    try:
        (record(train) if "--record" in sys.argv else train)()
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
