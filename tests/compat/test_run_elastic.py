"""Nodes of `muster run` come and go while real PyTorch trains. The job continues with the present nodes, and each
attempt begins with an empty store."""

import pytest

pytestmark = pytest.mark.muster_only


def start_node(job, number: int, *options: str, hosts: bool, training: list):
    """Starts a node at 127.0.0.<number>: the ranks of nodes are in that order."""
    return job.muster(
        f"node{number}",
        f"--rdzv-endpoint={job.endpoint}",
        f"--rdzv-conf=is_host={int(hosts)},last_call_timeout=2,keep_alive_interval=1",
        f"--local-addr=127.0.0.{number}",
        *options,
        *training,
    )


def kill_one_of_two(job, victim: int, *options: str, loss_is_reported: bool) -> list[dict]:
    """SIGKILL of an agent while all workers train. Returns what the other node's workers write once they train again.
    """
    survivor = 3 - victim
    enough = job.directory / "enough"
    agents = {
        number: start_node(
            job,
            number,
            "--nnodes=1:2",
            *options,
            hosts=number == survivor,
            training=job.training("--until", enough),
        )
        for number in (1, 2)
    }
    before = job.until_training_with({"node1", "node2"})
    workers = len(before)
    killed = {printed["pid"] for printed in before if printed["agent"] == f"node{victim}"}
    agents[victim].kill()
    if loss_is_reported:
        # keep_alive_interval x keep_alive_max_attempt (3) + 2 s
        job.until(
            lambda: "muster: begins again: round 0 has lost "
            in job.output_of(f"node{survivor}"),
            "the survivor begins again",
            patience_s=1 * 3 + 2,
        )
    after = job.until_training_with({f"node{survivor}"})
    assert not killed & set(job.processes()), "workers have outlived their agent"
    assert {printed["group_world_size"] for printed in after} == {1}
    assert len(after) == workers // 2
    enough.touch()
    job.assert_all_ended_well(agents[survivor])
    assert {printed["agent"] for printed in job.reported("trained")} == {f"node{survivor}"}
    return after


@pytest.mark.parametrize("victim, workers", [(1, 2), (2, 1)])
def test_launch093_launch099_launch154_the_surviving_nodes_train_on_without_a_killed_node(
    job, victim, workers
):
    """Their workers fail because their peers fail. That failure is not theirs, and costs no restart."""
    after = kill_one_of_two(
        job, victim, f"--nproc-per-node={workers}", "--max-restarts=0", loss_is_reported=True
    )
    assert {printed["attempt"] for printed in after} == {0}


def test_launch099_with_c10d_the_loss_of_node_0_costs_a_restart(job):
    """On c10d no node is notified before the heartbeats stop. The failure of workers comes first."""
    after = kill_one_of_two(
        job, 1, "--rdzv-backend=c10d", "--max-restarts=1", loss_is_reported=False
    )
    assert {printed["attempt"] for printed in after} == {1}


def test_launch098_a_job_grows_from_one_node_to_three_while_it_trains(job):
    enough = job.directory / "enough"

    def start(number: int):
        return start_node(
            job,
            number,
            "--nnodes=1:3",
            "--max-restarts=0",
            hosts=number == 3,
            training=job.training("--until", enough),
        )

    agents = [start(3)]  # is the last in rank, and serves the others
    job.until_training_with({"node3"})
    agents += [start(1), start(2)]
    grown = job.until_training_with({"node1", "node2", "node3"})
    assert {printed["world_size"] for printed in grown} == {3}
    assert {printed["attempt"] for printed in grown} == {0}
    enough.touch()
    job.assert_all_ended_well(*agents)
    assert {(printed["agent"], printed["rank"], printed["world_size"]) for printed in job.reported("trained")} == {
        (f"node{number}", number - 1, 3) for number in (1, 2, 3)
    }
    for agent in agents:
        assert ": 3 nodes, 3 workers, formed in " in agent.output()


@pytest.mark.parametrize("backend", ["muster", "c10d", "static"])
def test_launch087_launch100_an_attempt_does_not_see_the_keys_of_the_one_before(job, backend):
    agent = job.muster(
        "alone",
        f"--rdzv-backend={backend}",
        f"--rdzv-endpoint={job.endpoint}",
        "--max-restarts=1",
        *job.training("--leave-key"),
    )
    job.assert_all_ended_well(agent)
    assert [printed["attempt"] for printed in job.reported("left the key")] == [0]
    (looked,) = job.reported("looked for the key")
    assert looked["attempt"] == 1
    assert looked["found"] is False
    assert [printed["attempt"] for printed in job.reported("trained")] == [1]
