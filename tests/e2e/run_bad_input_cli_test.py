#!/usr/bin/env python3
"""Bad input to `muster run`: one clear line, status 2 or 1, and nothing started, made or left."""

import contextlib
import os
import socket
import subprocess
import threading
import unittest

from launching import MUSTER, PATIENCE, Launching
from needs import skip_or_fail


@contextlib.contextmanager
def small_disk(folder, options):
    """A file system of its own there."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=False, text=True,
                             capture_output=True)
    skip_or_fail("no small disk can be mounted here: " + mounted.stderr.strip() if mounted.returncode else "",
                 "MUSTER_REQUIRE_DISKS")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


class BadInput(Launching, unittest.TestCase):
    def test_an_option_that_nearly_exists_is_suggested(self):
        self.refused("--nproc-pernode", "2", "--no-python", "true", status=2, mentions="did you mean '--nproc-per-node'?")
        wrong = subprocess.run([MUSTER, "serve", "--lisen", ":0"], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertIn("'--lisen' was not expected; did you mean '--listen'?", wrong.stderr)

    def test_a_port_here_that_another_program_has_is_an_error_long_before_the_join_times_out(self):
        with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as rude:
            def answer():
                rude.accept()[0].sendall(b"HTTP/1.0 400 Bad request\r\n\r\n")
            threading.Thread(target=answer, daemon=True).start()
            for other in (silent, rude):
                port = other.getsockname()[1]
                outcome = self.run_job("--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--no-python", "true", status=1)
                self.assertIn(f"port {port} of this machine is taken by a program that is no rendezvous server", outcome.err)


    def setUp(self):
        super().setUp()
        self.worker = self.witness()
        self.addCleanup(lambda: self.assertEqual(os.listdir(self.temporary) + os.listdir(self.here), [],
                                                 "something was made, and left"))

    # --- the command line -------------------------------------------------------------------------

    def test_an_unknown_option(self):
        self.refused("--nope", "--no-python", self.worker, status=2, mentions="'--nope'")
        self.refused("-z", "--no-python", self.worker, status=2, mentions="-z")

    def test_an_option_without_its_value(self):
        self.refused("--nnodes", status=2, mentions="--nnodes")
        self.refused("--standalone=1", "--no-python", self.worker, status=2, mentions="--standalone")

    def test_a_script_that_is_not_named(self):
        self.refused("--standalone", status=2, mentions="script")

    def test_a_script_that_is_not_there(self):
        self.refused("nosuch.py", status=1, mentions=["'nosuch.py'", "No such file"])
        self.refused("", status=1, mentions="''")

    def test_a_program_that_is_not_there(self):
        self.refused("--no-python", "nosuch", status=1, mentions="'nosuch'")
        self.refused("--no-python", "./nosuch", status=1, mentions="'./nosuch'")
        self.refused("--no-python", "", status=1, mentions="''")

    def test_a_program_that_is_not_executable(self):
        self.worker.chmod(0o644)
        self.refused("--no-python", self.worker, status=1, mentions=[f"'{self.worker}'", "chmod +x"])
        self.refused("--no-python", self.folder, status=1, mentions="directory")

    def test_an_interpreter_that_is_not_there(self):
        script = self.python_script("")
        self.refused("--python", "/nonexistent/python", script, status=1, mentions="/nonexistent/python")
        self.refused(script, env={"PYTHON_EXEC": "/nonexistent/python"}, status=1, mentions="/nonexistent/python")
        self.refused(script, env={"PATH": "/nonexistent"}, status=1, mentions="PATH")

    def test_numbers_of_nodes_that_cannot_be(self):
        for nodes in ("0", "2:1", "-1", "1:2:3", "a", "", "1:", "99999999999999999999"):
            self.refused(f"--nnodes={nodes}", "--no-python", self.worker, status=1, mentions=["--nnodes", f"'{nodes}'"])
        self.refused("--standalone", "--nnodes=2", "--no-python", self.worker, status=1, mentions="--standalone")

    def test_an_error_in_a_variable_is_reported_with_its_name(self):
        self.refused("--no-python", self.worker, env={"PET_NNODES": ""}, status=1, mentions="PET_NNODES")

    def test_hostile_text_is_shown_as_text(self):
        outcome = self.refused("--nnodes=1\n\x1b[2J", "--no-python", self.worker, status=1)
        self.assertNotIn("\x1b", outcome.err)

    # --- where nodes meet -------------------------------------------------------------------------

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for options in ([f"--master-port={port}"],
                            ["--rdzv-backend=static", f"--rdzv-endpoint=127.0.0.1:{port}"],
                            ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=1"],
                            ["--rdzv-backend=muster", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=1"]):
                with self.subTest(options):
                    self.refused(*options, "--no-python", self.worker, status=1, mentions=[str(port), "already in use"])

    def test_an_unknown_endpoint(self):
        for backend in ("static", "c10d", "muster"):
            self.refused(f"--rdzv-backend={backend}", "--rdzv-endpoint=name.invalid:1234", "--no-python", self.worker,
                         status=1, mentions=["--rdzv-endpoint", "'name.invalid'"])
        self.refused("--master-addr=name.invalid", "--no-python", self.worker, status=1,
                     mentions=["--master-addr 'name.invalid'"])

    # --- files ------------------------------------------------------------------------------------

    def test_a_log_directory_that_cannot_be_made(self):
        for place in (self.worker / "logs", "/proc/logs", "/dev/null/logs"):
            self.refused("--log-dir", place, "--no-python", self.worker, status=1, mentions=[str(place), "--log-dir"])
        self.refused("--no-python", self.worker, env={"TMPDIR": "/nonexistent"}, status=1,
                     mentions=["/nonexistent/torchelastic_", "--log-dir"])

    def test_a_run_id_that_cannot_name_a_directory(self):
        self.refused("--rdzv-id=a/b", "--no-python", self.worker, status=1, mentions=["a/b", "--rdzv-id"])

    def test_a_place_for_the_report_that_cannot_be_written(self):
        for place in (f"{self.folder}/none/report.json", "/proc/none/report.json", str(self.folder)):
            self.refused("--failure-report", place, "--no-python", self.worker, status=1,
                         mentions=["--failure-report", place])

    def test_a_disk_without_room_for_files(self):
        with small_disk(self.folder / "disk", "size=64k,nr_inodes=2") as disk:
            (disk / "taken").touch()
            self.refused("--log-dir", disk / "logs", "--no-python", self.worker, status=1,
                         mentions=[str(disk), "No space left"])

    def test_a_disk_without_space(self):
        with small_disk(self.folder / "disk", "size=64k") as disk:
            with self.assertRaises(OSError):
                (disk / "taken").write_bytes(bytes(100_000))
            for option in ("-t", "-r"):
                self.refused("--log-dir", disk / "logs", option, "3", "--no-python", self.worker, status=1,
                             mentions=[str(disk), "no space left"])
                self.assertEqual(os.listdir(disk / "logs"), [])
            # A job that writes nothing there is not affected.
            self.assertEqual(self.run_job("--log-dir", disk / "logs", "--no-python", self.worker).out, "worker ran\n")

    def test_a_full_disk_is_named_next_to_the_failure(self):
        with small_disk(self.folder / "disk", "size=64k") as disk:
            worker = self.script("head -c 100000 /dev/zero")  # fails; its stderr goes there, too
            outcome = self.run_job("--log-dir", disk / "logs", "-r", "3", "--no-python", worker, status=1)
            self.assertIn("ChildFailedError", outcome.err)
            self.assertEqual(outcome.err.count("no space left on the disk"), 1, outcome.err)

    def test_a_console_without_space_is_no_success_of_help(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assertEqual(self.ended(self.launch("--help", stdout=full)).status, 1)


if __name__ == "__main__":
    unittest.main()
