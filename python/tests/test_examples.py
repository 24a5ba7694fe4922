"""Runs the examples with the commands in their first lines."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
import servers

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)


# On a busy machine workers sometimes abort after they have trained, in PyTorch's destructors at
# exit. That is not under test here.
ABORTED = "terminate called without an active exception"


def check(status: int, printed: str) -> None:
    assert status == 0 or ABORTED in printed, printed


def finish(command: list[Any]) -> str:
    """The output of a program that ends with 0."""
    done = subprocess.run(command, text=True, capture_output=True, timeout=servers.PATIENCE_S)
    check(done.returncode, done.stdout + done.stderr)
    return done.stdout


class Node:
    """A launcher of one node, and its output."""

    def __init__(self, command: list[Any], log: pathlib.Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = servers.child([*map(str, command)], stdout=file, stderr=file)

    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def finish(self) -> str:
        try:
            status = self.process.wait(servers.PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.end()
            status = -1
        check(status, self.printed())
        return self.printed()

    def end(self) -> None:
        """Ends in order, so that none of its workers is left."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(servers.PATIENCE_S)


def test_store_only() -> None:
    printed = finish([sys.executable, EXAMPLES / "store_only.py", "3"])
    assert "met: process 0, process 1, process 2\n" in printed
    assert printed.count("one of them was first") == 1
    assert "sum: 6\n" in printed


def test_notebook_launch() -> None:
    printed = finish([sys.executable, EXAMPLES / "notebook_launch.py"])
    assert "rank 0 of 2" in printed and "rank 1 of 2" in printed
    found = re.search(r"as each rank has it: \{0: (3\.1\d*), 1: (3\.1\d*)\}", printed)
    assert found and found[1] == found[2], printed


@needs_torch
def test_ddp_under_muster_run() -> None:
    command = [servers.muster_program(), "run", "--standalone", "--nproc-per-node=2"]
    printed = finish([*command, "--python", sys.executable, EXAMPLES / "ddp.py"])
    assert "2 workers learned [1.0, -2.0, 0.5] in 50 steps" in printed


@needs_torch
def test_ddp_under_torchrun(tmp_path: pathlib.Path) -> None:
    with servers.muster_server() as port:
        command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=muster"]
        command += [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=ddp", "--nnodes=2"]
        command += ["--local-addr=127.0.0.1", str(EXAMPLES / "ddp.py")]
        nodes = [Node(command, tmp_path / f"node{index}") for index in range(2)]
        try:
            first = servers.until(
                lambda: next((node for node in nodes if node.process.poll() is not None), None),
                "the end of a node",
            )
            # torchrun waits five minutes for a failed node, to leave together with it.
            if ABORTED not in first.finish():
                for node in nodes:
                    node.finish()
        finally:
            for node in nodes:
                node.end()
    printed = "".join(node.printed() for node in nodes)
    assert "2 workers learned [1.0, -2.0, 0.5] in 50 steps" in printed


@needs_torch
def test_elastic_resume_continues_after_a_node_is_lost(tmp_path: pathlib.Path) -> None:
    with servers.muster_server() as port:
        command = [servers.muster_program(), "run", "--nnodes=1:2", "--rdzv-id=elastic"]
        command += [f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1"]
        # Both are there at once; later, one must not wait long for a second.
        command += ["--rdzv-conf=last_call_timeout=5", "--python", sys.executable]
        command += [str(EXAMPLES / "elastic_resume.py"), str(tmp_path / "model.pt")]
        command += ["--epochs=8", "--seconds=0.5"]
        nodes = [Node(command, tmp_path / f"node{index}") for index in range(2)]

        def printed() -> str:
            return "".join(node.printed() for node in nodes)

        try:
            servers.until(lambda: "epoch 2 is done" in printed(), printed)
            assert "2 workers begin with epoch 0" in printed()
            os.kill(nodes[1].process.pid, signal.SIGKILL)
            nodes[1].process.wait()
            rest = nodes[0].finish()
        finally:
            for node in nodes:
                node.end()
    resumed = re.search(r"1 workers begin with epoch (\d+)", rest)
    assert resumed, printed()
    epochs = [int(number) for number in re.findall(r"epoch (\d+) is done", printed())]
    # Every epoch was done and printed once, except one whose worker ended between both.
    assert len(epochs) == len(set(epochs)) and set(range(8)) - set(epochs) <= {int(resumed[1]) - 1}
    assert int(resumed[1]) >= 3
