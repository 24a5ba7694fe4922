#!/usr/bin/env python3
"""Failing workers of `muster run`: which are stopped, which is the first failure, what is reported, and with which
status it ends."""

import json
import os
import pathlib
import re
import signal
import time
import unittest

from launching import Launching, eventually

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 1, in main\nValueError: no such thing\n'
# The error file of PyTorch's decorator.
RECORDED = {"message": {"message": "ValueError: no such thing",
                        "extraInfo": {"py_callstack": TRACE, "timestamp": "1700000000"}}}
REST = "while :; do sleep 0.05; done"  # in short pieces, so that a trap runs soon


class Failing(Launching, unittest.TestCase):
    """Workers that fail, and a reader of the report about them."""

    def job(self, text, *options, workers=1, status=1, **more):
        """Runs a job of workers that run `text`. Only the report may be on stderr."""
        more["env"] = {"OMP_NUM_THREADS": "1", **more.get("env", {})}
        return self.run_job(f"--nproc-per-node={workers}", *options, "--no-python", self.script(text), status=status,
                            **more)

    @staticmethod
    def fields(report):
        """The fields of the other failures, each a dictionary, and those of the root cause."""
        others, root = report.split("Root Cause (first observed failure):\n")
        def read(block):
            return dict(re.findall(r"(?m)^  (\w+) *: (.*)$", block))

        return [read(block) for block in re.split(r"(?m)^\[\d+\]:$", others)[1:]], read(root)

    def codes(self, report):
        """Exit codes by rank, and the rank of the root cause."""
        others, root = self.fields(report)
        codes = {int(one["rank"].split()[0]): int(one["exitcode"].split()[0]) for one in [*others, root]}
        return codes, int(root["rank"].split()[0])

    @staticmethod
    def first_fails_when_ready(workers):
        """Worker 0 exits with 3 as soon as the others have written their rank to $SEEN."""
        return (f'if [ $RANK = 0 ]; then while [ "$(ls "$SEEN" | wc -l)" -lt {workers - 1} ]; do sleep 0.05; done; '
                'exit 3; fi\n')

    def leave(self, reported, status=1):
        """A worker that writes this to its error file."""
        (self.folder / "told").write_bytes(reported if isinstance(reported, bytes) else json.dumps(reported).encode())
        return f'cp "{self.folder}/told" "$TORCHELASTIC_ERROR_FILE"; exit {status}'


