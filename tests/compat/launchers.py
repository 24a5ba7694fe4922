"""Agents of one job, muster's and torchrun's. Each is a process that stands for a node."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

from peers import HERE, PATIENCE_S, die_with_parent, eventually, required

sys.path.append(str(HERE.parent / "e2e"))
from ports import free_port  # noqa: E402

# Workers import torch, several at once on few cores, as does each agent of torchrun.
JOB_S = 120.0
TRAINING = HERE / "training.py"


class Agent:
    """One launcher, in a process of its own."""

    def __init__(self, name: str, command: list, log: pathlib.Path, environment: dict):
        self.name = name
        self.log = log
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        """The output of the launcher and its workers."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: it can send no message."""
        self._process.kill()
        self._process.wait()

    def ended(self, patience_s: float = JOB_S) -> int:
        """The exit status, once it has ended by itself."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"agent {self.name} has not ended within {patience_s:g} s:\n{self.output()}"
            ) from None

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Job:
    """The agents of one test, and the account that their workers write."""

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        self.account_file = directory / "account"
        self.endpoint = f"127.0.0.1:{free_port()}"
        self._mark = f"MUSTER_TEST_JOB={uuid.uuid4()}"
        self._agents: list[Agent] = []

    # --- its agents

    def muster(self, name: str, *words, **environment: str) -> Agent:
        """`muster run` with these arguments."""
        command = [required("MUSTER_BIN"), "run", f"--python={sys.executable}", *words]
        return self._start(name, command, environment)

    def torchrun(self, name: str, *words, **environment: str) -> Agent:
        return self._start(
            name, [sys.executable, "-B", "-m", "torch.distributed.run", *words], environment
        )

    def _start(self, name: str, command: list, environment: dict) -> Agent:
        mark, value = self._mark.split("=")
        inherited = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.directory),  # for logs without --log-dir
            "MUSTER_TEST_AGENT": name,
            mark: value,
        }
        log = self.directory / f"agent-{name}-{len(self._agents)}.log"
        agent = Agent(name, command, log, {**inherited, **environment})
        self._agents.append(agent)
        return agent

    def training(self, *options) -> list:
        """The arguments after the launcher's own: the training script."""
        return [TRAINING, "--account", self.account_file, *options]

    # --- events

    def reported(self, event: str) -> list[dict]:
        """The account's lines about the event, the oldest first."""
        if not self.account_file.exists():
            return []
        lines = self.account_file.read_text().splitlines(keepends=True)
        all_reported = [json.loads(line) for line in lines if line.endswith("\n")]
        return [printed for printed in all_reported if printed["event"] == event]

    def output_of(self, name: str) -> str:
        (agent,) = [agent for agent in self._agents if agent.name == name]
        return agent.output()

    def outputs(self) -> str:
        return "\n".join(f"--- {agent.log.name}\n{agent.output()}" for agent in self._agents)

    def until(self, condition, what: str, patience_s: float = JOB_S):
        try:
            return eventually(condition, what, patience_s)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self.outputs()}") from None

    def until_training_with(self, agents: set[str]) -> list[dict]:
        """Waits for a round of these agents in which all workers have made a step together. Returns its lines."""

        def together():
            last = {
                (printed["agent"], printed["local_rank"]): printed
                for printed in self.reported("trains")
                if printed["agent"] in agents
            }
            printed = list(last.values())
            all_ranks = sorted(line["rank"] for line in printed) == list(range(len(printed)))
            is_one_round = {line["world_size"] for line in printed} == {len(printed)}
            is_whole = {line["agent"] for line in printed} == agents
            return printed if all_ranks and is_one_round and is_whole else []

        return self.until(together, f"the workers of {sorted(agents)} train together")

    def assert_all_ended_well(self, *agents: Agent) -> None:
        statuses = {agent.name: agent.ended() for agent in agents}
        assert set(statuses.values()) == {0}, f"{statuses}\n{self.outputs()}"

    # --- the end

    def processes(self) -> list[int]:
        """Pids of all processes with this job's mark: agents, workers and their children."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:  # it has ended, or belongs to another user
                continue
            if self._mark.encode() in environment.split(b"\0"):
                found.append(int(entry.name))
        return found

    def end(self) -> None:
        """No process may be left; any that are left are ended."""
        for agent in self._agents:
            agent.end()
        left = self._left()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert not left, f"still there after their agents: {left}\n{self.outputs()}"

    def _left(self) -> list[int]:
        give_up = time.monotonic() + PATIENCE_S
        while (left := self.processes()) and time.monotonic() < give_up:
            time.sleep(0.01)
        return left
