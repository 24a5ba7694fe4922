#!/usr/bin/env python3
"""Measures how long a job of PyTorch needs to work again after one of its three nodes is killed.

    lab/bench/recovery.py --muster build/release/muster [--rounds 10] [--conf KEY=VALUE,...] [--launcher muster|torchrun]

Three launchers (`--nnodes 2:3`) run a job that does an all-reduce in each step, over gloo. When all of them step together, one launcher is
killed with SIGKILL. Workers write the time of each phase; those of the new world count from the kill to the first worker that reaches it:

    enter           the script of a new worker begins
    imported        it has imported torch
    process group   init_process_group() has returned
    first step      its first all-reduce with the other survivor is done: the job works again

Needs MUSTER_TORCH_PYTHON, a Python that has PyTorch. `--launcher torchrun` measures torchrun's c10d in the same way (up to two minutes
for each round). Writes recovery.json and recovery.txt into --out. Ends with status 1 if a job did not work again. Standard library only.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PHASES = {"enter": "enter", "imported": "imported", "group": "process group", "step": "first step"}
NODES, SURVIVORS = 3, 2
STEPS_TOGETHER = 20  # Of each node, before the kill: the job is well under way.
FORMED_WITHIN, BACK_WITHIN, ENDED_WITHIN = 90, 120, 40  # Seconds.

WORKER = """
import os, sys, time
told = open(sys.argv[1], "a", buffering=1)
def tell(phase):
    told.write(f"{time.time()} {phase} {os.environ['WORLD_SIZE']}\\n")
tell("enter")
import torch, torch.distributed as dist
tell("imported")
torch.set_num_threads(1)
dist.init_process_group("gloo")
tell("group")
while True:
    dist.all_reduce(torch.ones(1000))
    tell("step")
    time.sleep(0.02)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Job:
    def __init__(self, options, folder):
        self.options = options
        self.script, self.log = pathlib.Path(folder) / "worker.py", pathlib.Path(folder) / "phases"
        self.script.write_text(WORKER, encoding="ascii")
        self.log.touch()
        self.folder = pathlib.Path(folder)

    def times(self, phase, world_size, after=0.0):
        """When workers of a world of that size reached the phase."""
        rows = [line.split() for line in self.log.read_text(encoding="ascii").splitlines()]
        return [float(row[0]) for row in rows
                if len(row) == 3 and row[1] == phase and row[2] == str(world_size) and float(row[0]) > after]

    def launcher(self, port, number):
        python = os.environ["MUSTER_TORCH_PYTHON"]
        is_ours = self.options.launcher == "muster"
        head = [self.options.muster, "run", "--python", python] if is_ours else [python, "-m", "torch.distributed.run"]
        conf = ["--rdzv-conf", self.options.conf] if self.options.conf else []
        with open(self.folder / f"output-{number}", "wb") as output:
            return subprocess.Popen(
                [*head, "--nnodes", f"{SURVIVORS}:{NODES}", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-id", "recovery",
                 "--rdzv-backend", "muster" if is_ours else "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", *conf,
                 "--local-addr", "127.0.0.1", self.script, self.log],
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}, stdout=output, stderr=subprocess.STDOUT)

    def play(self):
        """Seconds from the kill to each phase; None: the job did not work again."""
        port = free_port()
        with contextlib.ExitStack() as stack:
            if self.options.launcher == "muster":
                server = subprocess.Popen([self.options.muster, "serve", "--listen", f"127.0.0.1:{port}", "--quiet"],
                                          stdout=subprocess.DEVNULL)
                stack.callback(self.end, [server])
                wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 10)
            nodes = []
            stack.callback(self.end, nodes)
            for number in range(NODES):
                nodes.append(self.launcher(port, number))
                if number == 0 and self.options.launcher == "torchrun":
                    time.sleep(1.5)  # The first one serves, and must be there.
            if not wait_for(lambda: len(self.times("step", NODES)) > NODES * STEPS_TOGETHER, FORMED_WITHIN):
                return None
            killed_at = time.time()
            nodes[-1].send_signal(signal.SIGKILL)
            if not wait_for(lambda: self.times("step", SURVIVORS, killed_at), BACK_WITHIN):
                return None
            return {phase: round(min(self.times(phase, SURVIVORS, killed_at)) - killed_at, 3) for phase in PHASES}

    @staticmethod
    def end(processes):
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(ENDED_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def render(result):
    lines = [f"one of {NODES} nodes is killed; {result['launcher']}, {result['conf'] or 'defaults'}",
             f"{'seconds after the kill':<24} {'median':>8} {'least':>8} {'most':>8}"]
    lines += [f"{PHASES[phase]:<24} {row['median']:>8.2f} {row['least']:>8.2f} {row['most']:>8.2f}"
              for phase, row in result["phases"].items()]
    lines.append(f"jobs that worked again: {len(result['rounds'])} of {result['played']}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--muster", default="build/release/muster", help="the program to measure")
    parser.add_argument("--out", default="build/compare", type=pathlib.Path, help="folder for the results")
    parser.add_argument("--rounds", default=10, type=int, help="jobs to be killed")
    parser.add_argument("--conf", default="", help="--rdzv-conf of the launchers")
    parser.add_argument("--launcher", default="muster", choices=["muster", "torchrun"])
    options = parser.parse_args()
    if not os.environ.get("MUSTER_TORCH_PYTHON"):
        print("recovery: left out, because MUSTER_TORCH_PYTHON names no Python with PyTorch")
        return 0
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="muster-recovery-") as folder:
            rounds.append(Job(options, folder).play())
    back = [one for one in rounds if one is not None]
    phases = {phase: {"median": statistics.median(one[phase] for one in back), "least": min(one[phase] for one in back),
                      "most": max(one[phase] for one in back)} for phase in PHASES if back}
    result = {"launcher": options.launcher, "conf": options.conf, "played": options.rounds, "rounds": back, "phases": phases}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "recovery.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (options.out / "recovery.txt").write_text(render(result), encoding="utf-8")
    print(render(result), end="")
    return 0 if len(back) == options.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
