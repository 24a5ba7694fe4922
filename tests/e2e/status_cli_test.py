#!/usr/bin/env python3
"""`muster status` for its users: what each run is waiting for, in text and in JSON, once and watched."""

import json
import re
import select
import signal
import socket
import subprocess
import threading
import time
import unittest
import uuid

from needs import require_own_networks
from processes import MUSTER, Processes

PATIENCE = 60
NODE = r"127\.0\.0\.1_\d+_\d+"
ROLES = ("participants", "waiting", "spares", "idle")
LAST_SEEN = r"heard \d+\.\d s ago"


class Status(Processes, unittest.TestCase):
    def setUp(self):
        self.server, self.address = self.start_server()

    def node(self, *arguments, run="run", nodes="2", conf="", last_call="1", interval=20):
        """A node that stays in its round until the end of the test. By default its keep-alives are rare, so that it
        never seems late on a busy machine."""
        conf = f"is_host=false,keep_alive_interval={interval}{conf}"
        return self.start("rendezvous", "--backend", "muster", "--endpoint", self.address, "--id", run, "--nodes",
                          nodes, "--last-call", last_call, "--hold", "600", "--conf", conf, *arguments,
                          stderr=subprocess.DEVNULL)

    def names(self, *nodes):
        """The names on the server, once they are there: address, process id, and a random number."""
        deadline = time.monotonic() + PATIENCE
        while True:
            members = [member["node"] for run in self.runs().values() for role in ROLES for member in run[role]]
            names = [name for node in nodes for name in members if name.startswith(f"127.0.0.1_{node.pid}_")]
            if len(names) == len(nodes):
                return names
            self.assertLess(time.monotonic(), deadline, members)

    def status(self, *arguments, status=0):
        done = subprocess.run([MUSTER, "status", "--server", self.address, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, status, done)
        return done

    def text(self, *arguments):
        return self.status(*arguments).stdout

    def runs(self, *arguments):
        report = json.loads(self.text("--json", *arguments))
        self.assertEqual(list(report), ["server", "runs"])
        self.assertEqual(report["server"], self.address)
        return {run["run"]: run for run in report["runs"]}

    def once(self, condition, run="run"):
        """The status of the run, as soon as the condition holds."""
        give_up = time.monotonic() + PATIENCE
        while True:
            stands = self.runs().get(run)
            if stands and condition(stands):
                return stands
            self.assertLess(time.monotonic(), give_up, f"not within {PATIENCE} s; it stands {stands}")
            time.sleep(0.01)

    def complete(self, *nodes, run="run"):
        return self.once(lambda stands: stands["phase"] == "complete" and
                         len(stands["participants"]) == len(nodes), run)


class Changed:
    """A server in front of another one, which changes what that one answers."""

    def __init__(self, port, pattern, replacement):
        self.port, self.pattern, self.replacement = port, pattern, replacement
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self.port)) as server:
                while ready := select.select([client, server], [], [])[0]:
                    received = ready[0].recv(1 << 16)
                    if not received:
                        break
                    if ready[0] is client:
                        server.sendall(received)
                    else:
                        client.sendall(received.replace(self.pattern, self.replacement))


