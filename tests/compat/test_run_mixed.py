"""One job, two launchers: nodes of `muster run` and of torchrun train together, whichever serves the store, and give
their workers the same environment."""

import json
import pathlib

import peers
import pytest

pytestmark = pytest.mark.muster_only

LAUNCHERS = ("muster", "torchrun")
ENVIRONMENT = peers.HERE / "environment.py"

# These depend on chance: the kernel's choice, and a random name.
BY_CHANCE = {"TORCHELASTIC_ERROR_FILE", "MASTER_PORT"}
# muster recognises the processes of its workers by this variable.
OF_MUSTER = {"MUSTER_AGENT"}


def other(launcher: str) -> str:
    return LAUNCHERS[1 - LAUNCHERS.index(launcher)]


def start(job, launcher: str, *words):
    return {"muster": job.muster, "torchrun": job.torchrun}[launcher](launcher, *words)


def start_both(job, host: str, first: str, *words) -> list:
    """With c10d: `host` serves the rendezvous. The order of addresses makes `first` node 0, which serves the workers'
    store. With the default id muster's nodes add the names of their scripts to what they publish."""
    return [
        start(
            job,
            launcher,
            "--nnodes=2",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={job.endpoint}",
            f"--rdzv-conf=is_host={int(launcher == host)}",
            f"--local-addr=127.0.0.{1 if launcher == first else 2}",
            *words,
        )
        for launcher in (host, other(host))
    ]


@pytest.mark.parametrize("host", LAUNCHERS)
def test_a_torchrun_node_and_a_muster_node_are_one_job(job, host):
    """Each launcher serves something. The tests with fixed nodes below have one that serves everything."""
    first = other(host)
    agents = start_both(job, host, first, *job.training())
    job.assert_all_ended_well(*agents)
    trained = {printed["rank"]: printed for printed in job.reported("trained")}
    assert {rank: printed["agent"] for rank, printed in trained.items()} == {0: first, 1: other(first)}
    assert trained[0]["weights"] == trained[1]["weights"]


def test_workers_that_fail_on_torchruns_node_are_started_again_on_both(job):
    """muster is node 0. With torchrun there, the next attempt would get the store with the old keys."""
    agents = start_both(
        job, "torchrun", "muster", "--max-restarts=1", *job.training("--fail-rank", "1")
    )
    job.assert_all_ended_well(*agents)
    assert [printed["agent"] for printed in job.reported("fails")] == ["torchrun"]
    trained = {printed["agent"]: printed for printed in job.reported("trained")}
    assert trained["torchrun"]["attempt"] == 1
    assert trained["torchrun"]["weights"] == trained["muster"]["weights"]


@pytest.mark.parametrize("first", LAUNCHERS)
def test_launch069_launch073_fixed_nodes_of_both_launchers_are_one_job(job, first):
    """Static, two workers on node 0 and one on node 1."""
    enough = job.directory / "enough"
    agents = [
        start(
            job,
            launcher,
            "--nnodes=2",
            f"--nproc-per-node={2 - rank}",
            f"--node-rank={rank}",
            "--master-addr=127.0.0.1",
            f"--master-port={job.endpoint.split(':')[1]}",
            *job.training("--until", enough),
        )
        for rank, launcher in enumerate((first, other(first)))
    ]
    printed = job.until_training_with(set(LAUNCHERS))
    assert {line["rank"]: line["agent"] for line in printed} == {
        0: first,
        1: first,
        2: other(first),
    }
    assert stored_by_agents(job.endpoint) == {
        "none/torchelastic/role_info/0": {"role": "default", "rank": 0, "local_world_size": 2},
        "none/torchelastic/role_info/1": {"role": "default", "rank": 1, "local_world_size": 1},
        "none/torchelastic/assigned_ranks/0": [0, 3, 0, 3],
        "none/torchelastic/assigned_ranks/1": [2, 3, 2, 3],
    }
    enough.touch()
    job.assert_all_ended_well(*agents)
    assert sorted(line["rank"] for line in job.reported("trained")) == [0, 1, 2]


def stored_by_agents(endpoint: str) -> dict:
    host, port = endpoint.split(":")

    class Server:
        def __init__(self):
            self.host, self.port = host, int(port)

    store = peers.connect(Server())
    keys = [key for key in store.list_keys() if key.startswith("none/torchelastic/")]
    return {key: json.loads(store.get(key)) for key in keys}


@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_launch049_both_launchers_give_workers_the_same_environment(job, backend):
    seen = {launcher: job.directory / launcher for launcher in LAUNCHERS}
    for launcher, folder in seen.items():
        folder.mkdir()
        agent = start(
            job,
            launcher,
            f"--rdzv-backend={backend}",
            f"--rdzv-endpoint={job.endpoint}",
            "--rdzv-id=the-same",
            "--local-addr=127.0.0.1",
            "--nproc-per-node=2",
            "--max-restarts=3",
            "--role=trainer",
            ENVIRONMENT,
            folder,
        )
        job.assert_all_ended_well(agent)
    for worker in range(2):
        muster, torchrun = (
            json.loads(path.read_text())
            for path in (seen[name] / f"{name}-{worker}.json" for name in LAUNCHERS)
        )
        assert muster.keys() - torchrun.keys() == OF_MUSTER
        assert not torchrun.keys() - muster.keys()
        different = {name for name in torchrun if muster[name] != torchrun[name]}
        by_chance = BY_CHANCE if backend == "c10d" else {"TORCHELASTIC_ERROR_FILE"}
        assert different - by_chance == {"MUSTER_TEST_AGENT"}
        for environment in (muster, torchrun):
            of_error_file = pathlib.PurePath(environment["TORCHELASTIC_ERROR_FILE"])
            assert of_error_file.parts[-3:] == ("attempt_0", str(worker), "error.json")