class Reports(Failing):

    def test_launch079_when_one_fails_the_others_are_stopped(self):
        self.job(self.first_fails_when_ready(3) + 'trap \'echo TERM > "$SEEN/$RANK"; exit 5\' TERM\n'
                 f': > "$SEEN/$RANK"\n{REST}', workers=3)
        self.assertEqual({path.name: path.read_text(encoding="utf-8") for path in self.seen.iterdir()},
                         {"1": "TERM\n", "2": "TERM\n"})

    def test_launch080_the_report_names_the_first_failure_and_the_stopped_workers(self):
        outcome = self.job("[ $RANK = 1 ] && exit 3; exec sleep 600", workers=3)
        self.assertIn("ChildFailedError", outcome.err)
        self.assertIn(f"\n{self.folder}/worker FAILED\n", outcome.err)
        self.assertEqual(self.codes(outcome.err), ({0: -15, 1: 3, 2: -15}, 1))
        others, root = self.fields(outcome.err)
        for one in [*others, root]:
            self.assertRegex(one["time"], r"^\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d$")
            self.assertRegex(one["rank"], r"^\d \(local_rank: \d\)$")
            self.assertRegex(one["exitcode"], r"^-?\d+ \(pid: \d+\)$")
            self.assertEqual(one["error_file"], "<N/A>")
        self.assertRegex(others[0]["traceback"], r"^Signal 15 \(SIGTERM\) received by PID \d+$")
        self.assertEqual(outcome.out, "")

    def test_the_title_is_the_script_or_module_as_it_was_typed(self):
        for name in ("train.py", "module.py"):
            (self.here / name).write_text("raise SystemExit(4)", encoding="utf-8")
        self.assertIn("\ntrain.py FAILED\n", self.run_job("train.py", status=1).err)
        self.assertIn("\nmodule FAILED\n", self.run_job("-m", "module", status=1).err)

    def test_launch081_a_worker_killed_by_a_signal_is_reported_with_its_name(self):
        _, root = self.fields(self.job("ulimit -c 0; kill -s SEGV $$").err)
        self.assertRegex(root["exitcode"], r"^-11 ")
        self.assertRegex(root["traceback"], r"^Signal 11 \(SIGSEGV\) received by PID \d+$")

    def test_launch082_a_worker_that_ends_with_0_after_sigterm_is_not_in_the_report(self):
        outcome = self.job(f'{self.first_fails_when_ready(2)} trap "exit 0" TERM; touch "$SEEN/$RANK"\n{REST}',
                           workers=2)
        self.assertEqual(self.codes(outcome.err), ({0: 3}, 0))
        self.assertIn("Failures:\n  <NO_OTHER_FAILURES>\n", outcome.err)

    def test_launch083_of_failures_seen_at_once_the_one_that_ended_first_is_the_cause(self):
        worker = self.script('echo $$ > "$SEEN/$RANK.part"; mv "$SEEN/$RANK.part" "$SEEN/$RANK"\n'
                             'while [ ! -e "$SEEN/go$RANK" ]; do sleep 0.05; done; exit 3')
        job = self.launch("--nproc-per-node=4", "--no-python", worker, env={"OMP_NUM_THREADS": "1"})
        self.wait_for_seen("0", "1", "2", "3")  # workers start in turn: with 3 running, the launcher watches the others
        job.send_signal(signal.SIGSTOP)  # the launcher sees nothing until all have ended, the last one first
        try:
            for rank in ("2", "1", "0"):
                (self.seen / f"go{rank}").touch()
                stat = pathlib.Path("/proc", (self.seen / rank).read_text(encoding="utf-8").strip(), "stat")
                eventually(lambda: ") Z " in stat.read_text(encoding="utf-8"), f"worker {rank} has ended")
        finally:
            job.send_signal(signal.SIGCONT)
        outcome = self.ended(job)
        self.assertEqual((outcome.status, self.codes(outcome.err)), (1, ({0: 3, 1: 3, 2: 3, 3: -15}, 2)))

    def test_launch084_a_victims_error_file_does_not_make_it_the_cause(self):
        # torchrun uses the time in the file, and names the victim.
        leave = self.leave(RECORDED)
        outcome = self.job(f"{self.first_fails_when_ready(2)} trap '{leave}' TERM; touch \"$SEEN/$RANK\"\n{REST}",
                           workers=2)
        self.assertEqual(self.codes(outcome.err), ({0: 3, 1: 1}, 0))
        self.assertIn("ValueError: no such thing", outcome.err, "it is reported nevertheless")

    def test_launch085_a_recorded_exception_is_shown_as_a_trace_with_its_file(self):
        outcome = self.job(self.leave(RECORDED))
        _, root = self.fields(outcome.err)
        self.assertEqual(root["error_file"], f"{self.run_directory()}/attempt_0/0/error.json")
        self.assertIn("  traceback : Traceback (most recent call last):\n"
                      '    File "train.py", line 1, in main\n'
                      "  ValueError: no such thing\n", outcome.err)

    def test_launch086_borders_are_60_wide_at_most(self):
        borders = re.findall(r"(?m)^(?:=+|-+)$", self.job("exit 3").err)
        self.assertEqual([len(border) for border in borders], [60] * 4)

    def test_the_last_output_of_a_worker_is_in_the_report(self):
        self.assertIn("the real reason", self.job("echo first; echo 'the real reason' >&2; exit 3", "-r", "3").err)

    def test_the_report_comes_once_and_last(self):
        outcome = self.job("echo some words >&2; exit 3", "-t", "3", workers=2)
        self.assertEqual(outcome.err.count("ChildFailedError"), 1)
        self.assertRegex(outcome.err.splitlines()[-1], r"^=+$")

    def test_launch106_an_error_file_that_cannot_be_read_does_not_stop_the_report(self):
        for broken in (b'{"message": {"mess', b"", b"[]", b"7", {"no": "message"}, {"message": 7}, b"\xff\xfe",
                       b"[" * 9999):
            with self.subTest(broken):
                self.assertEqual(self.codes(self.job(self.leave(broken, status=3)).err), ({0: 3}, 0))


