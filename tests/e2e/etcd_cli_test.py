#!/usr/bin/env python3
"""`muster etcd --dev` for its users: a throwaway etcd, of which nothing stays."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from etcd_nodes import missing, skip_or_fail
from fleet_of_agents import PATIENCE, until
from ports import free_port
from processes import MUSTER, Processes

# As etcd at its start: its ports are open, and it does not answer.
SILENT = """#!/usr/bin/env python3
import socket, sys, time
port = int(sys.argv[sys.argv.index("--listen-client-urls") + 1].rsplit(":", 1)[1])
listener = socket.create_server(("127.0.0.1", port))
print("listens", flush=True)
time.sleep(600)
"""


class Etcd(Processes, unittest.TestCase):
    def setUp(self):
        skip_or_fail(missing(), "MUSTER_REQUIRE_ETCD")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def etcd(self, *arguments, **variables):
        return self.start("etcd", "--dev", *arguments,
                          env={**os.environ, "TMPDIR": str(self.folder), **variables})

    def etcdctl(self, endpoints, *words):
        done = subprocess.run(["etcdctl", "--endpoints", ",".join(endpoints), *words], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    @staticmethod
    def is_there(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def test_one_member_serves_until_a_signal(self):
        etcd = self.etcd()
        line = etcd.stdout.readline()
        self.assertRegex(line, r"^muster: etcd is at etcd://localhost:\d+$")
        endpoint = line.split("etcd://")[1].strip()
        self.etcdctl([endpoint], "put", "k", "v")
        self.assertEqual(self.etcdctl([endpoint], "get", "k", "--print-value-only"), "v\n")
        etcd.send_signal(signal.SIGTERM)
        self.assertEqual(etcd.wait(PATIENCE), 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_three_members_are_a_cluster(self):
        etcd = self.etcd("--members", "3", "--json")
        report = json.loads(etcd.stdout.readline())
        self.assertEqual(len(report["endpoints"]), 3)
        self.assertEqual(report["url"], "etcd://" + ",".join(report["endpoints"]))
        members = self.etcdctl(report["endpoints"][:1], "member", "list").splitlines()
        self.assertEqual(len(members), 3, members)
        etcd.send_signal(signal.SIGINT)
        self.assertEqual(etcd.wait(PATIENCE), 0)
        for pid in report["pids"]:
            self.assertFalse(self.is_there(pid))

    def test_a_member_that_dies_is_reported(self):
        etcd = self.etcd("--members", "3", "--json")
        report = json.loads(etcd.stdout.readline())
        for left in (2, 1, 0):
            os.kill(report["pids"][left], signal.SIGKILL)
            self.assertEqual(etcd.stderr.readline(), f"muster: etcd at {report['endpoints'][left]} ended with signal 9; "
                             f"{left} of 3 members are left\n")
        self.assertEqual(etcd.wait(PATIENCE), 1)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_while_it_starts_it_can_be_stopped(self):
        silent = self.folder / "silent"
        silent.write_text(SILENT, encoding="ascii")
        silent.chmod(0o700)
        data = self.folder / "data"
        etcd = self.etcd("--data-dir", str(data), TORCHELASTIC_ETCD_BINARY_PATH=str(silent))
        until(lambda: any("listens" in log.read_text(encoding="ascii") for log in data.glob("0/m0/etcd.log")),
              "the program does not start")
        signalled_at = time.monotonic()
        etcd.send_signal(signal.SIGTERM)
        self.assertEqual(etcd.wait(PATIENCE), 0)
        self.assertLess(time.monotonic() - signalled_at, 5)  # of 60 s, four times
        self.assertFalse(data.exists())

    def test_a_missing_program_is_reported(self):
        etcd = self.etcd(TORCHELASTIC_ETCD_BINARY_PATH="/no/such/etcd")
        self.assertIn("TORCHELASTIC_ETCD_BINARY_PATH names '/no/such/etcd', which is not there", etcd.stderr.readline())
        self.assertRegex(etcd.stdout.readline(), r"^muster: etcd is at ")
        etcd.send_signal(signal.SIGTERM)
        self.assertEqual(etcd.wait(PATIENCE), 0)

    def test_it_does_not_outlive_a_killed_owner(self):
        etcd = self.etcd("--json")
        report = json.loads(etcd.stdout.readline())
        self.assertTrue(self.is_there(report["pids"][0]))
        etcd.kill()
        etcd.wait()
        until(lambda: not self.is_there(report["pids"][0]), "etcd outlives its owner")

    def test_the_port_and_the_folder_can_be_chosen(self):
        port = free_port()
        etcd = self.etcd("--port", str(port), "--data-dir", str(self.folder / "data"))
        self.assertEqual(etcd.stdout.readline(), f"muster: etcd is at etcd://localhost:{port}\n")
        self.assertTrue((self.folder / "data").is_dir())
        etcd.send_signal(signal.SIGTERM)
        self.assertEqual(etcd.wait(PATIENCE), 0)
        self.assertFalse((self.folder / "data").exists())

    def test_a_taken_port_is_reported(self):
        first = self.etcd("--json")
        taken = json.loads(first.stdout.readline())["endpoints"][0].split(":")[1]
        second = self.etcd("--port", taken)
        _, errors = second.communicate(timeout=PATIENCE)
        self.assertEqual(second.returncode, 1, errors)
        self.assertIn("address already in use", errors)

    def test_without_the_program_it_names_what_to_install(self):
        (self.folder / "bin").mkdir()
        done = subprocess.run([MUSTER, "etcd", "--dev"], env={"PATH": str(self.folder / "bin")}, capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("install etcd", done.stderr)

    def test_it_requires_the_flag_dev(self):
        done = subprocess.run([MUSTER, "etcd"], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("--dev", done.stderr)


if __name__ == "__main__":
    unittest.main()
