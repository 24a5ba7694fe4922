#!/usr/bin/env python3
"""Usage errors of `muster`: one message that names the argument or the flag, its value and what is allowed."""

import json
import os
import subprocess
import tempfile
import unittest

MUSTER = os.environ["MUSTER_BIN"]
LAB = os.environ["MUSTER_LAB_BIN"]
COMMANDS = ("serve", "store", "rendezvous", "status", "etcd")
MEASUREMENTS = ("store", "latency", "wake", "rendezvous")


def called(*arguments):
    """The command that has the flag: measurements are in muster-lab."""
    program = LAB if arguments and arguments[0] == "bench" else MUSTER
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


class Refusals(unittest.TestCase):
    def refused(self, *arguments, mentions):
        done = called(*arguments)
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(done.stderr.count("\n"), 1, f"one clear message: {done.stderr}")
        self.assertNotIn("Options::", done.stderr, "no C++ in what users read")
        for part in mentions:
            self.assertIn(part, done.stderr)
        return done

    def test_an_unknown_command_is_named_and_the_others_listed(self):
        for arguments in (("bogus",), ("bogus", "--json"), ("bogus", "store")):
            with self.subTest(arguments=arguments):
                self.refused(*arguments, mentions=["'bogus'", *COMMANDS, "'muster --help'"])
        self.refused(mentions=[*COMMANDS, "'muster --help'"])

    def test_an_unknown_measurement_is_named_and_the_others_listed(self):
        done = self.refused("bench", "bogus", mentions=["'bogus'", *MEASUREMENTS, "'muster-lab bench --help'"])
        self.assertNotIn("echo-server", done.stderr)
        self.refused("bench", mentions=[*MEASUREMENTS, "'muster-lab bench --help'"])

    def test_errors_point_to_the_help_of_the_command_in_question(self):
        self.refused("--bogus", mentions=["'--bogus'", "'muster --help'"])
        self.refused("serve", "--bogus", mentions=["'--bogus'", "'muster serve --help'"])
        self.refused("serve", "word", mentions=["'word'", "'muster serve --help'"])
        self.refused("store", "--bogus", mentions=["'--bogus'", "'muster store --help'"])
        self.refused("store", "--server", mentions=["--server", "'muster store --help'"])
        self.refused("rendezvous", mentions=["--id", "'muster rendezvous --help'"])
        self.refused("status", "--server", "h:1", "--bogus", mentions=["'--bogus'", "'muster status --help'"])
        self.refused("bench", "store", "--bogus", mentions=["'--bogus'", "'muster-lab bench store --help'"])

    def test_limits_of_a_server_name_flag_value_and_range(self):
        for flag in ("--key-bytes-max", "--value-bytes-max", "--request-bytes-max", "--reply-bytes-max",
                     "--queued-reply-bytes-max", "--keys-per-request-max"):
            for value in ("-1", "0", "99999999999999999999", "18446744073709551615", "1.5", "0x10", "many"):
                with self.subTest(flag=flag, value=value):
                    self.refused("serve", flag, value, mentions=[flag, f"'{value}'", " 1 to ", "'muster serve --help'"])
        for value in ("-1", "1", "1KiB", "1.5MiB", "many", "MiB", "1MB", "99999999999999999999", "9999999999TiB"):
            self.refused("serve", "--store-bytes-max", value, mentions=["--store-bytes-max", f"'{value}'", "256MiB"])
        for value in ("-1", "1025", "all"):
            self.refused("serve", "--threads", value, mentions=["--threads", f"'{value}'", "0 to 1024"])

    def test_times_of_a_server_are_given_in_seconds(self):
        for flag in ("--handshake-seconds", "--stall-seconds"):
            for value in ("0", "-1", "0.0001", "nan", "inf", "1e300", "5000000", "soon"):
                with self.subTest(flag=flag, value=value):
                    self.refused("serve", flag, value, mentions=[flag, f"'{value}'", "0.001 to 4294967 seconds"])

    def test_an_address_to_listen_on_names_its_flag(self):
        for value in ("host", "host:x", "::1:5", "[::1:5"):
            self.refused("serve", "--listen", value, mentions=["--listen", f"'{value}'", "HOST:PORT"])

    def test_numbers_of_a_measurement_name_their_flag(self):
        for flag in ("--clients", "--pipeline", "--value-size", "--keys", "--threads", "--seed", "--connections-only"):
            for value in ("-1", "1.5", "99999999999999999999", "many"):
                with self.subTest(flag=flag, value=value):
                    self.refused("bench", "store", flag, value, mentions=[flag, f"'{value}'"])
        for flag in ("--seconds", "--warm-up"):
            for value in ("nan", "inf", "-1", "601"):
                with self.subTest(flag=flag, value=value):
                    self.refused("bench", "store", flag, value, mentions=[flag, f"'{value}'", "600 seconds"])
        self.refused("bench", "latency", "--seconds", "nan", mentions=["nan"])
        for value in ("h", "h:0"):
            self.refused("bench", "store", "--server", value, mentions=["--server", f"'{value}'"])

    def test_a_leading_zero_is_not_octal(self):
        with subprocess.Popen([MUSTER, "serve", "--listen", "127.0.0.1:0", "--json", "--key-bytes-max", "010"],
                              stdout=subprocess.PIPE, text=True) as server:
            address = f"127.0.0.1:{json.loads(server.stdout.readline())['port']}"
            done = subprocess.run([MUSTER, "store", "--server", address, "set", "k" * 9, "v"], timeout=60, check=False,
                                  capture_output=True, text=True)
            server.terminate()
        self.assertEqual((done.returncode, done.stdout), (0, "ok\n"), done.stderr)

    def test_with_json_a_failure_is_an_object_for_every_command(self):
        for arguments in (("serve", "--threads", "-1"), ("bench", "store", "--ops", "fly"), ("rendezvous",),
                          ("status", "--server", "nowhere"), ("status", "--server", ""), ("status", "--timeout", "0"),
                          ("rendezvous", "--id", "x", "--nodes", "0"), ("bench", "wake", "--wakes", "0")):
            with self.subTest(arguments=arguments):
                done = self.refused(*arguments, "--json", mentions=[])
                line = json.loads(done.stdout)
                self.assertEqual(line["status"], 2)
                self.assertIn(line["error"], done.stderr)