class Restarts(Failing):

    def test_launch087_failures_within_the_budget_end_well(self):
        self.job(f'"{self.witness()}" > /dev/null; [ "$TORCHELASTIC_RESTART_COUNT" = 2 ]', "--max-restarts=3", status=0)
        self.assertEqual(sorted(path.name for path in self.seen.glob("*.env")), ["0.0.env", "0.1.env", "0.2.env"])
        seen = [self.seen_environments(attempt)[0] for attempt in range(3)]
        self.assertEqual([one["TORCHELASTIC_RESTART_COUNT"] for one in seen], ["0", "1", "2"])
        self.assertEqual({one["TORCHELASTIC_MAX_RESTARTS"] for one in seen}, {"3"})

    def test_launch088_a_budget_can_be_used_up(self):
        outcome = self.job('touch "$SEEN/$TORCHELASTIC_RESTART_COUNT"; exit 3', "--max-restarts=1")
        self.assertEqual(sorted(os.listdir(self.seen)), ["0", "1"])
        self.assertEqual(self.codes(outcome.err), ({0: 3}, 0))
        self.assertEqual(outcome.err.count("ChildFailedError"), 1, "only what could not be mended is reported")

    def test_launch089_after_a_restart_all_workers_are_new(self):
        self.job('echo $$ > "$SEEN/$RANK.$TORCHELASTIC_RESTART_COUNT"\n'
                 '[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] && exit 0\n'
                 'while [ "$(ls "$SEEN" | wc -l)" -lt 3 ]; do sleep 0.05; done\n'
                 f'[ $RANK = 1 ] && exit 3\n{REST}', "--max-restarts=1", workers=3, status=0)
        pids = {path.name: path.read_text(encoding="utf-8") for path in self.seen.iterdir()}
        self.assertEqual(sorted(pids), ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"])
        self.assertEqual(len(set(pids.values())), 6, pids)

    def test_launch097_a_node_that_is_done_early_does_not_end_the_others(self):
        worker = self.script('echo $$ > "$SEEN/$RANK.part"; mv "$SEEN/$RANK.part" "$SEEN/$RANK"\n'
                             '[ $RANK = 0 ] && exit 0\n'
                             'while [ ! -e "$SEEN/go" ]; do sleep 0.05; done; touch "$SEEN/end$RANK"')
        job = self.launch("--nproc-per-node=3", "--no-python", worker)
        self.wait_for_seen("0", "1", "2")
        early = (self.seen / "0").read_text(encoding="utf-8").strip()
        eventually(lambda: not os.path.exists(f"/proc/{early}"), "the launcher has seen the first one's end")
        (self.seen / "go").touch()
        self.assertEqual(self.ended(job).status, 0)
        self.assertTrue({"end1", "end2"} <= set(os.listdir(self.seen)))


class Stopping(Failing):

    STUBBORN = f'trap \'date +%s.%N > "$SEEN/told"\' TERM; touch "$SEEN/$RANK"\n{REST}'

    def stubborn(self, *options, **more):
        """How long a job takes whose second worker does not end on SIGTERM."""
        began = time.monotonic()
        outcome = self.job(f"{self.first_fails_when_ready(2)}{self.STUBBORN}", *options, workers=2, **more)
        self.assertEqual(self.codes(outcome.err), ({0: 3, 1: -9}, 0))
        return time.monotonic() - began

    def test_launch090_a_worker_that_ignores_sigterm_is_killed_after_30_seconds(self):
        self.stubborn()
        # From the signal that the worker noted to the launcher's end, which follows the worker's death: 30 s, plus or
        # minus one.
        took = time.time() - float((self.seen / "told").read_text(encoding="utf-8"))
        self.assertGreaterEqual(took, 29)
        self.assertLessEqual(took, 31)

    def test_launch152_the_time_to_stop_can_be_shortened(self):
        variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
        for options, variables in ((["--shutdown-timeout=1"], {}), ([], {variable: "1"}),
                                   (["--shutdown-timeout=1"], {variable: "600"}), ([], {"PET_SHUTDOWN_TIMEOUT": "1"})):
            with self.subTest(options=options, variables=variables):
                took = self.stubborn(*options, env=variables)
                self.assertGreaterEqual(took, 1)
                self.assertLess(took, 25, "30 is what it would be otherwise")
                for path in self.seen.iterdir():
                    path.unlink()

    def test_launch091_children_of_workers_that_are_stopped_end_with_them(self):
        self.job(f'{self.first_fails_when_ready(2)} sleep 600 & touch "$SEEN/$RANK"; wait', workers=2)
        self.assert_nothing_runs()

    def test_children_of_the_worker_that_failed_end_too(self):
        self.job("sleep 600 & setsid sleep 600 & exit 3")
        self.assert_nothing_runs()

    def test_children_of_a_worker_that_succeeded_end_too(self):
        self.job("sleep 600 & setsid sleep 600 & exit 0", status=0)
        self.assert_nothing_runs()

    def test_whatever_a_worker_ends_with_the_launcher_ends_with_1(self):
        for how in ("exit 1", "exit 2", "exit 255", "kill -s KILL $$", "kill -s TERM $$"):
            with self.subTest(how):
                self.job(how, status=1)


class ErrorFileOfTheLauncher(Failing):
    """The launcher may itself be a worker, with an error file."""

    def setUp(self):
        super().setUp()
        self.place = self.folder / "parents.json"
        self.reported = {"TORCHELASTIC_ERROR_FILE": str(self.place)}

    def content(self):
        return json.loads(self.place.read_text(encoding="utf-8"))

    def test_launch102_the_causes_error_is_passed_on_with_its_exit_code(self):
        self.place.write_text("what an earlier launcher left", encoding="utf-8")
        self.job(self.leave(RECORDED | {"more": "kept"}, status=3), env=self.reported)
        expected = json.loads(json.dumps(RECORDED)) | {"more": "kept"}
        expected["message"]["errorCode"] = 3
        self.assertEqual(self.content(), expected)

    def test_launch103_a_worker_without_error_file_leaves_none_for_the_parent(self):
        self.job("exit 3", env=self.reported)
        self.assertFalse(self.place.exists())

    def test_launch104_an_error_that_is_a_text_is_shown_and_copied_as_it_is(self):
        plain = {"message": "one line\n  and another", "timestamp": 1700000000}
        outcome = self.job(self.leave(plain), env=self.reported)
        self.assertIn("  traceback : one line\n  and another\n", outcome.err)
        self.assertEqual(self.content(), plain)

    def test_launch105_a_stopped_launcher_names_the_signal(self):
        worker = self.script(f'touch "$SEEN/ready"\n{REST}')
        job = self.launch("--no-python", worker, env=self.reported)
        self.wait_for_seen("ready")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.ended(job).status, 1)
        message = self.content()["message"]
        self.assertIn("SIGTERM", message["message"])
        self.assertTrue(message["extraInfo"]["timestamp"].isdigit())
        self.assertIn("py_callstack", message["extraInfo"])

    def test_a_job_that_ends_well_leaves_none(self):
        self.job("exit 0", status=0, env=self.reported)
        self.assertFalse(self.place.exists())