class Once(Status):
    def test_a_server_without_runs_reports_it(self):
        self.assertEqual(self.text(), f"no runs at {self.address}\n")
        self.assertEqual(self.runs(), {})

    def test_a_round_that_forms_names_present_nodes_and_counts_missing_ones(self):
        node = self.node(nodes="2:3")
        stands = self.once(lambda run: run["participants"])
        name, = self.names(node)
        summary = f"round 0: 1 of 3 nodes are here ({name}), 1 more is needed"
        expected = {"run": "run", "round": 0, "phase": "forming", "min_nodes": 2, "max_nodes": 3, "world_size": 0,
                    "summary": summary, "waiting": [], "spares": [], "idle": []}
        self.assertEqual({key: stands[key] for key in expected}, expected)
        member, = stands["participants"]
        self.assertEqual((member["node"], member["addr"], member["connected"], member["late"]),
                         (name, "127.0.0.1", True, False))
        self.assertNotIn("rank", member, "no node has one yet")
        self.assertRegex(self.text(), rf"^run 'run', round 0, forming: {re.escape(summary)}\n"
                                      rf"  in  +{name} +{LAST_SEEN}\n$")

    def test_a_last_call_shows_the_time_left(self):
        nodes = [self.node(nodes="2:3", last_call="600") for _ in range(2)]
        stands = self.once(lambda run: run["phase"] == "last call")
        self.assertEqual({member["node"] for member in stands["participants"]}, set(self.names(*nodes)))
        self.assertLessEqual(stands["last_call_left_seconds"], 600)
        self.assertGreater(stands["last_call_left_seconds"], 500)
        self.assertRegex(self.text(), rf"^run 'run', round 0, last call: round 0: 2 of 3 nodes are here "
                                      rf"\({NODE}, {NODE}\), enough to start; last call for the others: starts in \d+ s\n")

    def test_a_complete_round_has_ranks_and_the_time_of_each_nodes_last_message(self):
        nodes = [self.node("--json", conf=f",rank_policy=label,label=host-{number}") for number in range(2)]
        ranks = dict(zip(self.names(*nodes), [json.loads(node.stdout.readline())["rank"] for node in nodes]))
        stands = self.once(lambda run: run["phase"] == "complete")
        self.assertEqual((stands["round"], stands["world_size"], stands["summary"]), (0, 2, "in round 0 with 2 nodes"))
        self.assertEqual({member["node"]: member["rank"] for member in stands["participants"]}, ranks)
        self.assertEqual([member["rank"] for member in stands["participants"]], [0, 1], "in their order")
        self.assertEqual([member["label"] for member in stands["participants"]], ["host-0", "host-1"])
        for member in stands["participants"]:
            self.assertGreaterEqual(member["last_heard_seconds"], 0)
            self.assertLess(member["last_heard_seconds"], PATIENCE, "otherwise it would have been declared lost")
        first, second = sorted(ranks, key=ranks.get)
        self.assertRegex(self.text(), rf"^run 'run', round 0, complete: in round 0 with 2 nodes\n"
                                      rf"  rank 0  +{first} +{LAST_SEEN}, label host-0\n"
                                      rf"  rank 1  +{second} +{LAST_SEEN}, label host-1\n$")

    def test_a_late_node_waits_and_its_messages_are_received_all_the_time(self):
        nodes = [self.node(nodes="2:3", interval=1) for _ in range(2)]
        self.complete(*nodes)
        late = self.node(nodes="2:3", interval=1)
        stands = self.once(lambda run: run["waiting"])
        name, = self.names(late)
        self.assertEqual([member["node"] for member in stands["waiting"]], [name])
        self.assertEqual(stands["summary"], "in round 0 with 2 nodes; 1 node waits for the next round")
        self.assertRegex(self.text(), rf"^run 'run', round 0, complete: {stands['summary']}\n(  rank \d .*\n){{2}}"
                                      rf"  waits  +{name} +{LAST_SEEN}\n$")
        # The age of the last message grows until the next keep-alive, and is then small again.
        def received(run):
            return run["waiting"][0]["last_heard_seconds"]
        before = received(self.once(lambda run: received(run) >= 0.05))
        self.once(lambda run: received(run) < before)

    def test_a_node_that_finds_the_round_full_is_a_spare(self):
        nodes = [self.node() for _ in range(2)]
        self.complete(*nodes)
        name, = self.names(self.node())
        stands = self.once(lambda run: run["spares"])
        self.assertEqual([member["node"] for member in stands["spares"]], [name])
        self.assertEqual((len(stands["participants"]), stands["waiting"]), (2, []))
        self.assertRegex(self.text(), rf"\n  spare  +{name} +{LAST_SEEN}\n$")

    def test_a_closed_run_shows_which_node_closed_it_and_why(self):
        node = self.start("rendezvous", "--backend", "muster", "--endpoint", self.address, "--id", "run", "--hold", "0",
                          "--close", "--conf", "is_host=false,grace=600")
        self.assertEqual(node.wait(PATIENCE), 0)
        name, = self.names(node)
        stands = self.once(lambda run: run["phase"] == "closed")
        self.assertEqual(stands["closed_by"], f"{name}: muster rendezvous --close")
        self.assertEqual(stands["summary"], f"closed by {name}: muster rendezvous --close")
        self.assertTrue(self.text().startswith(f"run 'run', round 0, closed: {stands['summary']}\n"), self.text())

    def test_a_silent_node_is_late_and_a_lost_connection_is_named(self):
        silent, broken = [self.node(interval=0.1, conf=",keep_alive_max_attempt=6000,grace=600") for _ in range(2)]
        self.complete(silent, broken)
        silent.send_signal(signal.SIGSTOP)
        broken.kill()
        names = self.names(silent, broken)

        def of(run, name):
            return next(member for member in run["participants"] if member["node"] == name)
        stands = self.once(lambda run: all(of(run, name)["late"] for name in names))
        self.assertEqual([of(stands, name)["connected"] for name in names], [True, False])
        self.assertEqual(stands["phase"], "complete", "neither has been declared lost yet")
        text = self.text()
        self.assertRegex(text, r"^run 'run', round 0, complete: in round 0 with 2 nodes; not heard of lately: ")
        self.assertRegex(text, rf"{names[0]} +{LAST_SEEN}, late\n")
        self.assertRegex(text, rf"{names[1]} +{LAST_SEEN}, not connected\n")

    def test_a_run_whose_nodes_have_gone_is_remembered_as_empty(self):
        node = self.node(nodes="1", conf=",grace=0")
        self.complete(node)
        node.send_signal(signal.SIGTERM)
        stands = self.once(lambda run: run["phase"] == "empty")
        self.assertEqual(stands["summary"], "no nodes: waiting for the first to come")
        self.assertEqual(self.text(), f"run 'run', round {stands['round']}, empty: {stands['summary']}\n")

    def test_several_runs_are_separate_and_one_can_be_chosen(self):
        here, there = self.node(run="here"), [self.node(run="there") for _ in range(2)]
        self.complete(*there, run="there")
        self.once(lambda run: run["participants"], "here")
        self.assertEqual([run["phase"] for run in self.runs().values()], ["forming", "complete"])
        self.assertRegex(self.text(), r"^run 'here', round 0, forming: .*\n  in .*\n"
                                      r"run 'there', round 0, complete: .*\n  rank 0 .*\n  rank 1 .*\n$")
        self.assertEqual(list(self.runs("--run", "there")), ["there"])
        text = self.text("--run", "here")
        self.assertTrue(text.startswith("run 'here', "), text)
        self.assertNotIn("there", text)
        self.assertIn(self.names(here)[0], text)
        missing = self.status("--run", "nowhere", status=1)
        self.assertEqual(missing.stdout, "")
        self.assertRegex(missing.stderr, rf"^muster: no run 'nowhere' at {self.address}: .*\n$")

    def test_a_phase_of_a_newer_server_is_shown_as_one(self):
        node = self.node()
        self.names(node)
        with Changed(int(self.address.rpartition(":")[2]), b"\x03\x00run\x00", b"\x03\x00run\x63") as newer:
            self.address = newer.address
            (run,) = self.runs().values()
            self.assertEqual(run["phase"], "unknown")
            self.assertRegex(self.text(), r"^run 'run', round 0, unknown")

    def test_no_server_status_4_and_where(self):
        self.server.terminate()
        self.server.wait()
        missing = self.status("--timeout", "1", status=4)
        self.assertEqual(missing.stdout, "")
        self.assertRegex(missing.stderr, rf"^muster: .*{self.address}.*\n$")