class Statuses(unittest.TestCase):
    def test_the_statuses_of_the_readme_hold(self):
        """0 done, 1 failed, 2 usage error, 3 timed out, 4 no server, 5 closed: each command, where it can happen."""
        with subprocess.Popen([MUSTER, "serve", "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE,
                              text=True) as server:
            address = f"127.0.0.1:{json.loads(server.stdout.readline())['port']}"
            node = ("rendezvous", "--endpoint", address, "--conf", "is_host=false", "--local-addr", "127.0.0.1", "--id")
            tiny = ("--seconds", "0.05", "--warm-up", "0", "--clients", "1", "--ops", "get")
            expected = [
                (0, ("--help",)), (0, ("--version",)), (0, ("bench", "store", "--help")),
                (0, ("store", "--server", address, "ping")), (0, (*node, "run")),
                (0, ("bench", "store", "--server", address, *tiny)),
                (1, ("serve", "--listen", address)), (1, ("serve", "--listen", "127.0.0.1:0", "--port-file", "/no/such/f")),
                (1, ("store", "--server", address, "pop", "empty", "now")),
                (0, ("status", "--server", address)), (1, ("status", "--server", address, "--run", "nowhere")),
                (3, ("store", "--server", address, "--timeout", "0.1", "get", "never")),
                (3, (*node, "slow", "--nodes", "2", "--timeout", "1")),
                (5, (*node, "closed"))]
            try:
                # A run that was closed is closed for new nodes as long as one of its nodes is connected.
                with subprocess.Popen([MUSTER, *node, "closed", "--nodes", "2", "--hold", "60"],
                                      stdout=subprocess.DEVNULL) as stays:
                    self.ends_with(0, *node, "closed", "--nodes", "2", "--close")
                    for status, arguments in expected:
                        self.ends_with(status, *arguments)
                    stays.terminate()
            finally:
                server.terminate()
        self.assertEqual(server.returncode, 0)
        gone = ("rendezvous", "--endpoint", address, "--conf", "is_host=false", "--timeout", "1", "--id", "run")
        for arguments in (("store", "--server", address, "--connect-timeout", "0.2", "ping"), gone,
                          ("status", "--server", address, "--timeout", "1"),
                          ("bench", "store", "--server", address, *tiny)):
            self.ends_with(4, *arguments)

    def test_a_port_file_that_cannot_be_written_leaves_no_draft(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "port"))  # a folder there cannot be replaced by a file
            self.ends_with(1, "serve", "--listen", "127.0.0.1:0", "--port-file", os.path.join(folder, "port"))
            self.assertEqual(os.listdir(folder), ["port"])

    def ends_with(self, status, *arguments):
        with self.subTest(arguments=arguments):
            done = called(*arguments)
            self.assertEqual(done.returncode, status, done)
            self.assertEqual(bool(done.stdout), status == 0, done)


if __name__ == "__main__":
    unittest.main()