class ReportsAsJson(Failing):

    def setUp(self):
        super().setUp()
        self.path = self.folder / "failure.json"

    def report(self, text, *options, **more):
        self.job(text, "--failure-report", self.path, *options, **more)
        return json.loads(self.path.read_text(encoding="utf-8"))

    def test_it_names_the_first_failure_and_all_others(self):
        reported = self.report("[ $RANK = 1 ] && exit 3; exec sleep 600", "--rdzv-id=job7", workers=3)
        self.assertEqual((reported["entry_point"], reported["run_id"], reported["restarts"]), (f"{self.folder}/worker", "job7", 0))
        root = reported["root_cause"]
        self.assertEqual((root["rank"], root["local_rank"], root["exitcode"], root["signal"]), (1, 1, 3, None))
        self.assertGreater(root["pid"], 0)
        self.assertRegex(root["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(sorted((one["rank"], one["exitcode"], one["signal"]) for one in reported["failures"]),
                         [(0, -15, "SIGTERM"), (1, 3, None), (2, -15, "SIGTERM")])
        self.assertIn(root, reported["failures"])

    def test_it_has_the_workers_message_or_its_last_lines(self):
        self.assertIn("ValueError: no such thing", self.report(self.leave(RECORDED))["root_cause"]["message"])
        printed = self.report("echo 'the real reason' >&2; exit 3", "-r", "3", "--max-restarts=1")
        self.assertIn("the real reason", printed["root_cause"]["output"])
        self.assertEqual(printed["restarts"], 1)

    def test_it_is_not_there_when_all_went_well(self):
        self.job("exit 0", "--failure-report", self.path, status=0)
        self.assertFalse(self.path.exists())

    def test_a_signal_to_the_launcher_is_reported_too(self):
        worker = self.script(f'touch "$SEEN/ready"\n{REST}')
        job = self.launch("--failure-report", self.path, "--no-python", worker)
        self.wait_for_seen("ready")
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.ended(job).status, 1)
        self.assertIn("root_cause", json.loads(self.path.read_text(encoding="utf-8")))


EVENT_FIELDS = """agent_restarts duration_ms global_rank group_rank hostname metadata raw_error rdzv_backend role
                  run_id state total_run_time worker_id""".split()


