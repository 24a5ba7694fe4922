#!/usr/bin/env python3
"""`muster-lab bench` on tiny inputs: it builds, reports all its figures, and detects a wrong server."""

import json
import os
import pathlib
import signal
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

MUSTER = os.environ["MUSTER_BIN"]
LAB = os.environ["MUSTER_LAB_BIN"]
SOURCE = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
TINY = ["--seconds", "0.2", "--warm-up", "0.02"]


def muster(*arguments, program=MUSTER):
    return subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, check=False)


def lab(*arguments):
    return muster(*arguments, program=LAB)


def bench(*arguments):
    done = lab("bench", *arguments, "--json")
    if done.returncode != 0:
        raise AssertionError(f"status {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


class StoreLoad(unittest.TestCase):
    def test_every_operation_is_reported(self):
        rows = bench("store", *TINY, "--clients", 8)
        self.assertEqual([row["op"] for row in rows], ["get", "set", "add", "check"])
        for row in rows:
            self.assertEqual(row["errors"], 0)
            self.assertGreater(row["ops_per_second"], 0)
            self.assertLessEqual(0, row["p50_us"])
            self.assertLessEqual(row["p50_us"], row["p99_us"])
            self.assertLessEqual(row["p99_us"], row["p999_us"])
            self.assertGreater(row["server_cpu_us_per_op"], 0)
            self.assertGreater(row["server_rss_bytes"], 0)

    def test_pipelined_load_on_several_threads_is_answered_rightly(self):
        rows = bench("store", *TINY, "--clients", 7, "--pipeline", 16, "--threads", 3, "--server-threads", 2)
        self.assertEqual([row["errors"] for row in rows], [0, 0, 0, 0])

    def test_batches_larger_than_every_buffer_are_answered_rightly(self):
        rows = bench("store", *TINY, "--clients", 2, "--pipeline", 5, "--value-size", 700_001, "--keys", 3, "--ops",
                     "set,get")
        self.assertEqual([row["errors"] for row in rows], [0, 0])

    def test_an_empty_value_is_a_value(self):
        row, = bench("store", *TINY, "--clients", 1, "--value-size", 0, "--ops", "get")
        self.assertEqual(row["errors"], 0)

    def test_the_same_seed_is_the_same_work(self):
        hashes = [bench("store", *TINY, "--clients", 1, "--ops", "get", "--seed", seed)[0]["work_hash"]
                  for seed in (1, 1, 2)]
        self.assertEqual(hashes[0], hashes[1])
        self.assertNotEqual(hashes[0], hashes[2])

    def test_the_keys_are_gone_afterwards(self):
        with running_server() as (address, pid):
            row, = bench("store", "--server", address, "--server-pid", pid, *TINY, "--clients", 2, "--ops", "add")
            self.assertGreater(row["server_cpu_us_per_op"], 0)
            self.assertEqual(muster("store", "--server", address, "count").stdout.strip(), "0")

    def test_without_its_process_a_server_has_no_cpu_time(self):
        with running_server() as (address, _):
            row, = bench("store", "--server", address, *TINY, "--clients", 2, "--ops", "check")
        self.assertNotIn("server_cpu_us_per_op", row)
        self.assertNotIn("server_rss_bytes", row)

    def test_the_table_names_every_operation(self):
        done = lab("bench", "store", *TINY, "--clients", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()[1:]],
                         ["op", "get", "set", "add", "check"])


class OtherMeasurements(unittest.TestCase):
    def test_connections_are_opened_and_held(self):
        report = bench("store", "--connections-only", 200)
        self.assertEqual(report["connections"], 200)
        self.assertGreater(report["seconds"], 0)
        self.assertGreater(report["server_rss_bytes"], 0)

    def test_waking_is_measured_for_each_number_of_waiters(self):
        points = bench("wake", "--waiters", "0,10", "--wakes", 20, "--passes", 2)
        self.assertEqual([point["waiters"] for point in points], [0, 10])
        for point in points:
            self.assertEqual(point["wakes"], 40)
            self.assertGreater(point["p50_us"], 0)

    def test_latency_is_shown_with_that_of_an_echo_server(self):
        rows = bench("latency", "--seconds", 0.2, "--rounds", 2)
        self.assertEqual([row["op"] for row in rows], ["get", "check", "add"])
        for row in rows:
            self.assertEqual(row["errors"], 0)
            self.assertGreater(row["p50_us"], 0)
            self.assertGreater(row["echo_p50_us"], 0)
            self.assertGreater(row["p50_ratio"], 0)

    def test_the_comparison_runs(self):
        environment = {name: value for name, value in os.environ.items() if name != "MUSTER_TORCH_PYTHON"}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, SOURCE / "lab" / "bench" / "compare.py", "--muster", MUSTER, "--out",
                                   folder, "--tiny"], env=environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=240, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(pathlib.Path(folder, "compare.json").read_text(encoding="utf-8"))
        self.assertEqual(result["errors"], 0)
        self.assertIn("MUSTER_TORCH_PYTHON", result["missing"][0])
        self.assertIn("bars met", done.stdout)

    def test_the_comparison_of_launchers_runs_and_looks_at_every_line(self):
        environment = {name: value for name, value in os.environ.items() if name != "MUSTER_TORCH_PYTHON"}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, SOURCE / "lab" / "bench" / "launcher.py", "--muster", MUSTER, "--out", folder,
                                   "--rounds", "2", "--output-rounds", "1", "--megabytes", "1"], env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(pathlib.Path(folder, "launcher.json").read_text(encoding="utf-8"))
        self.assertEqual(result["lost"], 0)
        self.assertEqual(list(result["start_up"]), ["bare", "muster run"])
        self.assertEqual(list(result["output"]), ["line by line", "640 lines at once"])


