#!/usr/bin/env python3
"""`muster run` with a watchdog: workers that set timers and exceed them, or sleep uninterruptibly."""

import json
import os
import signal
import stat
import unittest

from launching import Launching
from obedient_worker import __file__ as OBEDIENT

WATCHED = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

# What a worker writes to the pipe, as PyTorch's client does.
TIMERS = """
import json, os, pathlib, signal, sys, time

def ask(scope, seconds, signal_number):
    line = json.dumps({"version": 1, "pid": os.getpid(), "scope_id": scope, "signal": signal_number,
                       "expiration_time": time.time() + seconds if seconds >= 0 else -1})
    pipe = os.open(os.environ["TORCHELASTIC_TIMER_FILE"], os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, (line + "\\n").encode())
    os.close(pipe)

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
rank = int(os.environ["RANK"])
seen = pathlib.Path(os.environ["SEEN"])
"""
HANGS = "signal.pause()\n"


class Watchdog(Launching, unittest.TestCase):
    def test_launch135_workers_find_a_pipe_while_they_run(self):
        for given in ({}, {"TORCHELASTIC_TIMER_FILE": str(self.folder / "timers")}):
            with self.subTest(given=given):
                self.run_job("--standalone", "--no-python", self.script(
                    'test -p "$TORCHELASTIC_TIMER_FILE" && echo "$TORCHELASTIC_TIMER_FILE" > "$SEEN/path"'),
                    env=WATCHED | given)
                path = (self.seen / "path").read_text(encoding="utf-8").strip()
                if given:
                    self.assertEqual(path, given["TORCHELASTIC_TIMER_FILE"])
                else:
                    self.assertRegex(path, f"^{self.temporary}/watchdog_timer_[0-9a-f]{{8}}-[-0-9a-f]+$")
                self.assertFalse(os.path.exists(path), "the pipe is gone with the job")

    def test_launch135_each_attempt_has_a_pipe_of_its_own(self):
        self.run_job("--standalone", "--max-restarts", "1", "--no-python", self.script(
            'test -p "$TORCHELASTIC_TIMER_FILE" || exit 9\n'
            'echo "$TORCHELASTIC_TIMER_FILE" > "$SEEN/$TORCHELASTIC_RESTART_COUNT"\n'
            'test "$TORCHELASTIC_RESTART_COUNT" = 1'), env=WATCHED)
        paths = [(self.seen / name).read_text(encoding="utf-8").strip() for name in ("0", "1")]
        self.assertNotEqual(*paths)
        self.assertEqual([path for path in paths if os.path.exists(path)], [])

    def test_launch136_an_expired_timer_is_a_failure_of_its_worker_and_the_launcher_lives(self):
        report = self.folder / "report.json"
        done = self.run_job("--standalone", "--nproc-per-node", "2", "--failure-report", report, self.python_script(
            TIMERS + "if rank == 1:\n    ask('forward', 0.2, int(signal.SIGKILL))\n" + HANGS), env=WATCHED, status=1)
        self.assertRegex(done.err, r"muster: timer 'forward' of pid \d+ has expired: SIGKILL is sent")
        self.assertRegex(done.err, r"traceback : Signal 9 \(SIGKILL\) received by PID \d+: its timer 'forward' had expired")
        root = json.loads(report.read_text(encoding="utf-8"))["root_cause"]
        self.assertEqual((root["rank"], root["exitcode"]), (1, -9))

    def test_launch136_its_workers_are_started_again(self):
        self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "1", self.python_script(
            TIMERS + "(seen / f'{rank}.{attempt}').touch()\nif attempt == 0:\n"
                     "    ask('step', 0.1, 9 if rank == 0 else 0)\n    " + HANGS), env=WATCHED)
        self.assertEqual(sorted(os.listdir(self.seen)), ["0.0", "0.1", "1.0", "1.1"])

    def test_launch136_any_signal_will_do_and_a_worker_may_survive_it(self):
        done = self.run_job("--standalone", self.python_script(
            TIMERS + "heard = []\nsignal.signal(signal.SIGUSR1, lambda *_: heard.append(1))\n"
                     "ask('warn me', 0, int(signal.SIGUSR1))\nwhile not heard: time.sleep(0.01)\n"), env=WATCHED)
        self.assertIn("SIGUSR1 is sent", done.err)

    def test_launch137_a_released_timer_has_no_effect(self):
        # The second one shows that the time of the first has passed.
        done = self.run_job("--standalone", self.python_script(
            TIMERS + "heard = []\nsignal.signal(signal.SIGUSR1, lambda *_: heard.append(1))\n"
                     "ask('step', 2, 9)\nask('step', -1, 0)\nask('other', 2.3, int(signal.SIGUSR1))\n"
                     "while not heard: time.sleep(0.01)\n"), env=WATCHED)
        self.assertNotIn("'step'", done.err)

    def test_launch138_without_the_switch_the_path_is_handed_on_and_nothing_made(self):
        path = self.folder / "timers"
        for switch in (None, "0", "true", ""):
            with self.subTest(switch=switch):
                seen, = self.environments("--standalone", env={"TORCHELASTIC_TIMER_FILE": str(path),
                                                               "TORCHELASTIC_ENABLE_FILE_TIMER": switch})
                self.assertEqual(seen["TORCHELASTIC_TIMER_FILE"], str(path))
                self.assertFalse(path.exists())
        seen, = self.environments("--standalone")
        self.assertNotIn("TORCHELASTIC_TIMER_FILE", seen)

    def test_a_pipe_that_cannot_be_made_ends_the_job_with_the_reason(self):
        done = self.run_job("--standalone", "--no-python", self.witness(), status=1,
                            env=WATCHED | {"TORCHELASTIC_TIMER_FILE": str(self.folder / "no" / "such" / "folder")})
        self.assertIn("watchdog's pipe", done.err)
        self.assertEqual(os.listdir(self.seen), [])

    def test_malformed_messages_in_the_pipe_do_no_harm(self):
        done = self.run_job("--standalone", "--no-python", self.script(
            'head -c 100000 /dev/urandom > "$TORCHELASTIC_TIMER_FILE"; echo fine'), env=WATCHED)
        self.assertEqual(done.out, "fine\n")

    def test_what_it_does_is_among_the_events(self):
        done = self.run_job("--standalone", "--event-log-handler", "console", self.python_script(
            TIMERS + "ask('forward', 0.1, 9)\n" + HANGS), env=WATCHED, status=1)
        events = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
        watch = [event for event in events if event["metadata"]["state"] == "RUNNING"]
        self.assertEqual([event["name"] for event in watch],
                         ["watchdog started", "timer expired", "kill worker process", "watchdog stopped"])
        reported = json.loads(watch[1]["metadata"]["metadata"])
        self.assertEqual((reported["scope_id"], reported["signal"]), ("forward", "9"))

    def test_a_killed_launcher_leaves_a_pipe_and_no_process_that_waits_at_it(self):
        job = self.launch("--standalone", self.python_script(TIMERS + "(seen / 'here').touch()\n" + HANGS), env=WATCHED)
        self.wait_for_seen("here")
        pipe, = self.temporary.glob("watchdog_timer_*")
        self.assertTrue(stat.S_ISFIFO(pipe.stat().st_mode))
        job.send_signal(signal.SIGKILL)
        self.ended(job)
        with self.assertRaises(OSError, msg="there is no reader"):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


