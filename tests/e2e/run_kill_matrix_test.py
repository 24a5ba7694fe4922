#!/usr/bin/env python3
"""The kill matrix of `muster run`: every kind of process receives SIGKILL, SIGTERM and SIGSTOP, at every stage of a
job.

Each cell of MATRIX has its documented outcome, and is played with real processes: a job of two nodes, near and other,
with one worker each. In the end nothing of the job may be left. `--table` prints it for docs/guide/elastic-jobs.md."""

import concurrent.futures
import os
import re
import signal
import sys
import time
import unittest

from fleet_of_agents import WORKER, Fleet, is_stopped, lives, until

KILL, TERM, STOP = signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP
AT_ONCE = 6  # cells; each mostly waits
A_WHILE_S = 1  # how long nothing may happen

# The outcome by name: the method that checks it, and the text for the document.
OUTCOMES = {
    "begins_again": "the workers of all nodes restart; this costs the node a restart, or ends the job",
    "begins_alone": "its workers restart, which costs a restart; the node that had finished ends with 0",
    "waits": "nothing, until SIGCONT resumes it or SIGKILL ends it (then as SIGKILL)",
    "stopped_sooner": "the restart, which was waiting for it, continues",
    "stopped_by_force": "it is killed after --shutdown-timeout, and the restart continues",
    "others_go_on": "its workers die with it; the other nodes restart their workers without it",
    "others_begin": "the other nodes form a round without it",
    "ends_others_go_on": "it stops its workers and ends with 1; the other nodes restart their workers without it",
    "ends_others_begin": "it ends with 1 (in its first milliseconds: by the signal); the other nodes form a round "
                         "without it",
    "ends_others_work_on": "it ends with 1; the other nodes continue and end with 0",
    "comes_back": "after keep_alive_interval × keep_alive_max_attempt the other nodes declare it lost and restart their "
                  "workers without it; its own workers run until SIGCONT, then all nodes restart with it",
    "comes_late": "the other nodes form a round without it; after SIGCONT all nodes restart with it",
    "comes_too_late": "the other nodes form a round without it; after SIGCONT it is a spare",
    "is_done": "the other nodes declare it lost and restart without it; after SIGCONT it ends with 0",
    "no_rendezvous": "the other nodes cannot join a round, and end with 1 after join_timeout",
    "lost_rendezvous": "the other nodes stop their workers and end with 1 after contact_timeout",
    "lost_rendezvous_done": "a node that has finished ends with 0; the others end with 1 after contact_timeout",
    "held_up": "workers keep running and no node can join or leave, until SIGCONT resumes it (all is as before) or "
               "SIGKILL ends it (then as SIGKILL)",
    "meets_anew": "nodes reconnect and form a new round; no restart is spent",
    "meets_anew_alone": "a node that has finished ends with 0; the others reconnect and form a new round; no restart "
                        "is spent",
    "own_affair": "nothing: a worker's child is the worker's responsibility, and does not outlive the attempt",
}

STAGES = ("start", "rendezvous", "run", "restart", "exit")

