#!/usr/bin/env python3
"""Several launchers as nodes of one job: ranks, rounds, notices. Numbers are items of the launcher's checklist."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from fleet_of_agents import PATIENCE, QUICK_C10D, Fleet, lives, until
from processes import MUSTER

ASSIGNED = "torchelastic/assigned_ranks/{}"
ROLE_INFO = "torchelastic/role_info/{}"
NUM_MEMBERS = "torchelastic/agent/terminal_state/num_members"
FIRST_FAILURE = "muster/first_failure"
LAST_MEMBER = "torchelastic/agent/terminal_state/last_member"


class Job(Fleet):
    """Helpers for a job of several nodes."""

    @property
    def prefix(self):
        return self.prefix_of(0)

    def finish(self, *agents, status=0):
        for agent in agents:
            agent.order("exit 0")
        self.assert_ends(status, *agents)

    @staticmethod
    def ranks(*agents, count=1):
        return [[worker.rank for worker in agent.workers(count)] for agent in agents]

    def value(self, key):
        return self.store(self.endpoint, "get", self.prefix + key)["value"]

    def keys(self):
        return {key.removeprefix(self.prefix) for key in self.store(self.endpoint, "keys", self.prefix)["keys"]}


class StaticJob(Job):
    BACKEND = "static"
    CONF = {"timeout": "600"}
    prefix = "job/"

    def static_nodes(self, *options_of_each, **more):
        """A node for each, in that order."""
        count = str(len(options_of_each))
        return [self.agent("--node-rank", str(rank), *options, nodes=count, **more)
                for rank, options in enumerate(options_of_each)]


class RanksOfStaticNodes(StaticJob):
    def test_launch069_two_static_nodes_with_two_workers_each(self):
        nodes = self.static_nodes(("--nproc-per-node", "2"), ("--nproc-per-node", "2"))
        self.assertEqual(self.ranks(*nodes, count=2), [[0, 1], [2, 3]])
        self.finish(*nodes)

    def test_launch070_a_range_of_static_nodes_means_its_upper_end(self):
        nodes = [self.agent("--node-rank", str(rank), nodes="1:4") for rank in range(3)]
        nodes[0].await_output("1 of 4 nodes are here")
        for node in nodes[1:]:
            node.await_output("round 0 is complete with 4 nodes; waiting for their ranks")
        self.assertEqual([node.all_workers() for node in nodes], [[], [], []])
        nodes.append(self.agent("--node-rank", "3", nodes="1:4"))
        self.assertEqual(self.ranks(*nodes), [[0], [1], [2], [3]])
        self.finish(*nodes)

    def test_launch071_nodes_of_different_sizes_have_contiguous_ranks(self):
        nodes = self.static_nodes(*(("--nproc-per-node", str(size)) for size in (1, 2, 3)))
        ranks = [[worker.rank for worker in node.workers(size)] for node, size in zip(nodes, (1, 2, 3))]
        self.assertEqual(ranks, [[0], [1, 2], [3, 4, 5]])
        self.finish(*nodes)

    def test_launch072_launch073_roles_are_counted_by_themselves_and_the_store_shows_how(self):
        roles = (("trainer", 2), ("ps", 1), ("trainer", 3))
        nodes = self.static_nodes(*(("--role", role, "--nproc-per-node", str(size)) for role, size in roles))
        table = []
        for node, (role, size) in zip(nodes, roles):
            workers = node.workers(size)
            self.assertEqual({worker["ROLE_NAME"] for worker in workers}, {role})
            self.assertEqual({worker["LOCAL_WORLD_SIZE"] for worker in workers}, {str(size)})
            table.append(([worker.rank for worker in workers], [int(worker["ROLE_RANK"]) for worker in workers],
                          {worker["WORLD_SIZE"] for worker in workers},
                          {worker["ROLE_WORLD_SIZE"] for worker in workers}))
        self.assertEqual(table, [([0, 1], [0, 1], {"6"}, {"5"}),
                                 ([2], [0], {"6"}, {"1"}),
                                 ([3, 4, 5], [2, 3, 4], {"6"}, {"5"})])
        for rank, (role, size) in enumerate(roles):
            self.assertEqual(json.loads(self.value(ROLE_INFO.format(rank))),
                             {"role": role, "rank": rank, "local_world_size": size})
        self.assertEqual([json.loads(self.value(ASSIGNED.format(rank))) for rank in range(3)],
                         [[0, 6, 0, 5], [2, 6, 0, 1], [3, 6, 2, 5]])
        self.finish(*nodes)

    def test_launch074_identical_nodes_need_no_exchange(self):
        self.environment["TORCH_ELASTIC_WORKER_IDENTICAL"] = "1"
        nodes = self.static_nodes(("--nproc-per-node", "2"), ("--nproc-per-node", "2"))
        self.assertEqual(self.ranks(*nodes, count=2), [[0, 1], [2, 3]])
        self.assertEqual({worker["ROLE_WORLD_SIZE"] for node in nodes for worker in node.workers(2)}, {"4"})
        self.assertEqual([key for key in self.keys() if "role_info" in key or "assigned_ranks" in key], [])
        self.finish(*nodes)


class FailuresOfStaticNodes(StaticJob):
    def test_launch095_a_failed_node_leaves_the_workers_of_another_alone(self):
        first, second = self.static_nodes((), ())
        worker = first.worker()
        second.worker().order("exit 3")
        self.assert_ends(1, second)
        self.assertTrue(worker.lives)
        self.assertEqual(worker.signals(), [])
        self.assertFalse(first.ended)
        first.send(signal.SIGTERM)
        self.assert_ends(1, first)

    def test_launch096_a_restart_of_one_node_leaves_the_workers_of_another_running(self):
        first, second = self.static_nodes(("--max-restarts", "1"), ())
        failing, other = first.worker(), second.worker()
        failing.order("exit 3")
        again = first.worker(but=[failing])
        self.assertEqual((again.restarts, again.rank), (1, 0))
        self.assertEqual(other.signals(), [])
        self.assertEqual([worker.pid for worker in second.all_workers()], [other.pid])
        self.finish(first, second)

    def test_launch132_a_node_that_has_succeeded_waits_for_a_failed_one_no_longer_than_the_exit_barrier(self):
        nodes = self.static_nodes(("--exit-barrier-timeout", "1"), ())
        workers = [node.worker() for node in nodes]
        workers[1].order("exit 3")
        self.assert_ends(1, nodes[1])
        workers[0].order("exit 0")
        self.assert_ends(0, nodes[0])
        nodes[0].await_output("does not know after 1 s")


class SharedStateJob(Job):
    BACKEND = "c10d"
    prefix = "torch.rendezvous.job.0/"
    CONF = QUICK_C10D


class C10dNodes(SharedStateJob):
    def test_launch075_they_are_ordered_by_the_text_of_their_addresses_and_then_by_pid(self):
        self.serve()
        # Started in this order, so that only an order by text differs: 127.0.0.10 before 127.0.0.9.
        nodes = [self.agent("--local-addr", f"127.0.0.{last}", nodes="3", host=False) for last in (9, 10, 10)]
        self.assertEqual([worker["GROUP_RANK"] for node in nodes for worker in node.workers()],
                         ["2", *("0", "1")[::1 if nodes[1].pid < nodes[2].pid else -1]])
        self.assertEqual({node.worker()["MASTER_ADDR"] for node in nodes}, {"127.0.0.10"})
        self.finish(*nodes)

    def test_launch076_a_node_rank_has_no_effect_and_causes_a_warning(self):
        first = self.agent("--node-rank", "1", nodes="2")
        second = self.agent("--node-rank", "0", nodes="2")
        by_pid = sorted((first, second), key=lambda agent: agent.pid)
        self.assertEqual(self.ranks(*by_pid), [[0], [1]])
        for agent in (first, second):
            agent.await_output("--node-rank has no effect")
        self.finish(first, second)

    def test_launch071_launch073_different_sizes_and_what_the_store_has_of_them(self):
        nodes = [self.agent("--nproc-per-node", str(size), nodes="3") for size in (1, 2, 3)]
        workers = [node.workers(size) for node, size in zip(nodes, (1, 2, 3))]
        for one in workers:
            ranks = [worker.rank for worker in one]
            self.assertEqual(ranks, list(range(ranks[0], ranks[0] + len(one))))
        self.assertEqual(sorted(worker.rank for one in workers for worker in one), list(range(6)))
        reported = [json.loads(self.value(ROLE_INFO.format(rank))) for rank in range(3)]
        self.assertEqual(sorted(one["local_world_size"] for one in reported), [1, 2, 3])
        self.assertEqual([(one["role"], one["rank"]) for one in reported], [("default", rank) for rank in range(3)])
        before = [0, *itertools.accumulate(one["local_world_size"] for one in reported)]
        self.assertEqual([json.loads(self.value(ASSIGNED.format(rank))) for rank in range(3)],
                         [[before[rank], 6, before[rank], 6] for rank in range(3)])
        self.finish(*nodes)

    def test_launch077_one_of_one_or_two_nodes_begins_after_the_last_call(self):
        agent = self.agent("--verbose", nodes="1:2", conf={"last_call_timeout": "2"}, words=("mortal",))
        self.assert_ends(0, agent)
        took = int(agent.await_output(r"round 0: 1 node, 1 worker, formed in (\d+) ms").group(1))
        self.assertGreaterEqual(took, 1900)

    def test_launch078_when_all_are_here_the_last_call_ends(self):
        nodes = [self.agent(nodes="2", conf={"last_call_timeout": "600"}) for _ in range(2)]
        self.assertEqual(sorted(self.ranks(*nodes)), [[0], [1]])
        self.finish(*nodes)

    def test_launch061_workers_meet_elsewhere_than_agents(self):
        nodes = [self.agent(nodes="2") for _ in range(2)]
        masters = {node.worker().master for node in nodes}
        self.assertEqual(len(masters), 1)
        self.assertNotIn(self.endpoint, masters)
        self.finish(*nodes)


class Scenarios:
    """Scenarios for both backends in which nodes can come and go."""

    def two(self, *options, nodes="2", **more):
        return [self.agent(*options, nodes=nodes, host=False, **more) for _ in range(2)]

    def test_launch092_a_failure_here_restarts_the_workers_there_and_only_counts_here(self):
        self.serve()
        failing, other = self.two("--max-restarts", "3")
        first, second = failing.worker(), other.worker()
        first.order("exit 3")
        again, too = failing.worker(but=[first]), other.worker(but=[second])
        self.assertEqual((again.restarts, too.restarts), (1, 0))
        self.assertEqual(second.signals(), ["SIGTERM"])
        self.assertEqual({again["WORLD_SIZE"], too["WORLD_SIZE"]}, {"2"})
        self.finish(failing, other)

    def test_launch093_launch098_a_newcomer_makes_a_larger_world_for_all_without_a_restart_being_spent(self):
        self.serve()
        nodes = self.two("--max-restarts", "0", nodes="2:3")
        before = [node.worker() for node in nodes]
        self.assertEqual({worker["WORLD_SIZE"] for worker in before}, {"2"})
        nodes.append(self.agent("--max-restarts", "0", nodes="2:3", host=False))
        after = [node.worker(but=before) for node in nodes]
        self.assertEqual(sorted(worker.rank for worker in after), [0, 1, 2])
        self.assertEqual({(worker["WORLD_SIZE"], worker.restarts) for worker in after}, {("3", 0)})
        for node in nodes:
            node.await_output(r"round 1: 3 nodes, 3 workers, formed in \d+ ms, 0 restarts left")
        self.finish(*nodes)

    def test_launch094_a_final_failure_closes_the_rendezvous_for_later_nodes(self):
        self.serve()
        failing = self.agent(nodes="2", host=False)
        other = self.agent("--shutdown-timeout", "600", words=["stubborn"], nodes="2", host=False)
        worker = failing.worker()
        slow = other.worker()
        worker.order("exit 3")
        self.assert_ends(1, failing)
        late = self.agent(nodes="2", host=False)
        self.assert_ends(1, late)
        late.await_output("closed")
        self.assertEqual(late.all_workers(), [])
        until(slow.signals, "the other node is notified of the end")
        slow.order("exit 0")
        self.assert_ends(1, other)
        for agent in (failing, other):
            self.assertRegex(agent.printed(), rf"rank {worker.rank} \(local rank 0, pid {worker.pid}\) .* failed first: "
                                           r"exit code 3")
            self.assertEqual(agent.printed().count("Root Cause"), 1)

    def test_a_worker_that_wrote_its_error_file_first_is_the_cause_on_all_nodes_though_it_ends_later(self):
        self.serve()
        failing = self.agent("--nproc-per-node", "2", words=["stubborn"], nodes="2", host=False)
        other = self.agent(nodes="2", host=False)
        (victim, stubborn), culprit = failing.workers(2), other.worker()
        for worker, when in ((culprit, time.time() - 1), (victim, time.time())):
            path = pathlib.Path(worker["TORCHELASTIC_ERROR_FILE"])
            path.write_text(json.dumps({"message": f"of rank {worker.rank}"}), encoding="utf-8")
            os.utime(path, (when, when))
        victim.order("exit 3")
        until(lambda: FIRST_FAILURE in self.keys(), "the end that was seen first is reported")
        culprit.order("exit 4")
        until(lambda: json.loads(self.value(FIRST_FAILURE))["rank"] == culprit.rank, "the earlier error file is reported")
        stubborn.order("exit 0")
        self.assert_ends(1, failing, other)
        for agent in (failing, other):
            self.assertIn(f"rank {culprit.rank} (local rank 0, pid {culprit.pid})", agent.printed())
            cause = agent.printed().split("Root Cause (first observed failure):")
            self.assertEqual(len(cause), 2, agent.printed())
            self.assertIn(f"traceback : of rank {culprit.rank}\n", cause[1])
            self.assertEqual(agent.printed().count(f"of rank {culprit.rank}\n"), 1, agent.printed())

    def test_launch100_what_one_attempt_left_in_the_default_store_the_next_does_not_find(self):
        self.serve()
        nodes = self.two("--max-restarts", "1")
        before = [node.worker() for node in nodes]
        self.store(before[0].master, "set", "left_behind", "1")
        before[0].order("exit 3")
        after = [node.worker(but=before) for node in nodes]
        self.assertFalse(self.store(after[0].master, "check", "left_behind")["value"])
        self.finish(*nodes)

    def assert_exit_keys(self):
        """The keys that the exit barrier has left when all have ended."""
        self.assertEqual(self.store(self.endpoint, "add", self.prefix + NUM_MEMBERS, "0")["value"], 2)
        self.assertIn(LAST_MEMBER, self.keys())

    def test_launch131_launch134_nodes_end_together_through_the_keys_of_the_exit_barrier(self):
        self.serve()
        early, late = self.two()
        early.worker().order("exit 0")
        last = late.worker()
        until(lambda: NUM_MEMBERS in self.keys(), "the first is at the barrier")
        self.assertEqual(self.store(self.endpoint, "add", self.prefix + NUM_MEMBERS, "0")["value"], 1)
        self.assertNotIn(LAST_MEMBER, self.keys())
        self.assertFalse(early.ended)
        last.order("exit 0")
        self.assert_ends(0, early, late)
        self.assert_exit_keys()

    def test_launch132_a_node_that_has_succeeded_does_not_wait_for_one_that_failed(self):
        self.serve()
        good, bad = self.two()
        good.worker().order("exit 0")
        until(lambda: NUM_MEMBERS in self.keys(), "the first is at the barrier")
        bad.worker().order("exit 3")
        self.assert_ends(0, good)
        self.assert_ends(1, bad)

    def test_launch133_a_store_that_is_lost_in_the_exit_barrier_does_not_change_the_status(self):
        server = self.serve()
        early, late = self.two()
        early.worker().order("exit 0")
        worker = late.worker()
        until(lambda: NUM_MEMBERS in self.keys(), "the first is at the barrier")
        server.process.kill()
        self.assert_ends(0, early)
        worker.order("exit 0")
        late.end()

    def test_missing_nodes_are_named_while_others_wait(self):
        self.serve()
        first = self.agent(nodes="2", host=False)
        first.await_output(r"muster: round 0: 1 of 2 nodes are here.*, 1 more is needed; gives up in \d+ s\n")
        second = self.agent("--quiet", nodes="2", host=False)
        self.finish(first, second)
        first.await_output(r"muster: round 0: 2 nodes, 2 workers, formed in \d+ ms, 0 restarts left\n")
        self.assertEqual(second.printed(), "", "--quiet")

    def test_nodes_of_two_jobs_in_one_round_name_both_scripts(self):
        self.serve()
        nodes = [self.agent("--rdzv-id", "none", nodes="2", host=False, worker=worker)
                 for worker in (("/bin/sh", "-c", "exec sleep 600"), ("/bin/sleep", "600"))]
        for node, names in zip(nodes, ("'sh', node [01] of the round 'sleep'", "'sleep', node [01] of the round 'sh'")):
            node.await_output(f"muster: this node runs {names}; jobs without --rdzv-id share the id 'none'")
        for node in nodes:
            node.send(signal.SIGTERM)
        self.assert_ends(1, *nodes)
        self.assertEqual([node.printed().count("this node runs") for node in nodes], [1, 1])

    def test_scripts_of_several_roles_or_of_a_job_with_an_id_may_differ(self):
        self.serve()
        for run_id, roles in (("job", ("default", "default")), ("none", ("trainer", "reader"))):
            nodes = [self.agent("--rdzv-id", run_id, "--role", role, nodes="2", host=False, worker=worker)
                     for role, worker in zip(roles, (("/bin/sh", "-c", "exit 0"), ("/bin/true",)))]
            self.assert_ends(0, *nodes)
            self.assertNotIn("this node runs", "".join(node.printed() for node in nodes))


class WithTheCoordinator(Scenarios, Job):
    def test_when_the_host_of_the_rendezvous_dies_the_report_names_it_and_no_restart_is_counted(self):
        host = self.agent("--max-restarts", "3", nodes="2", host=True)
        report = os.path.join(self.folder, "report.json")
        other = self.agent("--max-restarts", "3", "--failure-report", report, nodes="2", host=False)
        host.worker()
        victim = other.worker()
        host.process.kill()
        victim.order("exit 3")  # as a worker that has lost a peer
        other.await_output(rf"the rendezvous at {self.endpoint} is gone: .*; it has 3 s to come back; restart it there, or "
                           "use --rdzv-backend etcd")
        self.assert_ends(1, other, patience=20)
        self.assertRegex(other.printed(), rf"muster: the rendezvous at {self.endpoint} is gone: it has been out of reach for 3 s")
        self.assertNotIn("ChildFailedError", other.printed())
        with open(report, encoding="utf-8") as file:
            found = json.load(file)
        self.assertIn(self.endpoint, found["root_cause"]["message"])
        self.assertEqual(found["restarts"], 0)

    def test_a_rendezvous_that_comes_back_in_time_costs_no_restart(self):
        server = self.serve()
        nodes = [self.agent("--max-restarts", "0", nodes="2", host=False, conf={"contact_timeout": "60"}) for _ in range(2)]
        before = [node.worker() for node in nodes]
        server.process.kill()
        server.end()
        for node, worker in zip(nodes, before):
            worker.order("exit 3")
            node.await_output("is gone: .*; it has 60 s to come back")
        self.serve()
        for node in nodes:
            node.await_output("is back")
        after = [node.worker(but=before) for node in nodes]
        self.assertEqual([worker.restarts for worker in after], [0, 0])
        self.finish(*nodes)

    def test_a_node_without_an_id_reports_that_it_may_have_met_another_job(self):
        self.serve()
        first = [self.agent("--rdzv-id", "none", nodes="2", host=False) for _ in range(2)]
        for node in first:
            node.worker()
        second = self.agent("--rdzv-id", "none", nodes="2", host=False)
        second.await_output("a spare: .*; jobs without --rdzv-id share the id 'none', so this rendezvous may be another "
                            "job's: give each job an id of its own")
        other = self.agent("--rdzv-id", "none", nodes="3", host=False)
        other.await_output("configured differently.*; jobs without --rdzv-id share")
        self.assert_ends(1, other)
        self.finish(*first)
        self.assert_ends(0, second)
        self.assertNotIn("--rdzv-id", "".join(node.printed() for node in first))

    def test_a_closed_run_of_the_default_id_may_be_another_jobs(self):
        self.serve()
        # Worker 1 ignores SIGTERM, so that its node stays in the closed run.
        command = ('trap "" TERM; : > "$0.$RANK"; while [ "$RANK" = 1 ] || [ ! -e "$0.1" ]; do sleep 0.1; done; exit 3')
        first = [self.agent("--rdzv-id", "none", nodes="2", host=False,
                            worker=("/bin/sh", "-c", command, os.path.join(self.folder, "ready"))) for _ in range(2)]
        until(lambda: any(node.ended for node in first), "one of them has closed the run")
        second = self.agent("--rdzv-id", "none", nodes="2", host=False)
        second.await_output("is closed by .*; jobs without --rdzv-id share the id 'none'")
        self.assert_ends(1, second)
        self.assertNotIn("--rdzv-id", "".join(node.printed() for node in first))

    def test_status_shows_since_when_a_job_runs_with_how_many_workers_and_restarts(self):
        self.serve()
        failing, other = self.two("--max-restarts", "3")
        first, second = failing.worker(), other.worker()
        first.order("exit 3")
        failing.worker(but=[first])
        other.worker(but=[second])
        shown = subprocess.run([MUSTER, "status", "--server", self.endpoint], capture_output=True, text=True,
                               timeout=PATIENCE, check=False)
        self.assertRegex(shown.stdout, r"^run 'job', round 1, running since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, 2 workers, 1 "
                                       r"restart: in round 1 with 2 nodes\n")
        shown = subprocess.run([MUSTER, "status", "--server", self.endpoint, "--json"], capture_output=True, text=True,
                               timeout=PATIENCE, check=False)
        (run,) = json.loads(shown.stdout)["runs"]
        self.assertEqual((run["phase"], run["workers"], run["restarts"]), ("complete", 2, 1))
        self.finish(failing, other)

    def test_the_next_job_of_the_same_id_starts_as_soon_as_the_last_one_has_ended(self):
        self.serve()
        generations = set()
        for status in (1, 0, 0):
            nodes = [self.agent(nodes="2", host=False) for _ in range(2)]
            workers = [node.worker() for node in nodes]
            self.assertEqual(sorted(worker.rank for worker in workers), [0, 1])
            generations.add(self.prefix_of(0))
            for worker in workers:
                worker.order("exit 3" if status else "exit 0")
            self.assert_ends(status, *nodes)
        self.assertEqual(len(generations), 3)

    def assert_exit_keys(self):
        until(lambda: not self.keys(), "the keys of the round are gone with its last node")

    def three_of_two_or_three(self, chosen):
        """Three nodes in one world that needs two. Returns the one whose worker is chosen, the others, and the worker
        of each."""
        self.serve()
        nodes = [self.agent(nodes="2:3", host=False) for _ in range(3)]
        before = dict(zip(nodes, self.one_world(*nodes)))
        lost = next(node for node in nodes if chosen(before[node]))
        return lost, [node for node in nodes if node is not lost], before

    def form_again_in_time(self, lost, survivors, before, number=signal.SIGKILL):
        """Kills or stops a launcher. The others run a new round within interval x attempts of its heartbeats + 2 s."""
        bound = float(self.CONF["keep_alive_interval"]) * int(self.CONF["keep_alive_max_attempt"]) + 2
        began = time.monotonic()
        lost.send(number)
        until(lambda: all(before[node].signals() for node in survivors), "survivors stop their workers")
        received = time.monotonic() - began
        after = [node.worker(but=before.values()) for node in survivors]
        formed = time.monotonic() - began
        print(f"{number.name}: workers were stopped {received:.2f} s after the loss, new ones ran after {formed:.2f} s; "
              f"allowed are {bound:g} s")
        self.assertLess(formed, bound)
        self.assertEqual(sorted(worker.rank for worker in after), [0, 1])
        self.assertEqual({worker["WORLD_SIZE"] for worker in after}, {"2"})
        lost.process.kill()
        until(lambda: not lives(before[lost].pid), "its worker died with it")
        return after

    def test_launch099_survivors_of_the_first_node_form_a_new_world(self):
        lost, survivors, before = self.three_of_two_or_three(lambda worker: worker["GROUP_RANK"] == "0")
        after = self.form_again_in_time(lost, survivors, before)
        self.assertNotIn(before[lost].master, {worker.master for worker in after})
        self.finish(*survivors)

    def test_launch154_a_killed_node_is_followed_by_a_new_round_in_time(self):
        lost, survivors, before = self.three_of_two_or_three(lambda worker: worker["GROUP_RANK"] == "1")
        self.form_again_in_time(lost, survivors, before)
        self.finish(*survivors)

    def test_launch154_a_node_that_falls_silent_is_followed_by_a_new_round_in_time(self):
        """Nothing closes its connection: only missing heartbeats show it."""
        lost, survivors, before = self.three_of_two_or_three(lambda worker: worker["GROUP_RANK"] == "1")
        self.form_again_in_time(lost, survivors, before, signal.SIGSTOP)
        self.finish(*survivors)

    def test_launch127_after_a_signal_others_begin_again_without_the_node_and_it_may_come_back(self):
        self.serve()
        leaving, staying = self.two(nodes="1:2")
        before = self.one_world(leaving, staying)
        leaving.send(signal.SIGTERM)
        self.assert_ends(1, leaving)
        alone = staying.worker(but=before)
        self.assertEqual((alone["WORLD_SIZE"], alone.restarts), ("1", 0))
        back = self.agent(nodes="1:2", host=False)
        self.assertEqual(back.worker()["WORLD_SIZE"], "2")
        self.assertEqual(staying.worker(but=[*before, alone])["WORLD_SIZE"], "2")
        self.finish(staying, back)

    def test_a_node_whose_worker_sleeps_uninterruptibly_is_not_in_the_next_round(self):
        self.serve()
        leaving, staying = self.two("--max-restarts", "3", "--shutdown-timeout", "1", nodes="1:2",
                                    environment={"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "0.3"})
        before = self.one_world(leaving, staying)
        before[0].order("stick 0")
        self.assert_ends(1, leaving)
        self.assertEqual(len(leaving.all_workers()), 1, "it was not started again")
        leaving.await_output(rf"worker 0 \(pid {before[0].pid}\) has been in uninterruptible sleep")
        alone = staying.worker(but=before)
        self.assertEqual((alone["WORLD_SIZE"], alone.restarts), ("1", 0))
        self.finish(staying)

    def test_a_surplus_node_is_a_spare_and_ends_well_with_the_job(self):
        self.serve()
        members = self.two()
        for member in members:
            member.worker()
        spare = self.agent(nodes="2", host=False)
        spare.await_output("a spare: ")
        self.assertEqual(spare.all_workers(), [])
        self.finish(*members)
        self.assert_ends(0, spare)

    def test_a_spare_takes_the_place_of_a_lost_node(self):
        self.serve()
        members = self.two()
        before = [member.worker() for member in members]
        spare = self.agent(nodes="2", host=False)
        spare.await_output("a spare: ")
        members[0].process.kill()
        after = [members[1].worker(but=before), spare.worker()]
        self.assertEqual({(worker["WORLD_SIZE"], worker.restarts) for worker in after}, {("2", 0)})
        self.finish(members[1], spare)

    def test_of_several_nodes_on_the_endpoints_machine_the_first_serves(self):
        nodes = [self.agent("--nproc-per-node", "2", nodes="3") for _ in range(3)]
        self.assertEqual(sorted(itertools.chain(*self.ranks(*nodes, count=2))), list(range(6)))
        self.finish(*nodes)

    def test_a_restart_reports_how_many_are_left(self):
        agent = self.agent("--max-restarts", "2", host=True)
        before = agent.worker()
        before.order("exit 3")
        again = agent.worker(but=[before])
        agent.await_output(r"begins again: worker 0 ended with status 3\n")
        agent.await_output(r"round 1: 1 node, 1 worker, formed in \d+ ms, 1 restart left\n")
        again.order("exit 0")
        self.assert_ends(0, agent)


class WithASharedState(Scenarios, SharedStateJob):
    def test_a_closed_rendezvous_of_the_default_id_may_be_another_jobs(self):
        self.serve()
        first = self.agent("--rdzv-id", "none", host=False, worker=("/bin/false",))
        self.assert_ends(1, first)
        second = self.agent("--rdzv-id", "none", host=False)
        self.assert_ends(1, second)
        self.assertRegex(second.printed(), "closed by .*; jobs without --rdzv-id share the id 'none'")
        self.assertNotIn("--rdzv-id", first.printed())

    def test_launch127_after_a_signal_others_continue_and_the_node_may_come_back(self):
        self.serve()
        leaving, staying = self.two(nodes="1:2")
        before = self.one_world(leaving, staying)
        leaving.send(signal.SIGTERM)
        self.assert_ends(1, leaving)
        self.assertEqual(before[1].signals(), [])
        back = self.agent(nodes="1:2", host=False)
        after = [staying.worker(but=before), back.worker()]
        self.assertEqual({(worker["WORLD_SIZE"], worker.restarts) for worker in after}, {("2", 0)})
        self.finish(staying, back)


if __name__ == "__main__":
    unittest.main()