class Refusals(unittest.TestCase):
    def expect(self, status, words, *arguments):
        done = lab("bench", *arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(words, done.stderr)

    def test_no_server_is_status_4(self):
        # A port that was free a moment ago, and that no other process gets.
        with socketserver.TCPServer(("127.0.0.1", 0), None) as closed:
            port = closed.server_address[1]
        self.expect(4, f"127.0.0.1:{port}", "store", "--server", f"127.0.0.1:{port}", *TINY)

    def test_a_usage_error_is_status_2(self):
        self.expect(2, "no operation 'fly'", "store", "--ops", "get,fly", *TINY)
        self.expect(2, "--seconds", "store", "--seconds", 601)
        self.expect(2, "no protocol 'smtp'", "store", "--protocol", "smtp")
        self.expect(2, "--protocol redis needs --server", "store", "--protocol", "redis")
        self.expect(2, "the pipeline depth is 0", "store", "--pipeline", 0, *TINY)
        self.expect(2, "there is no process", "store", "--server-pid", 2**22 + 1, "--server", "127.0.0.1:1")

    def test_more_clients_than_descriptors_is_refused_before_anything_starts(self):
        self.expect(2, "file descriptors", "store", "--clients", 999_999_999, *TINY)
        self.expect(2, "file descriptors", "store", "--connections-only", 999_999_999)
        self.expect(2, "file descriptors", "wake", "--waiters", 999_999)


class WrongServer(unittest.TestCase):
    """A server that answers in the right form, with values that were never stored."""

    def test_wrong_values_are_errors(self):
        with LyingServer() as address:
            done = lab("bench", "store", "--server", address, *TINY, "--clients", 2, "--ops", "get", "--json")
        row, = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1)
        self.assertGreater(row["errors"], 0)
        self.assertEqual(row["ops_per_second"], 0)
        self.assertIn("another value", row["first_error"])

    def test_lost_additions_are_errors(self):
        with LyingServer() as address:
            done = lab("bench", "store", "--server", address, *TINY, "--clients", 1, "--ops", "add", "--json")
        row, = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the counters sum up to", row["first_error"])

    def test_a_missing_key_is_an_error(self):
        with LyingServer() as address:
            done = lab("bench", "store", "--server", address, *TINY, "--clients", 1, "--ops", "check", "--json")
        row, = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1)
        self.assertGreater(row["errors"], 0)
        self.assertIn("not a reply", row["first_error"])


class Processes(unittest.TestCase):
    def test_a_killed_benchmark_takes_its_server_with_it(self):
        with subprocess.Popen([LAB, "bench", "store", "--seconds", "60"], stdout=subprocess.DEVNULL) as parent:
            children = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
            self.eventually(lambda: children.read_text(encoding="ascii").strip())
            child = int(children.read_text(encoding="ascii").split()[0])
            parent.send_signal(signal.SIGKILL)
        self.eventually(lambda: not is_running(child))

    def eventually(self, holds):
        deadline = time.monotonic() + 20
        while not holds():
            self.assertLess(time.monotonic(), deadline, "it did not come to that")
            time.sleep(0.01)


