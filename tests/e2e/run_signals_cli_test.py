#!/usr/bin/env python3
"""Signals to a launcher, and their effect on its workers. Numbers are items of the launcher's checklist."""

import fcntl
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
import unittest

from fleet_of_agents import PATIENCE, QUICK_C10D, Fleet, lives, until
from needs import skip_or_fail

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

# Traces a process: if that process is killed, its parent is not notified until the tracer has ended.
HOLDER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
seize = 0x4206
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print("held" if libc.ptrace(seize, int(sys.argv[1]), None, None) == 0 else "not allowed", flush=True)
sys.stdin.read()
"""


class Alone(Fleet):
    """A job of one node."""

    BACKEND = None

    def job(self, *options, **more):
        return self.agent("--standalone", *options, **more)


class Signalled(Alone):
    def test_launch065_a_worker_leads_its_own_session_and_is_the_launchers_child(self):
        agent = self.job("--nproc-per-node", "2")
        for worker in agent.workers(2):
            self.assertEqual((worker.group, worker.session, worker.parent), (worker.pid, worker.pid, agent.pid))
        agent.order("exit 0")
        self.assert_ends(0, agent)
        self.assert_nothing_left()

    def test_launch123_a_signal_is_handed_on_to_every_worker_and_ends_the_job(self):
        for number in HANDLED:
            with self.subTest(signal=number.name):
                agent = self.job("--nproc-per-node", "2", words=("parent",))
                workers = agent.workers(2)
                agent.send(number)
                self.assert_ends(1, agent)
                for worker in workers:
                    self.assertEqual(worker.signals(), [number.name])
                agent.await_output(f"signal {number.value} came|{number.name} came")
                self.assert_nothing_left()

    def test_launch123_it_reaches_the_whole_group_of_a_worker(self):
        agent = self.job("--shutdown-timeout", "600", words=("stubborn", "parent"))
        worker = agent.worker()
        agent.send(signal.SIGTERM)
        until(lambda: not lives(worker.children[0]), "its child got the signal, too")
        worker.order("exit 0")
        self.assert_ends(1, agent)

    def test_launch124_ctrl_c_in_a_terminal_reaches_workers_exactly_once(self):
        parent, child = pty.openpty()
        self.addCleanup(os.close, parent)

        def take_terminal():
            os.setsid()
            fcntl.ioctl(child, termios.TIOCSCTTY, 0)
        agent = self.job("--nproc-per-node", "2", "--shutdown-timeout", "600", words=("stubborn",), stdin=child,
                         preexec_fn=take_terminal)
        os.close(child)
        workers = agent.workers(2)
        os.write(parent, b"\x03")
        for worker in workers:
            until(worker.signals, "Ctrl-C reaches it")
        agent.order("exit 0")
        self.assert_ends(1, agent)
        self.assertEqual([worker.signals() for worker in workers], [["SIGINT"], ["SIGINT"]])

    def test_launch125_a_signal_that_is_not_handled_kills_the_launcher_and_with_it_the_workers(self):
        agent = self.job(words=("parent", "stray"))
        agent.worker()
        agent.send(signal.SIGUSR1)
        self.assert_ends(-signal.SIGUSR1, agent)
        self.assert_nothing_left()

    def test_under_nohup_a_hangup_does_not_end_the_job_and_workers_are_as_ever(self):
        agent = self.job(wrapper=("nohup",))
        worker = agent.worker()
        self.assertEqual(worker.parent, agent.pid, "nohup has become the launcher")
        self.assertEqual(worker.dispositions["SIGHUP"], "default")
        self.assertNotIn("ignored", worker.dispositions.values())
        agent.send(signal.SIGHUP)
        agent.send(signal.SIGTERM)  # which comes after it
        self.assert_ends(1, agent)
        self.assertEqual(worker.signals(), ["SIGTERM"])


class Insisted(Alone):
    """More than one signal, or one that no worker handles."""

    def test_launch128_a_second_signal_is_sigterm_with_another_grace_and_then_sigkill(self):
        agent = self.job("--shutdown-timeout", "2", words=("stubborn",))
        worker = agent.worker()
        agent.send(signal.SIGINT)
        until(lambda: worker.signals() == ["SIGINT"], "the first")
        second = time.monotonic()
        agent.send(signal.SIGINT)
        self.assert_ends(1, agent)
        self.assertGreaterEqual(time.monotonic() - second, 1.9)
        self.assertEqual(worker.signals(), ["SIGINT", "SIGTERM"])
        self.assert_nothing_left()

    def test_what_a_signal_does_and_how_long_it_takes_is_printed_at_once(self):
        agent = self.job("--shutdown-timeout", "600", words=("stubborn",))
        agent.worker()
        for number, printed in ((signal.SIGINT, r"SIGINT came: the workers receive it; those that are left are killed in 600 s"),
                                (signal.SIGTERM, r"SIGTERM came again: the workers receive SIGTERM; .* killed in 600 s"),
                                (signal.SIGTERM, r"SIGTERM came again: the workers are killed\n")):
            agent.send(number)
            agent.await_output(printed)
        self.assert_ends(1, agent)

    def test_a_third_signal_ends_it_all_at_once(self):
        agent = self.job("--shutdown-timeout", "600", words=("stubborn", "stray"))
        worker = agent.worker()
        for expected in (["SIGTERM"], ["SIGTERM", "SIGTERM"]):
            agent.send(signal.SIGTERM)
            until(lambda expected=expected: worker.signals() == expected, f"{expected}")
        agent.send(signal.SIGTERM)
        self.assert_ends(1, agent)
        self.assert_nothing_left()

    def test_launch152_the_grace_can_be_shortened_and_the_flag_goes_before_the_variable(self):
        variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
        for options, environment in ((("--shutdown-timeout", "1"), {variable: "600"}), ((), {variable: "1"})):
            with self.subTest(options=options):
                agent = self.job(*options, words=("stubborn",), environment=environment)
                worker = agent.worker()
                reported = time.monotonic()
                agent.send(signal.SIGTERM)
                self.assert_ends(1, agent)
                took = time.monotonic() - reported
                self.assertGreaterEqual(took, 0.9)
                self.assertLess(took, 29, "the default")
                self.assertEqual(worker.signals(), ["SIGTERM"])
                self.assert_nothing_left()

    def test_launch153_a_worker_that_cannot_be_killed_does_not_keep_the_launcher(self):
        agent = self.job("--shutdown-timeout", "0", words=("stubborn",))
        worker = agent.worker()
        holder = subprocess.Popen([sys.executable, "-I", "-c", HOLDER, str(worker.pid)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(holder.communicate)
        skip_or_fail("" if holder.stdout.readline() == "held\n" else "processes may not be held here (ptrace)",
                     "MUSTER_REQUIRE_PTRACE")
        agent.send(signal.SIGTERM)
        self.assert_ends(1, agent)
        agent.await_output("worker 0 cannot be killed, and is left behind")

    def test_a_stopped_worker_is_ended_too(self):
        agent = self.job("--shutdown-timeout", "1")
        worker = agent.worker()
        worker.kill(signal.SIGSTOP)
        agent.send(signal.SIGTERM)
        self.assert_ends(1, agent)
        self.assert_nothing_left()


class Orphans(Alone):
    def test_launch150_nothing_outlives_a_launcher_that_is_killed(self):
        agent = self.job("--nproc-per-node", "2", words=("stubborn", "parent", "stray"))
        agent.workers(2)
        killed = time.monotonic()
        agent.process.kill()
        agent.process.wait()
        self.assert_nothing_left()
        print(f"nothing was left {time.monotonic() - killed:.2f} s after the launcher was killed")

    def test_launch151_what_a_failed_worker_left_behind_goes_with_the_launcher(self):
        agent = self.job(words=("parent", "stray"))
        agent.worker().order("exit 3")
        self.assert_ends(1, agent)
        self.assert_nothing_left(patience=1)

    def test_what_a_failed_worker_left_behind_is_gone_when_the_next_attempt_begins(self):
        agent = self.job("--max-restarts", "1", "--shutdown-timeout", "1", words=("parent", "stray"))
        before = agent.worker()
        before.order("exit 3")
        agent.worker(but=[before])
        self.assertEqual([lives(child) for child in before.children], [False, False])
        agent.order("exit 0")
        self.assert_ends(0, agent)
        self.assert_nothing_left(patience=1)


class AmongNodes(Fleet):
    def test_launch126_a_signal_before_the_first_start_is_an_orderly_end(self):
        for number in HANDLED:
            with self.subTest(signal=number.name):
                agent = self.agent(nodes="2", host=True)
                agent.await_output("1 of 2 nodes are here")
                agent.send(number)
                self.assert_ends(1, agent)
                self.assertEqual(agent.all_workers(), [])
                self.assert_nothing_left()

    def test_launch129_a_signal_during_the_exit_barrier_is_a_failure_of_this_node_alone(self):
        self.serve()
        early, late = (self.agent("--verbose", nodes="2", host=False) for _ in range(2))
        early.worker().order("exit 0")
        worker = late.worker()
        key = self.prefix_of(0) + "torchelastic/agent/terminal_state/num_members"
        until(lambda: self.store(self.endpoint, "check", key)["value"], "the first is at the barrier")
        early.send(signal.SIGTERM)
        self.assert_ends(1, early)
        self.assertEqual((worker.lives, worker.signals()), (True, []))
        worker.order("exit 0")
        self.assert_ends(0, late)

    def test_launch126_a_signal_ends_the_attempt_to_reach_a_store_that_does_not_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(PATIENCE)
            self.endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
            self.BACKEND, self.CONF = "c10d", QUICK_C10D
            agent = self.agent(nodes="2", host=False)
            connection, _ = silent.accept()
            with connection:
                agent.send(signal.SIGTERM)
                self.assert_ends(1, agent)
        self.assertFalse(set(self.left()), "the guardian ends before its launcher")
        agent.await_output("SIGTERM came before the rendezvous was reached")
        self.assert_nothing_left()

    def test_launch130_a_signal_during_a_later_rendezvous_leaves_no_worker(self):
        self.serve()
        lost, agent = (self.agent(nodes="2", host=False, words=("stray",)) for _ in range(2))
        worker = agent.worker()
        lost.worker()
        lost.process.kill()
        agent.await_output("round 1: 1 of 2 nodes are here")
        self.assertFalse(worker.lives)
        agent.send(signal.SIGTERM)
        self.assert_ends(1, agent)
        self.assertEqual(len(agent.all_workers()), 1)
        self.assert_nothing_left(but=self.agents[:1])


if __name__ == "__main__":
    unittest.main()