class HealthCheck(Launching, unittest.TestCase):
    def test_launch139_a_port_that_is_no_number_does_not_abort(self):
        for port in ("abc", "", "99999999999999999999"):
            with self.subTest(port=port):
                seen, = self.environments("--standalone", env={"TORCHELASTIC_HEALTH_CHECK_PORT": port})
                self.assertEqual(seen["TORCHELASTIC_HEALTH_CHECK_PORT"], port)


class UninterruptibleSleep(Launching, unittest.TestCase):
    LIMIT = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"
    # Its sleep ends when the pipe that its child opens has a writer.
    SLEEPS = f"""
import os, runpy, sys, threading
sleep_uninterruptibly = runpy.run_path({OBEDIENT!r})["sleep_uninterruptibly"]
fifo = os.environ["SEEN"] + "/fifo"
"""

    def test_a_worker_that_sleeps_for_too_long_ends_the_job_of_its_node_without_a_restart(self):
        done = self.run_job("--standalone", "--nproc-per-node", "2", "--max-restarts", "3", "--shutdown-timeout", "1",
                            self.python_script(self.SLEEPS + "if os.environ['RANK'] == '1':\n"
                                               "    sleep_uninterruptibly(fifo)\nthreading.Event().wait()\n"),
                            env={self.LIMIT: "1"}, status=1)
        self.assertRegex(done.err, r"muster: worker 1 \(pid \d+\) has been in uninterruptible sleep for \w+ seconds")
        self.assertNotIn("begins again", done.err)

    def test_a_sleep_that_ends_in_time_or_that_a_signal_can_end_has_no_effect(self):
        # The claim is about time: more than the limit passes.
        self.run_job("--standalone", self.python_script("import time\ntime.sleep(3)\n"), env={self.LIMIT: "2"})
        for limit in ("600", "0", "-1", "nan"):
            with self.subTest(limit=limit):
                done = self.run_job("--standalone", self.python_script(
                    self.SLEEPS + "import time\nchild = os.fork()\nif not child:\n"
                    "    def sleeps(): return open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[0] == 'D'\n"
                    "    while not (os.path.exists(fifo) and sleeps()): time.sleep(0.01)\n    os.close(os.open(fifo, os.O_WRONLY))\n    os._exit(0)\n"
                    "sleep_uninterruptibly(fifo)\nos.waitpid(child, 0)\nos.unlink(fifo)\n"), env={self.LIMIT: limit})
                self.assertEqual(done.err, "")

    def test_a_limit_that_is_no_number_causes_a_warning(self):
        done = self.run_job("--standalone", "--no-python", "true", env={self.LIMIT: "1 min"})
        self.assertEqual(done.err, f"muster: {self.LIMIT}='1 min' has no effect: write a number of seconds\n")


if __name__ == "__main__":
    unittest.main()