def is_running(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"  # Its parent may be slow to reap it.


class running_server:
    """A muster server that the benchmark did not start."""

    def __enter__(self):
        self.process = subprocess.Popen([MUSTER, "serve", "--listen", "127.0.0.1:0", "--json"],
                                        stdout=subprocess.PIPE, text=True)
        return f"127.0.0.1:{json.loads(self.process.stdout.readline())['port']}", self.process.pid

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()


class LyingHandler(socketserver.StreamRequestHandler):
    def handle(self):
        while opcode := self.rfile.read(1):
            reply = self.answer(opcode[0])
            if reply is None:
                return
            self.wfile.write(reply)

    def answer(self, opcode):
        if opcode == 0:  # VALIDATE
            return b"" if len(self.rfile.read(4)) == 4 else None
        if opcode == 13:  # PING
            return self.rfile.read(4)
        if opcode == 5:  # CHECK: no key is ever there
            self.rfile.read(8)
        self.blob()
        if opcode == 1:  # SET: the size of the value is kept, for a false answer of the right form
            self.server.size = max(self.server.size, len(self.blob()))
            return b""
        if opcode == 3:  # GET
            return struct.pack("<Q", self.server.size) + b"?" * self.server.size
        if opcode == 4:  # ADD: always 1
            self.rfile.read(8)
        return b"\1" if opcode == 5 else struct.pack("<q", 1)

    def blob(self):
        return self.rfile.read(struct.unpack("<Q", self.rfile.read(8))[0])


class LyingServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), LyingHandler)
        self.size = 0

    def handle_error(self, request, client_address):
        pass  # A client that disconnects in the middle is not reported.

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return f"127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Rendezvous(unittest.TestCase):
    def test_nodes_agree_and_the_cost_is_reported(self):
        for backend in ("muster", "c10d"):
            rows = bench("rendezvous", "--backend", backend, "--nodes", "1,8", "--server-threads", 1, "--rounds", 2)
            self.assertEqual([(row["backend"], row["nodes"]) for row in rows], [(backend, 1), (backend, 8)])
            for row in rows:
                self.assertEqual(row["rounds"], 2)
                self.assertTrue(row["ranks_ok"])
                self.assertGreater(row["messages_per_node"], 1)
                self.assertGreater(row["seconds"], 0)
                self.assertGreater(row["server_cpu_seconds"], 0)
                self.assertGreater(row["server_rss_bytes"], 1 << 20)
            if backend == "c10d":
                self.assertGreaterEqual(rows[1]["writes_per_node"], 1)
            else:
                self.assertLess(rows[1]["bytes_per_node"], 1024)

    def test_surviving_nodes_form_a_new_round(self):
        row, = bench("rendezvous", "--nodes", 8, "--kill", 2, "--rounds", 3, "--server-threads", 2)
        self.assertTrue(row["ranks_ok"])
        self.assertGreaterEqual(row["reform_seconds"], 0.3, "the grace for coming back")
        self.assertGreaterEqual(row["reform_p99_seconds"], row["reform_seconds"])

    def test_what_cannot_be_measured_is_refused(self):
        for arguments in (("--nodes", "4", "--kill", "4"), ("--backend", "c10d", "--nodes", "4", "--kill", "1")):
            done = subprocess.run([LAB, "bench", "rendezvous", *arguments], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1)

    def test_the_comparison_runs_without_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {name: value for name, value in os.environ.items() if name != "MUSTER_TORCH_PYTHON"}
            done = subprocess.run([sys.executable, SOURCE / "lab" / "bench" / "rendezvous.py", "--muster", MUSTER, "--nodes",
                                   "2", "--rounds", "1", "--out", folder], env=environment, timeout=120,
                                  stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 0)
            self.assertIn("muster", done.stdout)


class Soak(unittest.TestCase):
    def test_a_fleet_that_comes_and_goes_is_whole_in_the_end_and_leaves_nothing(self):
        # The tolerance: sanitizers keep freed memory for a while.
        reported = bench("soak", "--nodes", 300, "--minutes", 0.07, "--churn", 10, "--sample", 0.3, "--last-call", 0.3,
                     "--seed", 7, "--tolerance", 100)
        self.assertTrue(reported["clean"])
        self.assertTrue(reported["ranks_ok"])
        self.assertGreater(reported["rounds"], 1)
        self.assertGreater(reported["died"], 0)
        self.assertGreater(reported["left"], 0)
        self.assertEqual((reported["descriptors_unaccounted"], reported["descriptors_left_over"]), (0, 0))
        first, *churned, last = reported["samples"]
        for sample in (first, last):
            self.assertEqual((sample["calm"], sample["connected"], sample["in_round"]), (True, 300, 300))
        self.assertTrue(churned)
        self.assertFalse(any(sample["calm"] for sample in churned))

    def test_what_is_no_number_is_refused(self):
        for flag in ("--minutes", "--churn", "--tolerance"):
            done = lab("bench", "soak", "--nodes", 2, flag, "nan")
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("nan", done.stderr)

    def soak(self, *options):
        return lab("bench", "soak", "--nodes", 20, "--last-call", 0.1, "--tolerance", 100, *options)

    def test_people_get_a_table_and_a_verdict(self):
        done = self.soak("--minutes", 0.02, "--churn", 10, "--sample", 0.05)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "soak: seed=1 nodes=20 minutes=0.02 churn=10%/s tolerance=100%")
        self.assertRegex(done.stdout, r"\nmemory +flat: [1-9]")
        self.assertEqual(lines[-1], "soak: clean")

    def test_one_that_is_too_short_fails_and_reports_it(self):
        options = ("--minutes", 0.02, "--churn", 10, "--sample", 0.5)
        done = self.soak(*options)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("\nmemory       not measured\n", done.stdout)
        self.assertRegex(done.stdout, r"\nwrong +too short to show .* needs at least 10 samples, and has [1-9]\b")
        self.assertEqual(done.stdout.splitlines()[-1], "soak: FAILED")
        reported = json.loads(self.soak(*options, "--json").stdout)
        self.assertEqual((reported["clean"], reported["rss_growth_percent"]), (False, None))
        self.assertIn("too short to show", reported["wrong"][0])

    def test_one_in_which_no_node_left_fails_and_reports_it(self):
        done = self.soak("--minutes", 0.01, "--churn", 0, "--sample", 0.03)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\nwrong +round 0 was the only one: .*\nsoak: FAILED\n$")


if __name__ == "__main__":
    unittest.main()