MATRIX = {
    "worker": {
        "start": {KILL: "begins_again", TERM: "begins_again", STOP: "waits"},
        "run": {KILL: "begins_again", TERM: "begins_again", STOP: "waits"},
        "restart": {KILL: "stopped_sooner", TERM: "stopped_by_force", STOP: "stopped_by_force"},
        "exit": {KILL: "begins_alone", TERM: "begins_alone", STOP: "waits"},
    },
    "agent": {
        "start": {KILL: "others_begin", TERM: "ends_others_begin", STOP: "comes_late"},
        "rendezvous": {KILL: "others_begin", TERM: "ends_others_begin", STOP: "comes_too_late"},
        "run": {KILL: "others_go_on", TERM: "ends_others_go_on", STOP: "comes_back"},
        "restart": {KILL: "others_go_on", TERM: "ends_others_go_on", STOP: "comes_back"},
        "exit": {KILL: "others_go_on", TERM: "ends_others_work_on", STOP: "is_done"},
    },
    "host": {
        "start": {KILL: "no_rendezvous", TERM: "no_rendezvous", STOP: "held_up"},
        "rendezvous": {KILL: "no_rendezvous", TERM: "no_rendezvous", STOP: "held_up"},
        "run": {KILL: "lost_rendezvous", TERM: "lost_rendezvous", STOP: "held_up"},
        "restart": {KILL: "lost_rendezvous", TERM: "lost_rendezvous", STOP: "held_up"},
        "exit": {KILL: "lost_rendezvous", TERM: "lost_rendezvous", STOP: "held_up"},
    },
    "server": {
        "start": {KILL: "no_rendezvous", TERM: "no_rendezvous", STOP: "held_up"},
        "rendezvous": {KILL: "no_rendezvous", TERM: "no_rendezvous", STOP: "held_up"},
        "run": {KILL: "lost_rendezvous", TERM: "lost_rendezvous", STOP: "held_up"},
        "restart": {KILL: "lost_rendezvous", TERM: "lost_rendezvous", STOP: "held_up"},
        "exit": {KILL: "lost_rendezvous_done", TERM: "lost_rendezvous_done", STOP: "held_up"},
    },
    "server that is started again": {
        "start": {KILL: "meets_anew", TERM: "meets_anew"},
        "rendezvous": {KILL: "meets_anew", TERM: "meets_anew"},
        "run": {KILL: "meets_anew", TERM: "meets_anew"},
        "restart": {KILL: "meets_anew", TERM: "meets_anew"},
        "exit": {KILL: "meets_anew_alone", TERM: "meets_anew_alone"},
    },
    "worker's child": {
        "start": {KILL: "own_affair", TERM: "own_affair", STOP: "own_affair"},
        "run": {KILL: "own_affair", TERM: "own_affair", STOP: "own_affair"},
        "restart": {KILL: "own_affair", TERM: "own_affair", STOP: "own_affair"},
        "exit": {KILL: "own_affair", TERM: "own_affair", STOP: "own_affair"},
    },
}


def table():
    """The table of docs/guide/elastic-jobs.md."""
    lines = ["| Process | Stage | SIGKILL | SIGTERM | SIGSTOP |", "|---|---|---|---|---|"]
    for victim, stages in MATRIX.items():
        alike = {}  # from an outcome to the stages that have it
        for stage, outcomes in stages.items():
            alike.setdefault(tuple(outcomes.get(number) for number in (KILL, TERM, STOP)), []).append(stage)
        for row, among in alike.items():
            cells = ["the same" if name and name == before else OUTCOMES.get(name, "as above")
                     for before, name in zip((None, *row), row)]
            lines.append("| " + " | ".join((victim, ", ".join(among), *cells)) + " |")
    return "\n".join(lines)


