#!/usr/bin/env python3
"""`muster store` for its users: arguments byte for byte, prompt and pipe, exit statuses, messages."""

import json
import os
import pty
import socket
import subprocess
import unittest

MUSTER = os.environ["MUSTER_BIN"]
PATIENCE = 60
FAILED, USAGE, TIMED_OUT, NO_SERVER = 1, 2, 3, 4


class StoreCommand(unittest.TestCase):
    serve_options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen([MUSTER, "serve", "--listen", "127.0.0.1:0", "--json", "--quiet",
                                       *cls.serve_options], stdout=subprocess.PIPE, text=True)
        cls.address = f"127.0.0.1:{json.loads(cls.server.stdout.readline())['port']}"

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.communicate()

    def setUp(self):
        self.key = self.id().rsplit(".", 1)[1]

    def muster(self, *words, stdin="", server=None):
        return subprocess.run([MUSTER, "store", "--server", server or self.address, *words], input=stdin, text=True,
                              capture_output=True, timeout=PATIENCE, check=False)

    def done(self, *words, **more):
        result = self.muster(*words, **more)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return result.stdout.removesuffix("\n")

    def fails(self, status, *words, mentions=(), **more):
        result = self.muster(*words, **more)
        self.assertEqual(result.returncode, status, result)
        self.assertEqual(result.stderr.count("\n"), 1, f"one clear message: {result.stderr}")
        for part in mentions:
            self.assertIn(part, result.stderr)
        return result


class Words(StoreCommand):
    def test_a_value_arrives_byte_for_byte(self):
        for value in ("[x]", "[1,2,3]", "[]", "[", "]", "a,b", "[a", "{}", "", " ", "%%", "++", "serve", "store", "quit",
                      "'", '"', "\\", "a\nb", "=", "k=v", "é", "#", "/x", "-5", "-0.5"):
            with self.subTest(value=value):
                self.assertEqual(self.done("set", self.key, value), "ok")
                self.assertEqual(self.done("get", self.key), value)

    def test_keys_are_taken_as_they_are_too(self):
        for key in ("[k]", "++", "bench", "[a,b]"):
            with self.subTest(key=key):
                self.assertEqual(self.done("set", key, "v"), "ok")
                self.assertEqual(self.done("get", key), "v")
                self.assertEqual(self.done("check", key, key), "true")

    def test_behind_two_dashes_nothing_is_a_flag(self):
        for value in ("--flag", "--json", "--timeout", "--help", "-h", "-", "--"):
            for words in (("set", self.key, "--", value), ("set", "--", self.key, value),
                          ("--", "set", self.key, value)):
                with self.subTest(words=words):
                    self.assertEqual(self.done(*words, stdin="not this"), "ok")
                    self.assertEqual(self.done("get", self.key), value)

    def test_flags_may_stand_before_and_behind_the_operation(self):
        self.assertEqual(json.loads(self.done("set", self.key, "v", "--json")), {"ok": True})
        self.assertEqual(json.loads(self.done("get", "--json", self.key, "--timeout=1")), {"value": "v"})
        self.fails(TIMED_OUT, "get", f"{self.key}/never", "--timeout", "0.1", mentions=["100 ms"])

    def test_an_unknown_flag_is_named_and_two_dashes_are_offered(self):
        self.fails(USAGE, "set", self.key, "--flag", mentions=["'--flag'", "'--'", "muster store --help"])

    def test_the_help_shows_how_values_with_dashes_are_given(self):
        self.assertIn("set KEY -- --flag", self.muster("--help").stdout)

    def test_a_single_dash_reads_standard_input(self):
        self.done("set", self.key, "-", stdin="from\nstdin")
        self.assertEqual(self.done("get", self.key), "from\nstdin")


