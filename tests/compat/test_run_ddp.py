"""`muster run` starts training scripts of real PyTorch: DDP with Gloo, and the reports of failures."""

import json
import re

import pytest

import launchers

pytestmark = pytest.mark.muster_only


def failure_report(agent) -> dict:
    """Maps each rank to its block of the agent's report; the key "root" is the block of the root cause."""
    output = agent.output()
    assert output.count("ChildFailedError") == 1, output
    _, report = output.split("ChildFailedError")
    assert f"{launchers.TRAINING} FAILED" in report
    others, root = report.split("Root Cause (first observed failure):")
    blocks = re.split(r"(?m)^\[\d+\]:$", others)[1:]
    return {rank_of(block): block for block in blocks} | {"root": root}


def rank_of(block: str) -> int:
    return int(re.search(r"(?m)^  rank      : (\d+) \(local_rank: \d+\)$", block).group(1))


@pytest.mark.parametrize("workers, method", [(1, "env"), (4, "env"), (2, "tcp")])
def test_launch062_launch063_launch064_ddp_trains_on_one_node(job, workers, method):
    """The workers meet in the launcher's own store, through `env://` or `tcp://`."""
    agent = job.muster(
        "alone",
        "--standalone",
        f"--nproc-per-node={workers}",
        *job.training("--method", method),
    )
    job.assert_all_ended_well(agent)
    trained = job.reported("trained")
    assert sorted(printed["rank"] for printed in trained) == list(range(workers))
    assert {printed["world_size"] for printed in trained} == {workers}
    assert len({tuple(printed["weights"]) for printed in trained}) == 1
    assert all(printed["elastic"] for printed in job.reported("trains"))


def test_launch079_launch080_a_script_that_fails_in_rank_2_is_named(job):
    agent = job.muster(
        "alone", "--standalone", "--nproc-per-node=3", *job.training("--fail-rank", "2")
    )
    assert agent.ended() == 1
    assert [printed["rank"] for printed in job.reported("fails")] == [2]
    assert not job.reported("trained")
    report = failure_report(agent)
    assert report.keys() == {0, 1, "root"}, "the others fall with it"
    assert rank_of(report["root"]) == 2, agent.output()
    assert re.search(r"(?m)^  exitcode  : 1 \(pid: \d+\)$", report["root"])


def test_launch085_launch102_the_trace_of_a_recorded_failure_is_reported_and_handed_on(job):
    handed_on = job.directory / "handed on.json"
    agent = job.muster(
        "alone",
        "--standalone",
        "--nproc-per-node=3",
        *job.training("--record", "--fail-rank", "2"),
        TORCHELASTIC_ERROR_FILE=str(handed_on),
    )
    assert agent.ended() == 1
    root = failure_report(agent)["root"]
    assert rank_of(root) == 2, agent.output()
    assert "  traceback : Traceback (most recent call last):\n    File" in root
    assert "ValueError: rank 2 must fail at step 2" in root
    error_file = re.search(r"(?m)^  error_file: (\S+)$", root).group(1)
    assert error_file.endswith("/attempt_0/2/error.json")

    error = json.loads(handed_on.read_text())["message"]
    assert error["errorCode"] == 1
    assert error["message"] == "ValueError: rank 2 must fail at step 2"
    assert "training.py" in error["extraInfo"]["py_callstack"]


def test_launch085_both_nodes_report_the_recorded_failure_of_one(job):
    """Rank 2 is on the second node. The first node receives its failure with the trace."""
    agents = [
        job.muster(
            f"node{node}",
            "--nnodes=2",
            "--nproc-per-node=2",
            f"--rdzv-endpoint={job.endpoint}",
            f"--rdzv-conf=is_host={int(node == 1)}",
            f"--local-addr=127.0.0.{node}",
            *job.training("--record", "--fail-rank", "2"),
        )
        for node in (1, 2)
    ]
    assert [agent.ended() for agent in agents] == [1, 1]
    assert {printed["agent"] for printed in job.reported("fails")} == {"node2"}
    for agent in agents:
        root = failure_report(agent)["root"]
        assert rank_of(root) == 2, agent.output()
        assert "ValueError: rank 2 must fail at step 2" in root