class KillMatrix(Fleet):
    """One cell: `stage_…` brings the job there, and `outcome_…` checks the outcome."""

    def setUp(self):
        super().setUp()
        self.near = self.other = self.server = self.third = None
        self.victim = self.stage = self.number = None
        self.nodes = "1:2"
        self.before = []  # workers of the time before the strike
        self.met = -1  # and the round that both nodes were in then; on a slow machine, not their first one

    def play(self, victim, stage, number, outcome):
        self.victim, self.stage, self.number = victim, stage, number
        began = time.monotonic()
        pid = getattr(self, f"stage_{stage}")()
        os.kill(pid, number)
        struck = time.monotonic()
        getattr(self, f"outcome_{outcome}")(pid)
        self.assert_nothing_left()
        print(f"{number.name} of {victim} in {stage}: {struck - began:.1f} s until then, {time.monotonic() - struck:.1f} s "
              "until all was over", flush=True)

    # --- Processes

    @property
    def has_server(self):
        return self.victim != "host"

    @property
    def grace(self):
        """If nothing else may end a worker that ignores its signal, the grace is long."""
        return "600" if self.number == KILL else "2"

    def node(self, *words, host=False, nodes=None):
        conf = {"join_timeout": "6"} if self.victim in ("host", "server") and self.stage != "restart" else {}
        if self.victim == "server that is started again":
            conf = {"contact_timeout": "60"}  # Longer than any machine takes to start it.
        return self.agent("--verbose", "--max-restarts", "1", "--shutdown-timeout", self.grace, nodes=nodes or self.nodes,
                          host=host, conf=conf, words=words)

    def start_server(self):
        if self.has_server:
            self.server = self.serve()

    def start_both(self, *words):
        self.start_server()
        self.near = self.node(*words, host=not self.has_server)
        self.other = self.node()

    def meet(self):
        """Both nodes are in one round."""
        self.before = self.one_world(self.near, self.other)
        self.met = self.near.round()[0]

    def struck_pid(self, worker):
        return {"worker": worker.pid, "agent": self.near.pid, "host": self.near.pid,
                "worker's child": (worker.children or [None])[0]}.get(self.victim) or self.server.pid

    # --- Stages: each returns the process that receives the signal

    def stage_start(self):
        """As early as the process exists."""
        if self.victim.startswith("server"):
            self.near, self.other = self.node(), self.node()
            self.server = self.serve(wait=False)
            return self.server.pid
        if self.victim in ("agent", "host"):
            self.start_server()
            self.other = self.node()
            self.near = self.node(host=not self.has_server)
            return self.near.pid
        self.start_both("parent")
        if self.victim == "worker":
            return until(self.first_process_of_near, "a worker")
        return self.near.worker().children[0]

    def first_process_of_near(self):
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = file.read().rpartition(")")[2].split()[1]
                with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                    words = file.read().split("\0")
            except OSError:
                continue
            if int(parent) == self.near.pid and WORKER in words and "run" not in words:
                return int(name)
        return None

    def stage_rendezvous(self):
        """One more node is awaited."""
        if self.victim == "host":
            self.nodes = "3"
            self.start_both()
            self.near.await_output("2 of 3 nodes are here")
            self.other.await_output("2 of 3 nodes are here")
            return self.near.pid
        self.nodes = "2"
        self.start_server()
        self.near = self.node()
        self.near.await_output("1 of 2 nodes are here")
        return self.near.pid if self.victim == "agent" else self.server.pid

    def stage_run(self):
        self.start_both("parent")
        self.meet()
        return self.struck_pid(self.before[0])

    def stage_restart(self):
        """The other's worker has failed; near's worker has received SIGTERM, and ignores it."""
        self.start_both("stubborn", "stray")
        self.meet()
        self.before[1].order("exit 3")
        until(self.before[0].signals, "near's worker receives SIGTERM")
        return self.struck_pid(self.before[0])

    def stage_exit(self):
        """The workers of one node are done: of the agent that receives the signal, else of the other one."""
        self.start_both("parent")
        self.meet()
        done = self.before[1 if self.victim.startswith("worker") else 0]
        done.order("exit 0")
        key = self.prefix_of(self.met) + "torchelastic/agent/terminal_state/num_members"
        until(lambda: self.store(self.endpoint, "check", key)["value"], "one node is at the exit barrier")
        return self.struck_pid(self.before[0])

    # --- Outcomes

    def finish(self, *agents):
        for agent in agents:
            # A stray that a successful worker leaves ignores SIGTERM, and would have all of --shutdown-timeout.
            for child in (child for worker in agent.all_workers() for child in worker.children):
                if self.stage == "restart" and lives(child):
                    os.kill(child, signal.SIGKILL)
            agent.order("exit 0")
        self.assert_ends(0, *agents)

    def assert_nothing_happens(self, *agents):
        rounds = [agent.round() for agent in agents]
        time.sleep(A_WHILE_S)  # only time can show that nothing happens
        self.assertEqual([agent.round() for agent in agents], rounds)
        self.assertEqual([agent.ended for agent in agents], [False] * len(agents))

    def let_go_on(self, pid):
        until(lambda: is_stopped(pid), "stopped")
        # Its kernel answers for it: that is not "out of reach", however long it takes.
        time.sleep(float(self.CONF["contact_timeout"]) + A_WHILE_S if self.stage == "run" else A_WHILE_S)
        os.kill(pid, signal.SIGCONT)

    def outcome_begins_again(self, _):
        until(lambda: re.search("begins again", self.near.printed()), "near begins again")
        workers = self.one_world(self.near, self.other, after=self.met)
        self.assertEqual([worker.restarts for worker in workers], [1, 0])
        self.finish(self.near, self.other)

    def outcome_begins_alone(self, _):
        self.assert_ends(0, self.other)
        worker, = self.one_world(self.near, after=self.met)
        self.assertEqual(worker.restarts, 1)
        self.finish(self.near)

    def outcome_waits(self, pid):
        until(lambda: is_stopped(pid), "stopped")
        self.assert_nothing_happens(self.near, self.other)
        if self.stage == "run":
            os.kill(pid, KILL)
            return self.outcome_begins_again(pid)
        os.kill(pid, signal.SIGCONT)
        if self.stage == "start":
            self.one_world(self.near, self.other)
        self.finish(self.near, self.other)

    def outcome_stopped_sooner(self, _):
        workers = self.one_world(self.near, self.other, after=self.met)
        self.assertEqual([worker.restarts for worker in workers], [0, 1])
        self.finish(self.near, self.other)

    def outcome_stopped_by_force(self, pid):
        self.outcome_stopped_sooner(pid)
        self.assertFalse(lives(pid))

    def outcome_others_go_on(self, pid):
        until(lambda: not lives(pid), "gone")
        worker, = self.one_world(self.other, after=self.met)
        self.assertEqual(worker.restarts, 1 if self.stage == "restart" else 0)
        self.assertFalse(self.before[0].lives)
        self.finish(self.other)

    def outcome_ends_others_go_on(self, pid):
        self.assert_ends(1, self.near)
        self.outcome_others_go_on(pid)

    def outcome_others_begin(self, _):
        self.near.end()
        if self.stage == "start":
            return self.begin_alone()
        pair = [self.node(), self.node()]
        self.one_world(*pair)
        self.finish(*pair)

    def begin_alone(self):
        self.one_world(self.other)
        self.finish(self.other)

    def outcome_ends_others_begin(self, pid):
        self.assertIn(self.near.end(), (1, -TERM) if self.stage == "start" else (1,))
        self.outcome_others_begin(pid)

    def outcome_ends_others_work_on(self, _):
        self.assert_ends(1, self.near)
        self.assert_nothing_happens(self.other)
        self.assertEqual(self.before[1].signals(), [])
        self.finish(self.other)

    def outcome_comes_back(self, pid):
        worker, = self.one_world(self.other, after=self.met)
        self.assertTrue(self.before[0].lives)
        os.kill(pid, signal.SIGCONT)
        workers = self.one_world(self.near, self.other, after=self.other.round()[0])
        self.assertEqual([one.restarts for one in workers], [0, worker.restarts])
        self.finish(self.near, self.other)

    def outcome_comes_late(self, pid):
        self.one_world(self.other)
        os.kill(pid, signal.SIGCONT)
        self.one_world(self.near, self.other)
        self.finish(self.near, self.other)

    def outcome_comes_too_late(self, pid):
        pair = [self.node(), self.node()]
        self.one_world(*pair)
        os.kill(pid, signal.SIGCONT)
        self.near.await_output("a spare: ")
        self.finish(*pair)
        self.assert_ends(0, self.near)

    def outcome_is_done(self, pid):
        self.one_world(self.other, after=self.met)
        os.kill(pid, signal.SIGCONT)
        self.assert_ends(0, self.near)
        self.finish(self.other)

    def outcome_no_rendezvous(self, _):
        if self.victim == "host":
            self.near.end()
        waiting = (self.near, self.other) if self.has_server else (self.other,)
        self.assert_ends(1, *filter(None, waiting))

    def outcome_lost_rendezvous(self, _):
        if self.victim == "host":
            self.near.end()
        elif self.stage == "restart":
            self.before[0].order("exit 0")
        for agent in (self.near, self.other) if self.has_server else (self.other,):
            self.assert_ends(1, agent)
            agent.await_output("has been out of reach for|is lost")
            self.assertEqual([worker for worker in agent.all_workers() if worker.lives], [])

    def outcome_lost_rendezvous_done(self, _):
        self.assert_ends(0, self.near)
        self.assert_ends(1, self.other)
        self.other.await_output("has been out of reach for")

    def outcome_held_up(self, pid):
        self.let_go_on(pid)
        if self.stage == "rendezvous":
            self.third = self.node()
        agents = [agent for agent in (self.near, self.other, self.third) if agent]
        if self.stage in ("start", "rendezvous"):
            self.one_world(*agents)
        elif self.stage == "restart":
            self.one_world(*agents, after=self.met)
        else:
            self.assert_nothing_happens(*agents)
            self.assertEqual({agent.round() for agent in agents}, {(self.met, 2)})
        self.finish(*agents)
        self.end_server()

    def outcome_meets_anew(self, _):
        self.server.end()
        self.server = self.serve()
        if self.stage == "rendezvous":
            self.other = self.node()
        if self.stage == "restart":
            self.before[0].order("exit 0")
        workers = self.one_world(self.near, self.other, after=self.met)
        self.assertEqual([worker.restarts for worker in workers], [0, 1 if self.stage == "restart" else 0])
        self.finish(self.near, self.other)

    def outcome_meets_anew_alone(self, _):
        self.server.end()
        self.server = self.serve()
        self.assert_ends(0, self.near)
        worker, = self.one_world(self.other, after=self.met)
        self.assertEqual(worker.restarts, 0)
        self.finish(self.other)

    def outcome_own_affair(self, _):
        if self.stage == "restart":
            self.before[0].order("exit 0")
            self.one_world(self.near, self.other, after=self.met)
        else:
            self.assert_nothing_happens(self.near, self.other)
        self.finish(self.near, self.other)

    def end_server(self):
        if self.server and not self.server.ended:
            # In this order: at the end of a server with AddressSanitizer, LeakSanitizer stops its threads with SIGSTOP,
            # and waits forever for a stop that a later SIGCONT has discarded.
            self.server.send(signal.SIGCONT)
            self.server.send(signal.SIGTERM)
            self.assert_ends(0, self.server)

    def assert_nothing_left(self, *rest, **more):
        self.end_server()
        super().assert_nothing_left(*rest, **more)


def add_cells():
    for victim, stages in MATRIX.items():
        for stage, outcomes in stages.items():
            for number, outcome in outcomes.items():
                def cell(self, story=(victim, stage, number, outcome)):
                    self.play(*story)
                words = f"{number.name} of {victim} in {stage} {outcome}".lower()
                setattr(KillMatrix, "test_" + re.sub(r"\W+", "_", words), cell)


class SeveralAtOnce(unittest.TestSuite):
    """Played one by one, cells would mostly wait."""

    def run(self, result, debug=False):
        cases = list(self)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            played = [(case, pool.submit(self.play, case)) for case in cases]
            for case, future in played:
                own = future.result()
                result.startTest(case)
                for add, found in ((result.addFailure, own.failures), (result.addError, own.errors)):
                    for _, text in found:
                        add(case, (AssertionError, AssertionError(text), None))
                if own.wasSuccessful():
                    result.addSuccess(case)
                result.stopTest(case)
        return result

    @staticmethod
    def play(case):
        own = unittest.TestResult()
        case.run(own)
        return own


add_cells()


def load_tests(loader, *_):
    return SeveralAtOnce(loader.loadTestsFromTestCase(KillMatrix))


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(table())
    else:
        unittest.main()
