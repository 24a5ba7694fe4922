#!/usr/bin/env python3
"""`muster rendezvous` for its users: results, progress, exit statuses, messages."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from processes import MUSTER, Processes

PATIENCE = 60


class Command(Processes, unittest.TestCase):
    """Starts servers and nodes, and ends them."""

    BACKEND = ""  # of the nodes
    HOLD = ()  # how long they stay, unless a test sets it: the default
    STANDSTILL_S = 0  # how long a server stands still

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.server, self.endpoint = self.start_server()

    def node(self, *arguments, run="run", nodes="2", conf="is_host=false", **options):
        hold = () if "--hold" in arguments else self.HOLD
        return self.start("rendezvous", "--backend", self.BACKEND, "--endpoint", self.endpoint, "--id", run, "--nodes",
                          nodes, "--conf", conf, "--local-addr", "127.0.0.1", *hold, *arguments, **options)

    def outcome(self, process, status=0):
        out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, status, f"{out}\n{errors}")
        return out, errors

    def line_with(self, process, text):
        """The first line on stderr that has it: a slow machine may print others before."""
        for line in process.stderr:
            if text in line:
                return line
        self.fail(f"never printed '{text}'")

    def refused(self, *arguments, mentions):
        backend = () if "--backend" in arguments else ("--backend", self.BACKEND)
        done = subprocess.run([MUSTER, "rendezvous", *backend, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, "one clear message")
        for part in mentions:
            self.assertIn(part, done.stderr)


class Scenarios:
    """Scenarios for both backends in which nodes can come and go."""

    def test_two_nodes_get_ranks_and_the_same_meeting_place(self):
        nodes = [self.node("--json") for _ in range(2)]
        reported = [json.loads(self.outcome(node)[0]) for node in nodes]
        self.assertEqual(sorted(one["rank"] for one in reported), [0, 1])
        for one in reported:
            self.assertEqual(one["world_size"], 2)
            self.assertEqual(one["round"], 0)
            self.assertEqual(one["master_addr"], "127.0.0.1")
            self.assertRegex(one["store_prefix"], f"^{self.PREFIX}$")
            self.assertEqual(list(one), ["rank", "world_size", "round", "master_addr", "master_port", "store_prefix"])
        self.assertEqual(reported[0]["master_port"], reported[1]["master_port"])

    def test_a_waiting_node_names_missing_nodes_in_plain_lines(self):
        first = self.node()
        line = self.line_with(first, "1 of 2 nodes are here (")  # names may be known a moment later
        self.assertRegex(line, r"^muster: round 0: 1 of 2 nodes are here \(127\.0\.0\.1_\d+_\d+\), 1 more is needed; "
                               r"gives up in \d+ s$")
        second = self.node()
        self.assertRegex(self.outcome(first)[0], r"^rank \d of 2 in round 0; workers meet at 127\.0\.0\.1:\d+; "
                                                 rf"keys under '{self.PREFIX}'$")
        self.outcome(second)

    def test_on_a_terminal_one_line_is_rewritten(self):
        columns = 60
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        node = self.node(stderr=child)
        os.close(child)
        shown = b""
        try:
            while shown.count(b"1 of 2 nodes are here (") < 3:
                shown += os.read(parent, 4096)
            other = self.node()
            while node.poll() is None:
                with contextlib.suppress(OSError):
                    shown += os.read(parent, 4096)
        finally:
            os.close(parent)
        self.outcome(other)
        lines = [line for line in shown.split(b"\r\x1b[K") if line]
        whole = [line for line in lines if line.startswith(b"round 0: 1 of 2 nodes are here (")]
        self.assertRegex(whole[0], rb"^round 0: 1 of 2 nodes are here .*\.\.\..* gives up in \d+ s$")
        for line in lines:
            self.assertLess(len(line), columns, "a wider line would be wrapped, and stay")
        self.assertEqual(shown.count(b"\n"), 0)
        self.assertEqual(node.wait(PATIENCE), 0)

    def test_a_server_that_stands_still_costs_the_waiting_nothing(self):
        first = self.node()
        self.line_with(first, "1 more is needed")
        self.server.send_signal(signal.SIGSTOP)
        try:
            time.sleep(self.STANDSTILL_S)
        finally:
            self.server.send_signal(signal.SIGCONT)
        second = self.node()
        for node in (first, second):
            self.assertIn("of 2 in round 0", self.outcome(node)[0])

    def test_a_member_reports_waiting_nodes_and_joins_them(self):
        hold = ("--hold", "60", "--follow", "--last-call", "1")
        members = [self.node(*hold, nodes="2:3") for _ in range(2)]
        for member in members:
            self.assertIn("of 2 in round 0", member.stdout.readline())
        late = self.node(*hold, nodes="2:3")
        for node in (*members, late):
            self.assertIn("of 3 in round 1", node.stdout.readline())
        for node in (*members, late):
            node.send_signal(signal.SIGTERM)
        received = [self.outcome(node)[1] for node in members]
        self.assertTrue(any("waiting for the next round" in text for text in received), received)

    def test_a_journal_has_all_that_happens_to_a_node(self):
        hold = ("--hold", "60", "--follow", "--last-call", "1", "--journal")
        members = [self.node(*hold, nodes="1:2")]
        joining = json.loads(members[0].stdout.readline())
        self.assertEqual(joining["event"], "joining")
        self.assertRegex(joining["node"], rf"^127\.0\.0\.1_{members[0].pid}_\d+$")
        first = json.loads(members[0].stdout.readline())
        self.assertEqual(list(first)[:5], ["event", "rank", "world_size", "round", "master_addr"])
        self.assertEqual((first["event"], first["round"], first["world_size"]), ("round", 0, 1))
        members.append(self.node(*hold, nodes="1:2"))
        reported = [json.loads(members[0].stdout.readline()) for _ in range(3)]
        self.assertEqual([one["event"] for one in reported], ["nodes_waiting", "joining", "round"])
        self.assertEqual((reported[0]["waiting"], reported[2]["world_size"]), (1, 2))
        self.assertEqual([json.loads(members[1].stdout.readline())["event"] for _ in range(2)], ["joining", "round"])
        for member in members:
            member.send_signal(signal.SIGTERM)
        self.assertEqual(json.loads(self.outcome(members[1])[0].splitlines()[-1]), {"event": "left"})
        self.outcome(members[0])

    def test_no_other_node_comes_status_3_and_which_were_missing(self):
        _, errors = self.outcome(self.node("--timeout", "1"), status=3)
        self.assertIn("1 of 2 nodes are here", errors.splitlines()[-1])
        self.assertIn("1 more is needed", errors.splitlines()[-1])

    def test_a_signal_ends_the_wait_with_a_report_of_it(self):
        node = self.node()
        self.line_with(node, "1 more is needed")
        node.send_signal(signal.SIGTERM)
        _, errors = self.outcome(node, status=128 + signal.SIGTERM)
        self.assertIn("1 more is needed", errors)

    def test_events_are_appended_to_a_file(self):
        path = os.path.join(self.folder, "events")
        self.outcome(self.node("--events", path, nodes="1"))
        with open(path, encoding="utf-8") as lines:
            events = [json.loads(line) for line in lines]
        self.assertIn(0, [event["rank"] for event in events])
        self.assertEqual({event["run_id"] for event in events}, {"run"})

    def test_bad_input_costs_one_clear_message(self):
        self.refused("--id", "run", "--nodes", "0:1", mentions=["0", "minimum"])
        self.refused("--id", "run", "--nodes", "3:2", mentions=["3", "2", "maximum"])
        self.refused("--id", "run", "--nodes", "two", mentions=["two", "MIN:MAX"])
        self.refused("--id", "", "--endpoint", self.endpoint, "--conf", "is_host=false", mentions=["run id"])
        self.refused("--id", "run", "--conf", "is_host=perhaps", mentions=["is_host", "boolean"])
        self.refused("--id", "run", "--conf", "oops", mentions=["oops"])
        self.refused("--id", "run", "--endpoint", "host:99999", mentions=["host:99999"])
        self.refused("--id", "run", "--timeout", "0", mentions=["--timeout"])
        self.refused("--id", "run", "--timeout", "1.9", mentions=["--timeout", "whole number"])
        for nonsense in ("nan", "1e300", "-1"):
            self.refused("--id", "run", "--hold", nonsense, mentions=["--hold"])
        self.refused(mentions=["--id"])


class WithTheCoordinator(Scenarios, Command):
    BACKEND = "muster"
    PREFIX = r"muster\.run/[0-9a-f]{32}/0"
    HOLD = ("--hold", "0.1")  # the others are notified at once
    STANDSTILL_S = 4  # longer than either side may be silent

    def test_leaving_lets_the_others_continue_and_closing_ends_the_run(self):
        generations = []
        for options in ((), ("--close",), ()):
            printed, _ = self.outcome(self.node(*options, nodes="1"))
            generations.append(re.search(r"muster\.run/([0-9a-f]{32})/", printed)[1])
        self.assertEqual(generations[0], generations[1])
        self.assertNotEqual(generations[1], generations[2], "the next node begins another run")

    def test_a_journal_names_lost_nodes_and_the_one_that_closed(self):
        nodes = [self.node("--hold", "60", "--follow", "--journal", "--close", "--last-call", "1", nodes="2:3")
                 for _ in range(3)]

        def reported(node):
            return json.loads(node.stdout.readline())
        for node in nodes:
            self.assertEqual([reported(node)["event"] for _ in range(2)], ["joining", "round"])
        victim, closer, watcher = nodes
        victim.kill()
        for node in (closer, watcher):
            lost = reported(node)
            self.assertEqual((lost["event"], lost["round"]), ("member_lost", 0))
            self.assertRegex(lost["who"], rf"^127\.0\.0\.1_{victim.pid}_\d+$")
            self.assertTrue(lost["why"])
            self.assertEqual([reported(node)["event"] for _ in range(2)], ["joining", "round"])
        closer.send_signal(signal.SIGTERM)
        self.assertEqual(json.loads(self.outcome(closer)[0]), {"event": "closing"})
        closed = reported(watcher)
        self.assertEqual(closed["event"], "closed")
        self.assertRegex(closed["who"], rf"^127\.0\.0\.1_{closer.pid}_\d+: muster rendezvous --close$")

    def test_the_journal_of_a_spare_has_the_end_too(self):
        closer = self.node("--hold", "60", "--close", "--json", nodes="1")
        closer.stdout.readline()
        spare = self.node("--journal", nodes="1")
        self.line_with(spare, "a spare: ")
        closer.send_signal(signal.SIGTERM)
        joining, closed = [json.loads(line) for line in self.outcome(spare)[0].splitlines()]
        self.assertEqual((joining["event"], closed["event"]), ("joining", "closed"))
        self.assertIn("muster rendezvous --close", closed["why"])

    def test_a_spare_prints_nothing_twice(self):
        members = [self.node("--hold", "60") for _ in range(2)]
        for member in members:
            member.stdout.readline()
        spare = self.node()
        printed = [self.line_with(spare, "a spare: ")]
        members[0].kill()
        members[1].send_signal(signal.SIGTERM)
        for line in spare.stderr:
            printed.append(line)
            if "1 of 2 nodes are here (" in line:
                break
        as_a_spare = [line for line in printed if "a spare: " in line]  # also the report that a member is silent
        self.assertEqual(len(as_a_spare), len(set(as_a_spare)), printed)

    def test_no_server_status_4_and_where(self):
        self.server.terminate()
        self.server.wait()
        _, errors = self.outcome(self.node("--timeout", "1"), status=4)
        self.assertIn(self.endpoint, errors)

    def test_its_own_settings_are_checked(self):
        for setting, *mentions in (("grace=-1", "grace", "seconds"),
                               ("keep_alive_interval=soon", "keep_alive_interval", "seconds"),
                               ("rank_policy=best", "best", "natural", "text", "stable", "label"),
                               ("keep_alive_max_attempt=0", "keep_alive_max_attempt 0", "1 to 10000")):
            with self.subTest(setting=setting):
                self.refused("--id", "run", "--conf", setting, mentions=mentions)


class WithASharedState(Scenarios, Command):
    BACKEND = "c10d"
    PREFIX = r"torch\.rendezvous\.run\.0"
    STANDSTILL_S = 7  # longer than a client otherwise waits for the confirmed end of a wait

    def test_leaving_lets_the_others_continue_and_closing_does_not(self):
        self.outcome(self.node(nodes="1"))
        self.outcome(self.node("--close", nodes="1"))
        _, errors = self.outcome(self.node(nodes="1"), status=5)
        self.assertRegex(errors, r"closed by 127\.0\.0\.1_\d+_\d+: muster rendezvous --close")

    def test_no_server_status_4_and_where(self):
        self.server.terminate()
        self.server.wait()
        _, errors = self.outcome(self.node(conf="is_host=false,read_timeout=1"), status=4)
        self.assertIn(self.endpoint, errors)

    def test_a_file_can_be_the_meeting_place(self):
        path = os.path.join(self.folder, "meeting")
        nodes = [self.start("rendezvous", "--backend", self.BACKEND, "--endpoint", path, "--id", "run", "--nodes", "2",
                            "--conf", "store_type=file", "--local-addr", "127.0.0.1", "--json") for _ in range(2)]
        self.assertEqual(sorted(json.loads(self.outcome(node)[0])["rank"] for node in nodes), [0, 1])

    def test_its_own_settings_are_checked(self):
        self.refused("--id", "run", "--conf", "read_timeout=soon", mentions=["read_timeout", "integer"])
        self.refused("--id", "run", "--conf", "read_timeout=0", mentions=["read_timeout"])
        self.refused("--id", "run", "--conf", "store_type=paper", mentions=["paper", "tcp", "file"])


class WithRanksGiven(Command):
    BACKEND = "static"

    def test_static_nodes_have_their_configured_ranks(self):
        with subprocess.Popen([MUSTER, "serve", "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE,
                              text=True) as probe:
            port = json.loads(probe.stdout.readline())["port"]
            probe.terminate()
        nodes = [self.start("rendezvous", "--backend", "static", "--endpoint", f"127.0.0.1:{port}", "--id", "run",
                            "--nodes", "2", "--rank", str(rank), "--json", "--hold", "0") for rank in (1, 0)]
        self.assertEqual([json.loads(self.outcome(node)[0])["rank"] for node in nodes], [1, 0])

    def test_bad_input_costs_one_clear_message(self):
        self.refused("--id", "run", "--backend", "nonsense", mentions=["nonsense", "muster", "c10d", "static"])
        self.refused("--id", "run", mentions=["rank"])
        self.refused("--id", "run", "--rank", "0", "--endpoint", "host", mentions=["host", "port"])
        self.refused("--id", "run", "--rank", "-5", mentions=["--rank", "-5"])


if __name__ == "__main__":
    unittest.main()
