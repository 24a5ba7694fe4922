#!/usr/bin/env python3
"""The output of workers under `muster run`: files, echo, prefixes; nothing is lost or torn."""

import collections
import os
import re
import stat
import unittest

from launching import Launching, eventually

TWO_STREAMS = 'echo "out $RANK"; echo "err $RANK" >&2'


class Logs(Launching, unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.root = self.folder / "logs"

    def job(self, worker, *options, workers=1, **more):
        """A job of `workers` that logs to self.root. The launcher itself may print nothing on stderr."""
        return self.run_job("--log-dir", self.root, f"--nproc-per-node={workers}", *options, "--no-python",
                            worker, **{"env": {"OMP_NUM_THREADS": "1"}, **more})

    def files(self):
        return self.logs(self.root)

    # --- directories ------------------------------------------------------------------------------

    def test_launch101_error_files_have_a_directory_for_each_worker_and_attempt(self):
        worker = self.script('echo "$TORCHELASTIC_ERROR_FILE"\n'
                             '[ -d "$(dirname "$TORCHELASTIC_ERROR_FILE")" ] || exit 9\n'
                             '[ "$TORCHELASTIC_RESTART_COUNT" = 1 ]')
        outcome = self.job(worker, "--max-restarts=1", workers=2)
        run = self.run_directory(self.root)
        # In the first attempt, the second worker may have been ended before it printed anything.
        for line in outcome.out.splitlines():
            self.assertRegex(line, rf"^{re.escape(str(run))}/attempt_[01]/[01]/error\.json$")
        for rank in "01":
            self.assertIn(f"{run}/attempt_1/{rank}/error.json", outcome.out.splitlines())

    def test_launch107_without_options_output_reaches_the_console_as_it_is(self):
        outcome = self.run_job("--nproc-per-node=2", "--no-python", self.script(TWO_STREAMS),
                               env={"OMP_NUM_THREADS": "1"})
        self.assertEqual(sorted(outcome.out.splitlines()), ["out 0", "out 1"])
        self.assertEqual(sorted(outcome.err.splitlines()), ["err 0", "err 1"])
        run = self.run_directory()
        self.assertRegex(str(run.parent.name), r"^torchelastic_[a-z0-9_]{8}$")
        self.assertEqual(stat.S_IMODE(run.parent.stat().st_mode), 0o700)
        self.assertEqual(sorted(os.listdir(run / "attempt_0")), ["0", "1"])
        self.assertEqual(self.logs(), {})

    def test_launch108_a_run_has_its_own_directory_in_the_root(self):
        self.job(self.script(TWO_STREAMS), "--rdzv-id=job7")
        run = self.run_directory(self.root)
        self.assertRegex(run.name, r"^job7_[a-z0-9_]{8}$")
        self.assertEqual(stat.S_IMODE(run.stat().st_mode), 0o700)
        self.assertEqual(os.listdir(self.temporary), [])

    def test_launch119_each_attempt_has_its_own_logs_and_earlier_ones_are_kept(self):
        worker = self.script('echo "attempt $TORCHELASTIC_RESTART_COUNT"; [ "$TORCHELASTIC_RESTART_COUNT" = 2 ]')
        self.job(worker, "-r", "1", "--max-restarts=2", "--quiet")
        self.assertEqual(self.files(), {f"attempt_{n}/0/stdout.log": f"attempt {n}\n".encode() for n in range(3)})

    def test_launch118_without_a_log_directory_there_is_no_file_and_no_echo(self):
        worker = self.script('echo "file=<$TORCHELASTIC_ERROR_FILE>"')
        outcome = self.run_job("--log-dir", "/dev/null", "-t", "3", "--no-python", worker)
        self.assertEqual(outcome.out, "file=<>\n", "no prefix: it goes straight to the console")
        self.assertEqual(os.listdir(self.temporary) + os.listdir(self.here), [])

    # --- where streams go -------------------------------------------------------------------------

    def test_launch109_redirected_output_is_in_files_only_and_byte_by_byte(self):
        written = bytes(range(256)) * 64 + b"no newline at the end"
        (self.folder / "payload").write_bytes(written)
        worker = self.script(f'cat "{self.folder}/payload"; cat "{self.folder}/payload" >&2')
        outcome = self.job(worker, "-r", "3")
        self.assertEqual((outcome.out, outcome.err), ("", ""))
        self.assertEqual(self.files(), {"attempt_0/0/stdout.log": written, "attempt_0/0/stderr.log": written})

    def test_launch110_launch111_teed_output_is_in_files_and_on_its_console_with_a_prefix(self):
        outcome = self.job(self.script(TWO_STREAMS), "-t", "3", workers=2)
        self.assertEqual(sorted(outcome.out.splitlines()), ["[default0]:out 0", "[default1]:out 1"])
        self.assertEqual(sorted(outcome.err.splitlines()), ["[default0]:err 0", "[default1]:err 1"])
        self.assertEqual(self.files(), {"attempt_0/0/stdout.log": b"out 0\n", "attempt_0/0/stderr.log": b"err 0\n",
                                        "attempt_0/1/stdout.log": b"out 1\n", "attempt_0/1/stderr.log": b"err 1\n"})

    def test_launch111_a_prefix_starts_with_the_role(self):
        self.assertEqual(self.job(self.script("echo hi"), "-t", "3", "--role", "tr").out, "[tr0]:hi\n")

    def test_launch112_a_prefix_can_be_a_template(self):
        worker = self.script("echo hi")
        for template, line in (("[rank${rank}]: ", "[rank0]: hi"), ("", "[default0]:hi"),
                               ("$foo $local_rank/$role_name $$ ", "$foo 0/default $ hi")):
            with self.subTest(template):
                shown = self.job(worker, "-t", "3", env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": template}).out
                self.assertEqual(shown, line + "\n")
        host = os.uname().nodename.split(".")[0]
        self.assertEqual(self.job(worker, "-t", "3", "--log-line-prefix-template", "${hostname} $rank: ").out,
                         f"{host} 0: hi\n")

    def test_launch113_streams_of_single_workers(self):
        outcome = self.job(self.script(TWO_STREAMS), "-r", "0:1,1:2", "-t", "1:1", workers=2)
        self.assertEqual(outcome.out, "[default1]:out 1\n")
        self.assertEqual(outcome.err, "err 0\n")
        self.assertEqual(self.files(), {"attempt_0/0/stdout.log": b"out 0\n", "attempt_0/1/stdout.log": b"out 1\n",
                                        "attempt_0/1/stderr.log": b"err 1\n"})

    def test_launch114_a_filter_chooses_the_shown_workers_and_all_have_files(self):
        outcome = self.job(self.script(TWO_STREAMS), "-t", "3", "--local-ranks-filter", "1", workers=3)
        self.assertEqual((outcome.out, outcome.err), ("[default1]:out 1\n", "[default1]:err 1\n"))
        self.assertEqual(len(self.files()), 6)
        self.assertEqual(self.files()["attempt_0/2/stderr.log"], b"err 2\n")

    def test_launch115_a_filter_silences_workers_without_files(self):
        outcome = self.job(self.script(TWO_STREAMS), "--local-ranks-filter", "0,2", workers=3)
        self.assertEqual(sorted(outcome.out.splitlines()), ["out 0", "out 2"])
        self.assertEqual(sorted(outcome.err.splitlines()), ["err 0", "err 2"])

    # --- copies of chosen lines -------------------------------------------------------------------

    def test_launch116_chosen_lines_are_copied_to_one_file(self):
        worker = self.script('echo "out $RANK"; echo "not this one"; echo "bad $RANK"; echo "out err" >&2')
        self.job(worker, "-t", "3", "--duplicate-stdout-filters", "out,bad", workers=2)
        copied = self.files()["attempt_0/filtered_stdout.log"].decode()
        self.assertEqual(sorted(copied.splitlines()),
                         ["[default0]:bad 0", "[default0]:out 0", "[default1]:bad 1", "[default1]:out 1"])
        self.assertNotIn("attempt_0/filtered_stderr.log", self.files())

    def test_launch117_without_tee_the_file_of_chosen_lines_is_empty(self):
        self.job(self.script(TWO_STREAMS), "-r", "3", "--duplicate-stderr-filters", "err")
        self.assertEqual(self.files()["attempt_0/filtered_stderr.log"], b"")

    # --- nothing lost, nothing torn ---------------------------------------------------------------

    def test_launch120_the_echo_is_complete_when_the_launcher_ends(self):
        worker = self.script('i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i+1)); done\n'
                             'echo "last words" >&2; exit $STATUS')
        for status in (0, 1):
            with self.subTest(status):
                outcome = self.job(worker, "-t", "3", status=status,
                                   env={"STATUS": str(status), "OMP_NUM_THREADS": "1"})
                self.assertEqual(outcome.out, "".join(f"[default0]:line {i}\n" for i in range(2000)))
                self.assertIn("[default0]:last words\n", outcome.err)

    def test_launch121_a_last_line_without_end_is_echoed(self):
        self.assertEqual(self.job(self.script('printf "whole\\nhalf"'), "-t", "1").out.rstrip("\n"),
                         "[default0]:whole\n[default0]:half")

    def test_launch122_bytes_that_are_no_text_do_not_stop_the_echo(self):
        outcome = self.job(self.script(r'printf "a\377\376b\0c\n"; echo after'), "-t", "1")
        self.assertEqual(len(outcome.out.splitlines()), 2)
        self.assertIn("[default0]:after\n", outcome.out)
        self.assertEqual(self.files()["attempt_0/0/stdout.log"], b"a\xff\xfeb\0c\nafter\n")

    def test_a_progress_bar_is_one_line(self):
        self.assertEqual(self.job(self.script(r'printf "10%%\r50%%\r100%%\n"'), "-t", "1").out.count("[default0]:"), 1)

    def test_a_progress_bar_is_shown_while_it_moves(self):
        worker = self.script(r'printf "start\n\r 1%%\r 2%%"; while [ ! -e "$SEEN/go" ]; do sleep 0.02; done; '
                             r'printf "\r100%%\nend\n"')
        job = self.launch("--log-dir", self.root, "-t", "1", "--no-python", worker)
        shown = b""
        while not shown.endswith(b"[default0]: 2%\n"):
            more = os.read(job.stdout.fileno(), 4096)
            self.assertTrue(more, f"the end, after {shown}")
            shown += more
        (self.seen / "go").touch()
        outcome = self.ended(job)
        self.assertTrue(outcome.out.endswith("[default0]:\r 1%\r 2%\r100%\n[default0]:end\n"), repr(outcome.out))

    def test_a_hundred_workers_at_once_tear_no_line_and_lose_none(self):
        workers, lines = 100, 200
        # All write at once, and every line in two pieces: only the second one ends it.
        worker = self.script('touch "$SEEN/$RANK"; while [ ! -e "$SEEN/go" ]; do sleep 0.05; done\n'
                             f'i=0; while [ $i -lt {lines} ]; do printf "worker $RANK "; '
                             'echo "line $i ------------------------------- end"; i=$((i+1)); done')
        job = self.launch("--log-dir", self.root, f"--nproc-per-node={workers}", "-t", "1", "--no-python", worker,
                          env={"OMP_NUM_THREADS": "1"})
        self.wait_for_seen(*map(str, range(workers)))
        (self.seen / "go").touch()
        outcome = self.ended(job)
        self.assertEqual((outcome.status, outcome.err), (0, ""))
        next_line = collections.Counter()
        for line in outcome.out.splitlines():
            if re.fullmatch(r"\[default(\d+)\]:worker \1 ", line):
                continue  # its worker has not run for 0.3 s between the two pieces: shown, and then again as a whole
            whole = re.fullmatch(r"\[default(\d+)\]:worker (\d+) line (\d+) -{31} end", line)
            self.assertTrue(whole, f"torn: {line!r}")
            rank, printed, number = map(int, whole.groups())
            self.assertEqual((rank, next_line[rank]), (printed, number), "in the order in which they were written")
            next_line[rank] += 1
        self.assertEqual(next_line, {rank: lines for rank in range(workers)})
        self.assertEqual([log.count(b"\n") for log in self.files().values()], [lines] * workers)

    def test_a_hundred_megabytes_pass_without_loss(self):
        size, line = 100_000_000, 100
        worker = self.python_script(
            "import sys\n"
            "block = 1000\n"
            f"for start in range(0, {size // line}, block):\n"
            f"    sys.stdout.write(''.join('%0{line - 1}d\\n' % i for i in range(start, start + block)))\n")
        console = self.folder / "console"
        with open(console, "wb") as shown:
            job = self.launch("--log-dir", self.root, "-t", "1", worker, stdout=shown)
            self.assertEqual(self.ended(job), (0, "", ""))
        log = next(self.root.rglob("stdout.log"))
        self.assertEqual(log.stat().st_size, size)
        prefix = b"[default0]:"
        with open(log, "rb") as written, open(console, "rb") as echoed:
            for number in range(size // line):
                one = written.readline()
                if int(one) != number or echoed.readline() != prefix + one:
                    self.fail(f"line {number} is not what it was")
            self.assertEqual(echoed.read(), b"")

    def test_a_slow_reader_of_the_echo_gets_all_of_it(self):
        size = 3_000_000
        worker = self.script(f'head -c {size} /dev/zero | tr "\\0" x | fold -w 99')
        job = self.launch("--log-dir", self.root, "-t", "1", "--no-python", worker)
        # The worker does not wait for a reader: nothing is read until all has been written.
        eventually(lambda: sum(log.count(b"x") for log in self.logs_so_far()) == size, "the worker has written all")
        outcome = self.ended(job)
        self.assertEqual((outcome.status, outcome.out.count("x")), (0, size))

    def logs_so_far(self):
        return [path.read_bytes() for path in self.root.rglob("stdout.log")]

    def test_a_reader_that_goes_away_does_not_stop_the_job(self):
        worker = self.script('i=0; while [ $i -lt 500 ]; do echo "line $i"; i=$((i+1)); done; touch "$SEEN/done"')
        job = self.launch("--log-dir", self.root, "-t", "1", "--no-python", worker)
        job.stdout.readline()
        job.stdout.close()
        job.stdout = None
        self.assertEqual(self.ended(job).status, 0)
        self.assertTrue((self.seen / "done").exists())
        self.assertEqual(self.files()["attempt_0/0/stdout.log"].count(b"\n"), 500)


if __name__ == "__main__":
    unittest.main()