class Watched(Status):
    def watch(self, *arguments):
        return self.start("status", "--server", self.address, "--watch", *arguments, stderr=subprocess.PIPE)

    def stopped(self, watch, by=signal.SIGINT):
        watch.send_signal(by)
        out, errors = watch.communicate(timeout=PATIENCE)
        self.assertEqual((watch.returncode, errors), (0, ""))
        return out

    def test_on_a_pipe_there_is_a_block_each_second_until_a_signal_comes(self):
        self.complete(self.node(nodes="1"))
        began = time.monotonic()
        watch = self.watch()
        blocks = [(watch.stdout.readline(), watch.stdout.readline()) for _ in range(3)]
        self.assertGreaterEqual(time.monotonic() - began, 2, "a second between two of them")
        for head, member in blocks:
            self.assertEqual(head, "run 'run', round 0, complete: in round 0 with 1 node\n")
            self.assertRegex(member, rf"^  rank 0  +{NODE} +{LAST_SEEN}\n$")
        self.assertNotIn("\x1b", self.stopped(watch))

    def test_a_run_may_be_watched_before_it_is_there_and_changes_show(self):
        watch = self.watch("--run", "run", "--json")
        self.assertEqual(json.loads(watch.stdout.readline()), {"server": self.address, "runs": []})
        self.node(run="another", nodes="1")
        self.node()
        phases = []
        while not phases or phases[-1] != "complete":
            runs = json.loads(watch.stdout.readline())["runs"]
            phases += [run["phase"] for run in runs]
            self.assertLessEqual({run["run"] for run in runs}, {"run"}, "no other")
            if phases == ["forming"]:
                self.node()
        self.assertEqual(set(phases), {"forming", "complete"})
        self.stopped(watch, by=signal.SIGTERM)

    def test_a_server_that_goes_away_ends_it_with_status_4(self):
        watch = self.watch()
        self.assertEqual(watch.stdout.readline(), f"no runs at {self.address}\n")
        self.server.terminate()
        _, errors = watch.communicate(timeout=PATIENCE)
        self.assertEqual(watch.returncode, 4, errors)
        self.assertEqual(errors.count("\n"), 1, errors)