class PromptAndPipe(StoreCommand):
    def test_a_dash_in_a_pipe_is_a_value_and_no_line_is_lost(self):
        self.assertEqual(self.done(stdin=f"set {self.key} -\nget {self.key}\nappend {self.key} -\nget {self.key}\n"),
                         "ok\n-\nok\n--")

    def test_arguments_in_a_pipe_arrive_unchanged(self):
        self.assertEqual(self.done(stdin=f"set {self.key} [1,2]\nget {self.key}\nset {self.key} --json\nget {self.key}"),
                         "ok\n[1,2]\nok\n--json")

    def test_the_status_is_that_of_the_last_operation_that_failed(self):
        pipe = ("--timeout", "0.1")
        self.fails(TIMED_OUT, *pipe, stdin="get never\ncount\n", mentions=["'never'"])
        self.fails(USAGE, *pipe, stdin="nonsense\ncount\n", mentions=["nonsense"])
        self.fails(FAILED, *pipe, stdin=f"pop {self.key} now\ncount\n", mentions=["empty"])
        for lines, status in (("nonsense\nget never\n", TIMED_OUT), ("get never\nnonsense\n", USAGE)):
            self.assertEqual(self.muster(*pipe, stdin=lines).returncode, status)

    def test_the_help_states_the_status_of_a_pipe(self):
        self.assertIn("last operation that failed", self.muster("--help").stdout)

    def test_a_server_that_hangs_up_on_one_line_serves_the_next(self):
        result = self.fails(FAILED, stdin=f"set {self.key} text\nadd {self.key} 1\nget {self.key}\n")
        self.assertEqual(result.stdout, "ok\ntext\n")

    def test_a_prompt_on_a_terminal_takes_a_dash_for_a_value(self):
        parent, child = pty.openpty()
        with subprocess.Popen([MUSTER, "store", "--server", self.address], stdin=child, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as prompt:
            os.close(child)
            os.write(parent, f"set {self.key} -\nget {self.key}\nnonsense\nquit\n".encode())
            out, errors = prompt.communicate(timeout=PATIENCE)
        os.close(parent)
        self.assertIn("ok\n", out)
        self.assertIn("> -\n", out)
        self.assertIn("nonsense", errors)
        self.assertEqual(prompt.returncode, 0)


class Failures(StoreCommand):
    def test_adding_to_a_text_reports_what_may_be_wrong(self):
        self.done("set", self.key, "hello")
        self.fails(FAILED, "add", self.key, "1", mentions=[self.address, "closed the connection", "not a number"])
        self.fails(FAILED, "barrier", self.key, "1", mentions=["closed the connection", "not a number"])
        self.assertEqual(self.done("get", self.key), "hello")

    def test_no_server_is_still_status_4(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            no_server = f"127.0.0.1:{holder.getsockname()[1]}"
            for words in (("add", "n", "1"), ("ping",)):
                self.fails(NO_SERVER, "--connect-timeout", "0.2", *words, server=no_server)

    def test_missing_keys_are_counted(self):
        self.done("set", f"{self.key}/there", "")
        one = self.fails(TIMED_OUT, "--timeout", "0.1", "wait", f"{self.key}/there", f"{self.key}/a")
        self.assertIn(f"key '{self.key}/a' did not come", one.stderr)
        two = self.fails(TIMED_OUT, "--timeout", "0.1", "wait", f"{self.key}/a", f"{self.key}/there", f"{self.key}/b")
        self.assertIn(f"keys '{self.key}/a', '{self.key}/b' did not come", two.stderr)

    def test_invalid_times_name_flag_and_range(self):
        for flag in ("--timeout", "--connect-timeout"):
            for value in ("inf", "nan", "1e300", "-inf", "0", "-1", "0.0001", "soon", ""):
                with self.subTest(flag=flag, value=value):
                    self.fails(USAGE, f"{flag}={value}" if value else flag, "" if not value else "ping",
                               mentions=[flag, f"'{value}'", "0.001", "seconds"])
        self.assertEqual(self.done("--timeout", "0.5", "--connect-timeout", "1e9", "ping"), "ok")
        self.assertEqual(self.done("--timeout", "1e9", "ping"), "ok")

    def test_an_invalid_server_names_the_flag(self):
        for server in ("h:0", "h", "h:x", "h:70000", "::1:5"):
            with self.subTest(server=server):
                result = self.fails(USAGE, "ping", server=server, mentions=["--server", f"'{server}'"])
                self.assertNotIn("TcpStoreOptions", result.stderr)

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([MUSTER, "store", "--server", self.address, "ping"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("standard output", done.stderr)


class ForPrograms(StoreCommand):
    def failure(self, status, *words, **more):
        result = self.fails(status, "--json", *words, **more)
        line = json.loads(result.stdout)
        self.assertEqual(list(line), ["error", "status"])
        self.assertEqual(line["status"], status)
        self.assertIn(line["error"], result.stderr)
        return line["error"]

    def test_a_failure_is_one_object_on_standard_output(self):
        self.done("set", self.key, "text")
        self.assertIn("never", self.failure(TIMED_OUT, "--timeout", "0.1", "get", "never"))
        self.assertIn("usage", self.failure(USAGE, "set", self.key))
        self.assertIn("nonsense", self.failure(USAGE, "nonsense"))
        self.assertIn("not a number", self.failure(FAILED, "add", self.key))
        self.assertIn("--bogus", self.failure(USAGE, "--bogus"))
        self.assertIn("--timeout", self.failure(USAGE, "--timeout", "0", "ping"))
        self.assertIn("--server", self.failure(USAGE, "ping", server="h:0"))

    def test_bytes_that_are_no_text_do_not_break_it(self):
        done = subprocess.run([MUSTER, "store", "--server", self.address, "--json", b"\xff\xfe"], capture_output=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(json.loads(done.stdout)["status"], USAGE)

    def test_a_pipe_has_one_object_for_each_operation(self):
        result = self.muster("--json", "--timeout", "0.1", stdin="ping\nget never\nnonsense\nping\n")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([line.get("status", 0) for line in lines], [0, TIMED_OUT, USAGE, 0])
        self.assertEqual(result.returncode, USAGE)

    def test_a_value_that_looks_like_the_flag_json_is_not_it(self):
        result = self.fails(USAGE, "count", "--", "--json")
        self.assertEqual(result.stdout, "")

    def test_the_help_states_what_programs_can_expect(self):
        for text in (self.muster("--help").stdout, subprocess.run([MUSTER, "--help"], capture_output=True, text=True,
                                                                  check=True).stdout):
            self.assertIn('{"error": ', text)


class SmallLimits(StoreCommand):
    serve_options = ("--value-bytes-max", "10", "--key-bytes-max", "60", "--reply-bytes-max", "100")

    def test_what_the_server_limits_is_named_when_it_hangs_up(self):
        self.fails(FAILED, "set", "k", "x" * 11, mentions=["closed the connection", "--value-bytes-max"])
        self.fails(FAILED, "get", "k" * 61, mentions=["closed the connection", "--key-bytes-max"])
        for number in range(10):
            self.done("set", f"{number}" * 20, "v")
        self.fails(FAILED, "keys", mentions=["closed the connection", "--reply-bytes-max"])
        self.assertEqual(self.done("count"), "10")


if __name__ == "__main__":
    unittest.main()