class Events(Failing):

    WELL = ["RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "START", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"]

    @staticmethod
    def events(text):
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def states(self, text):
        return [event["metadata"]["state"] for event in self.events(text)]

    def test_launch140_the_console_gets_a_line_of_json_for_each_step(self):
        outcome = self.job("exit 0", "--event-log-handler", "console", workers=2, status=0)
        self.assertEqual(self.states(outcome.err), self.WELL)
        self.assertEqual(outcome.out, "")
        self.assertEqual([event["source"] for event in self.events(outcome.err)],
                         ["AGENT"] * 2 + ["WORKER"] * 4 + ["AGENT"])

    def test_launch141_events_have_the_fields_that_readers_expect(self):
        outcome = self.job("echo $$", "--event-log-handler", "console", "--rdzv-id=job7", "--role=tr", status=0)
        for event in self.events(outcome.err):
            self.assertEqual(list(event), ["name", "source", "timestamp", "metadata"])
            self.assertEqual(event["name"], "torchelastic.worker.status." + event["metadata"]["state"])
            self.assertEqual(event["timestamp"], 0)
            data = event["metadata"]
            self.assertEqual(sorted(data), EVENT_FIELDS)
            self.assertEqual((data["run_id"], data["role"], data["agent_restarts"]), ("job7", "tr", 0))
            inner = json.loads(data["metadata"])
            self.assertEqual(inner["entry_point"], "worker")
            if event["source"] == "WORKER":
                self.assertEqual(data["worker_id"], outcome.out.strip(), "the pid, as text")
                self.assertEqual((inner["local_rank"], inner["role_rank"], inner["role_world_size"]), ([0], [0], [1]))

    def test_launch142_the_agent_succeeds_even_when_workers_fail(self):
        outcome = self.job(f'{self.first_fails_when_ready(3)} [ $RANK = 1 ] && trap "exit 0" TERM\n'
                           f'touch "$SEEN/$RANK"\n{REST}', "--event-log-handler", "console", workers=3)
        ends = self.events(outcome.err)[-4:]
        self.assertEqual([(end["source"], end["metadata"]["state"]) for end in ends],
                         [("WORKER", "FAILED"), ("WORKER", "TERMINATED"), ("WORKER", "FAILED"), ("AGENT", "SUCCEEDED")])
        codes = [json.loads(end["metadata"]["metadata"])["exit_code"] for end in (ends[0], ends[2])]
        self.assertEqual(codes, [[3], [-15]])

    def test_events_of_a_restart_count_it(self):
        outcome = self.job('[ "$TORCHELASTIC_RESTART_COUNT" = 1 ]', "--max-restarts=1",
                           "--event-log-handler", "console", status=0)
        self.assertEqual(self.states(outcome.err).count("RENDEZVOUS"), 2)
        self.assertEqual(self.states(outcome.err)[-2:], ["SUCCEEDED", "SUCCEEDED"])
        self.assertEqual(self.events(outcome.err)[-1]["metadata"]["agent_restarts"], 1)

    def test_launch143_an_unknown_sink_is_refused(self):
        self.refused("--event-log-handler", "nope", "--no-python", self.witness(), status=1, mentions="nope")

    def test_launch144_events_are_silenced_with_the_log_level(self):
        for level, count in (("WARNING", 0), ("INFO", 7)):
            outcome = self.job("exit 0", "--event-log-handler", "console", workers=2, status=0, env={"LOGLEVEL": level})
            self.assertEqual(len(self.events(outcome.err)), count)

    def test_a_file_gets_the_same_with_the_time_of_each(self):
        path = self.folder / "events"
        for jobs in (1, 2):  # a second job appends
            outcome = self.job("exit 0", "--event-log-handler", f"file:{path}", workers=2, status=0)
            self.assertEqual(outcome.err, "")
            self.assertEqual(self.states(path.read_text(encoding="utf-8")), self.WELL * jobs)
        times = [event["time"] for event in self.events(path.read_text(encoding="utf-8"))]
        self.assertEqual(times, sorted(times))
        self.assertRegex(times[0], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")

    def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(self):
        self.refused("--event-log-handler", f"file:{self.folder}/none/events", "--no-python", self.witness(), status=1,
                     mentions=[f"{self.folder}/none/events"])

    def test_a_full_disk_costs_the_events_and_not_the_job(self):
        outcome = self.job("exit 0", "--event-log-handler", "file:/dev/full", status=0)
        self.assertEqual(outcome.err.count("events are lost"), 1, outcome.err)


if __name__ == "__main__":
    unittest.main()
