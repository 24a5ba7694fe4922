#!/usr/bin/env python3
"""`muster run` with unusual consoles, descriptors and folders."""

import os
import signal
import subprocess
import unittest

from launching import Launching, eventually

FLOOD = "i=0; while [ $i -lt 20000 ]; do echo 'a line without a reader, and a few more words'; i=$((i+1)); done"


class Readers(Launching, unittest.TestCase):
    def test_a_reader_that_goes_away_does_not_end_the_job(self):
        worker = self.script('[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] || exit 3\ntouch "$SEEN/second"')
        job = self.launch("--verbose", "--max-restarts=1", "--no-python", worker, stderr=subprocess.PIPE)
        job.stderr.close()
        job.stderr = None
        self.assertEqual(self.ended(job).status, 0)
        self.assertTrue((self.seen / "second").exists())

    def test_an_unread_console_does_not_delay_a_signalled_launcher(self):
        worker = self.script(f'{FLOOD}\ntouch "$SEEN/done"')
        job = self.launch("--tee=3", "--no-python", worker)
        self.wait_for_seen("done")

        def reported():
            job.send_signal(signal.SIGTERM)
            return job.poll() is not None

        eventually(reported, "the launcher ends")

    def launch_unread(self, *arguments):
        """With a full pipe as standard error."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writing, True)
        job = self.launch(*arguments, stderr=writing)
        os.close(writing)
        return job

    def test_a_launcher_with_unread_messages_does_its_work(self):
        worker = self.script('[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] || exit 3\ntouch "$SEEN/second"')
        job = self.launch_unread("--verbose", "--max-restarts=1", "--no-python", worker)
        self.assertEqual(self.ended(job).status, 0)
        self.assertTrue((self.seen / "second").exists())

    def test_one_signal_ends_a_launcher_with_unread_messages(self):
        worker = self.script('touch "$SEEN/ready"\nexec sleep 600')
        job = self.launch_unread("--verbose", "--no-python", worker)
        self.wait_for_seen("ready")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.ended(job).status, 1)


class System(Launching, unittest.TestCase):
    def test_closed_descriptors_are_not_taken_for_our_own_files(self):
        events = self.folder / "events"
        worker = self.script('ls /proc/self/fd > "$SEEN/descriptors"\nexit 3')
        job = self.launch("--verbose", "--event-log-handler", f"file:{events}", "--no-python", worker,
                          program=("sh", "-c", 'exec "$0" "$@" 0<&- 1>&- 2>&-', os.environ["MUSTER_BIN"], "run"))
        self.assertEqual(self.ended(job).status, 1)
        for line in events.read_text(encoding="utf-8").splitlines():
            self.assertTrue(line.startswith("{"), line)
        # ls has a descriptor of its own for the folder.
        self.assertEqual((self.seen / "descriptors").read_text(encoding="utf-8").split(), ["0", "1", "2", "3"])

    def test_a_relative_folder_for_temporary_files_is_made_absolute(self):
        (self.here / "below").mkdir()
        seen = self.environments(env={"TMPDIR": "below"})
        self.assertTrue(seen[0]["TORCHELASTIC_ERROR_FILE"].startswith(f"{self.here}/below/torchelastic_"))

    def test_an_empty_one_is_none(self):
        seen = self.environments("--log-dir", self.folder / "logs", env={"TMPDIR": "",
                                                                        "TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
        self.assertTrue(seen[0]["TORCHELASTIC_TIMER_FILE"].startswith("/tmp/watchdog_timer_"))

    def test_a_report_of_an_earlier_run_is_not_this_ones(self):
        report = self.folder / "report"
        self.run_job("--failure-report", report, "--no-python", self.script("exit 5"), status=1)
        self.assertTrue(report.exists())
        self.run_job("--failure-report", report, "--no-python", "true")
        self.assertFalse(report.exists())

    def test_a_worker_that_reopens_its_output_is_still_followed(self):
        worker = self.script('echo one, and more\necho two > /dev/stdout\necho three')
        outcome = self.run_job("--redirects=3", "--log-dir", self.folder / "logs", "--no-python", worker)
        self.assertEqual(outcome.out, "")
        self.assertEqual(self.logs(self.folder / "logs")["attempt_0/0/stdout.log"], b"two\nthree\n")

    def test_a_file_in_the_place_of_the_watchdogs_pipe_is_not_touched(self):
        precious = self.folder / "precious"
        precious.write_text("precious", encoding="utf-8")
        outcome = self.run_job("--no-python", self.witness(), status=1, env={
            "TORCHELASTIC_ENABLE_FILE_TIMER": "1", "TORCHELASTIC_TIMER_FILE": str(precious)})
        self.assertIn("is no pipe", outcome.err)
        self.assertEqual(precious.read_text(encoding="utf-8"), "precious")
        self.assertEqual(os.listdir(self.seen), [])

    def test_a_folder_is_no_script_unless_python_can_run_it(self):
        folder = self.folder / "package"
        folder.mkdir()
        self.refused(folder, status=1, mentions="__main__.py")
        (folder / "__main__.py").write_text("print('ran')", encoding="utf-8")
        self.assertEqual(self.run_job(folder).out, "ran\n")


if __name__ == "__main__":
    unittest.main()
