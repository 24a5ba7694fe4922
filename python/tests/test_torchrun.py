"""Unmodified torchrun with --rdzv-backend=muster: agents form, train, lose one, admit another."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

from servers import PATIENCE_S, child, etcd_server, free_port, muster_server, until  # noqa: E402

WORKER = str(pathlib.Path(__file__).with_name("elastic_worker.py"))


class Agent:
    """torchrun, in a process group of its own."""

    def __init__(self, job: Job, number: int) -> None:
        self.log_file = job.folder / f"agent{number}.log"
        environment = {
            **os.environ,
            "LOGLEVEL": "INFO",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        with self.log_file.open("wb") as log:
            self.process = child(
                [sys.executable, "-m", "torch.distributed.run", *job.options, WORKER, *job.words],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def workers(self) -> list[int]:
        """torchrun starts each worker in a session of its own."""
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def kill(self) -> None:
        """With all its processes, as when the machine fails."""
        for pid in [self.pid, *self.workers()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")


class Job:
    """Agents of one run, and the reports of their workers."""

    def __init__(self, folder: pathlib.Path, endpoint: str, max_restarts: int, *words: str) -> None:
        self.folder = folder
        self.words = [str(folder), *words]
        self.options = [
            *("--rdzv-backend=muster", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={folder.name}"),
            *("--nnodes=2:4", "--nproc-per-node=1", f"--max-restarts={max_restarts}"),
            "--rdzv-conf=last_call_timeout=1,keep_alive_interval=0.5",
            "--local-addr=127.0.0.1",
        ]
        self.agents: list[Agent] = []

    def start(self) -> Agent:
        self.agents.append(Agent(self, len(self.agents)))
        return self.agents[-1]

    def reported(self, event: str) -> list[dict[str, Any]]:
        lines = []
        for file in self.folder.glob("*.jsonl"):
            for line in file.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    lines.append(json.loads(line))
        return [line for line in lines if line["event"] == event]

    def trains_together(self, since: float, *agents: Agent) -> list[dict[str, Any]]:
        """Once exactly these train in one world that began after `since`."""
        pids = {agent.pid for agent in agents}

        def look() -> list[dict[str, Any]]:
            for agent in agents:
                assert agent.process.poll() is None, self.story()
            found = [
                line
                for line in self.reported("training")
                if line["world"] == len(agents) and line["began"] > since and line["agent"] in pids
            ]
            return found if {line["agent"] for line in found} == pids else []

        return until(look, self.story)

    def story(self) -> str:
        logs = [f"--- agent {n}\n{agent.log()[-3000:]}" for n, agent in enumerate(self.agents)]
        workers = [f"--- {file.name}\n{file.read_text()}" for file in self.folder.glob("*.jsonl")]
        return "\n".join(["", *workers, *logs])

    def finish(self, *agents: Agent) -> None:
        (self.folder / "stop").touch()
        for agent in agents:
            try:
                status = agent.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"agent {agent.pid} does not end:{self.story()}") from None
            assert status == 0, self.story()
        done = [line for line in self.reported("done") if line["world"] == len(agents)]
        assert len(done) == len(agents), self.story()
        assert all(line["weights"] == done[0]["weights"] for line in done)


@pytest.fixture
def make_job(tmp_path: pathlib.Path) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def make(*arguments: Any) -> Job:
        jobs.append(Job(tmp_path, *arguments))
        return jobs[-1]

    yield make
    for job in jobs:
        for agent in job.agents:
            agent.end()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def shrink_and_grow(job: Job, a: Agent, b: Agent, victim: Agent) -> None:
    job.trains_together(0, a, b, victim)
    killed = time.time()
    victim.kill()
    lines = job.trains_together(killed, a, b)
    ended = time.time()
    # The workers' own reports, from the file of each: when the round was formed, and when they
    # trained.
    formed = max(line["began"] for line in lines) - killed
    trained = max(line["time"] for line in lines) - killed
    print(f"\nafter a kill: new workers in {formed:.2f} s, training in {trained:.2f} s")
    newcomer = job.start()
    lines = job.trains_together(ended, a, b, newcomer)
    grown = max(line["time"] for line in lines) - ended
    print(f"a newcomer: training with it {grown:.2f} s after its process was started")
    job.finish(a, b, newcomer)


# A worker whose collective fails would fail and count as a restart; one that hangs does not.
def test_a_job_with_muster_serve(make_job: Callable[..., Job]) -> None:
    with muster_server() as port:
        job = make_job(f"127.0.0.1:{port}", 0, "hang")
        shrink_and_grow(job, job.start(), job.start(), job.start())


def test_a_job_that_its_first_node_hosts(make_job: Callable[..., Job]) -> None:
    port = free_port()
    job = make_job(f"127.0.0.1:{port}", 0, "hang")
    host = job.start()
    until(lambda: answers(port), job.story)
    shrink_and_grow(job, host, job.start(), job.start())


def test_a_job_in_etcd(make_job: Callable[..., Job]) -> None:
    with etcd_server() as endpoint:
        job = make_job(endpoint, 0, "hang")
        shrink_and_grow(job, job.start(), job.start(), job.start())


def test_a_job_whose_workers_fail_with_the_lost_ones(make_job: Callable[..., Job]) -> None:
    with muster_server() as port:
        job = make_job(f"127.0.0.1:{port}", 10)
        shrink_and_grow(job, job.start(), job.start(), job.start())


def test_an_agent_that_is_signalled_lets_the_others_continue(
    make_job: Callable[..., Job],
) -> None:
    with muster_server() as port:
        job = make_job(f"127.0.0.1:{port}", 0, "hang")
        a, b, leaver = job.start(), job.start(), job.start()
        job.trains_together(0, a, b, leaver)
        asked = time.time()
        leaver.process.send_signal(signal.SIGTERM)
        leaver.process.wait(PATIENCE_S)
        job.trains_together(asked, a, b)
        job.finish(a, b)


def test_an_agent_that_waits_for_others_reacts_to_ctrl_c(make_job: Callable[..., Job]) -> None:
    with muster_server() as port:
        job = make_job(f"127.0.0.1:{port}", 0)
        agent = job.start()
        until(lambda: "Rendezvous'ing worker group" in agent.log(), job.story)
        time.sleep(0.3)  # it may or may not be waiting by now
        agent.process.send_signal(signal.SIGINT)
        agent.process.wait(20)
        assert "KeyboardInterrupt" in agent.log()


# torchrun installs its own signal handlers when its first workers start.
def test_an_agent_that_waits_for_others_ends_on_a_signal(make_job: Callable[..., Job]) -> None:
    with muster_server() as port:
        job = make_job(f"127.0.0.1:{port}", 0, "hang")
        agent, victim = job.start(), job.start()
        job.trains_together(0, agent, victim)
        victim.kill()
        until(lambda: agent.log().count("Rendezvous'ing worker group") == 2, job.story)
        time.sleep(0.3)
        agent.process.send_signal(signal.SIGTERM)
        agent.process.wait(20)
        assert "SignalException" in agent.log(), job.story()


def test_the_benchmark_of_formation_measures_both(tmp_path: pathlib.Path) -> None:
    bench = pathlib.Path(__file__).parents[1] / "bench" / "formation.py"
    figures = tmp_path / "figures.json"
    words = ["--handlers", "16", "--repetitions", "3", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, str(bench), *words], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    # The ratio is left to the benchmark: it depends on the machine's other work.
    (formed,) = json.loads(figures.read_text())["formation"]
    assert formed["handlers"] == 16 and formed["ratio"] > 0, formed