class OnThisMachine(Status):
    """Without --server. Other programs on the machine may have servers, too."""

    def job(self):
        """Starts a standalone job. Returns its id, and the port of its workers' store."""
        job = self.start("run", "--standalone", "--no-python", "sh", "-c",
                         'echo "$TORCHELASTIC_RUN_ID $MASTER_PORT"; exec sleep 600', stderr=subprocess.DEVNULL)
        return job.stdout.readline().split()

    def here(self, *arguments, within=(), status=0):
        done = subprocess.run([*within, MUSTER, "status", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                              check=False)
        self.assertEqual(done.returncode, status, done)
        return done

    def test_all_jobs_and_servers_of_this_user_are_found(self):
        jobs = [self.job() for _ in range(2)]
        report = json.loads(self.here("--json").stdout)
        self.assertEqual(list(report), ["servers"])
        servers = {found["server"]: [run["run"] for run in found["runs"]] for found in report["servers"]}
        self.assertEqual(servers[self.address], [])
        text = self.here().stdout
        self.assertIn(f"no runs at {self.address}\n", text)
        for run_id, store_port in jobs:
            address, = [server for server, runs in servers.items() if run_id in runs]
            self.assertEqual(servers[address], [run_id])
            self.assertRegex(text, rf"(?m)^server {re.escape(address)}\nrun '{run_id}', round 0, running since .*, 1 worker, "
                                   rf"0 restarts: in round 0 with 1 node\n  rank 0 +{NODE} +{LAST_SEEN}$")
            self.assertNotIn(f"127.0.0.1:{store_port}", servers, "the workers' store")

    def test_one_run_is_found_wherever_it_is(self):
        run_id, _ = self.job()
        found, = json.loads(self.here("--run", run_id, "--json").stdout)["servers"]
        self.assertEqual([run["run"] for run in found["runs"]], [run_id])
        missing = self.here("--run", "nowhere-" + run_id, status=1)
        self.assertRegex(missing.stderr, "^muster: no run 'nowhere-.*' at any server of this user on this machine: ")

    def test_a_watch_shows_servers_that_come_and_go(self):
        run = str(uuid.uuid4())
        watch = self.start("status", "--run", run, "--watch", "--json")
        self.assertEqual(json.loads(watch.stdout.readline()), {"servers": []})
        node = self.node(run=run)

        def await_servers(expected):
            found = None
            while found != expected:
                found = [at["server"] for at in json.loads(watch.stdout.readline())["servers"]]
        await_servers([self.address])
        node.kill()
        self.server.kill()
        await_servers([])

    def test_a_server_that_does_not_answer_hides_no_other(self):
        _, other = self.start_server()
        self.server.send_signal(signal.SIGSTOP)
        done = self.here()
        self.assertIn(f"muster: no answer from {self.address}\n", done.stderr)
        self.assertNotIn(self.address, done.stdout)
        self.assertIn(f"no runs at {other}\n", done.stdout)

    def test_none_is_an_error_that_names_the_option(self):
        require_own_networks()  # servers in other networks do not count
        none = self.here("--json", within=("unshare", "-rn"), status=4)
        error = "no muster server of this user has runs on this machine; --server HOST:PORT names another one"
        self.assertEqual(none.stderr, f"muster: {error}\n")
        self.assertEqual(json.loads(none.stdout), {"error": error, "status": 4})
        watch = self.start("-rn", MUSTER, "status", "--watch", program="unshare")
        self.assertEqual(watch.stdout.readline(), error + "\n")


if __name__ == "__main__":
    unittest.main()
