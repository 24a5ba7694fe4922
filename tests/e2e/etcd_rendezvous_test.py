#!/usr/bin/env python3
"""Nodes that meet in etcd, as real processes: their leader dies, members die or stand still, earlier runs have left
keys behind, and input is bad."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

from etcd_nodes import BUSY_S, LAST_CALL_S, LEASE_S, NOTICED_S, OnEtcd, until
from ports import free_port
from processes import MUSTER

PATIENCE = 60


class Deaths(OnEtcd):
    def kill_while_running(self, nodes, victim):
        """Returns how long the others took to be notified, and to be in a round again."""
        others = [node for node in nodes if node is not victim]
        number, _ = self.agree(*nodes)
        victim.kill()
        died = time.monotonic()
        received = [node.event(lambda event: event.kind not in ("joining", "round"), "word of the loss") for node in others]
        for event in received:
            self.assertEqual((event.kind, event.data["round"], event.data["who"]), ("member_lost", number, victim.name))
        _, formed = self.agree(*others, after=number)
        noticed_s, formed_s = max(event.time for event in received) - died, formed - died
        self.assertLess(noticed_s, NOTICED_S + BUSY_S)
        self.assertLess(formed_s, NOTICED_S + LAST_CALL_S + BUSY_S)
        return f"the others were notified after {noticed_s:.2f} s, and were in a round after {formed_s:.2f} s"

    def test_the_leader_is_killed_while_running(self):
        nodes = [self.node(nodes="3:4") for _ in range(4)]
        self.agree(*nodes)
        leader, others = self.leader_among(nodes)
        self.report("leader killed while running: " + self.kill_while_running(nodes, leader))
        self.assertIn(self.leader_among(nodes)[0], others)

    def test_another_member_is_killed_while_running(self):
        nodes = [self.node(nodes="3:4") for _ in range(4)]
        self.agree(*nodes)
        leader, others = self.leader_among(nodes)
        self.report("member killed while running: " + self.kill_while_running(nodes, others[0]))
        self.assertIs(self.leader_among(nodes)[0], leader)

    def test_status_names_the_missing_nodes(self):
        node = self.node(nodes="2")
        node.error("1 of 2 nodes are here")

        def status():
            done = subprocess.run([MUSTER, "status", "--server", self.etcd.endpoint, "--json"],
                                  capture_output=True, text=True, timeout=30, check=True)
            return [run for run in json.loads(done.stdout)["runs"] if run["run"] == self.run_id]

        run, = until(status, "the leader has written how it stands")
        self.assertIn("1 of 2 nodes are here", run["summary"])
        self.assertEqual(len(run["participants"]), 1, run)
        other = self.node(nodes="2")
        self.agree(node, other)
        until(lambda: status()[0]["phase"] == "complete", "the leader has written that the round is complete")
        self.assertEqual(sorted(each["rank"] for each in status()[0]["participants"]), [0, 1])
        # A foreign key hides no other run, and a dead leader's status is out of date.
        self.etcd.put("/muster/foreign/status", "surely not")
        node.kill()
        other.kill()
        until(lambda: status()[0]["phase"] == "empty", "no node is there any more")
        self.assertEqual(status()[0]["participants"], [])
        self.etcd.control("del", "/muster/foreign/status")

    def test_the_leader_is_killed_while_a_round_forms(self):
        first = [self.node(nodes="4") for _ in range(3)]
        for node in first:
            node.error("3 of 4 nodes are here")
        leader, others = self.leader_among(first)
        leader.kill()
        died = time.monotonic()
        late = [self.node(nodes="4") for _ in range(2)]
        _, formed = self.agree(*others, *late)
        self.report(f"leader killed while a round forms: the others were in it after {formed - died:.2f} s")
        self.assertLess(formed - died, NOTICED_S + BUSY_S)

    def test_the_leader_is_killed_in_the_last_call(self):
        last_call_s = 3
        nodes = [self.node("--last-call", str(last_call_s), nodes="3:8") for _ in range(4)]
        for node in nodes:
            node.error("4 of 8 nodes are here")
        leader, others = self.leader_among(nodes)
        leader.kill()
        died = time.monotonic()
        _, formed = self.agree(*others)  # on a slow machine, in the next one
        self.report(f"leader killed in the last call, of {last_call_s} s: the others were in a round after "
                    f"{formed - died:.2f} s")
        self.assertLess(formed - died, NOTICED_S + last_call_s + BUSY_S)

    def lose_while_forming(self, number):
        """A node that does not lead receives this signal; it counts until its lease is over. Returns it."""
        first = [self.node(nodes="3") for _ in range(2)]
        for node in first:
            node.error("2 of 3 nodes are here")
        leader, (victim,) = self.leader_among(first)
        victim.send(number)
        struck = time.monotonic()
        until(lambda: self.etcd.get(self.key(f"members/{victim.name}")) is None, "its lease is over")
        gone_s = time.monotonic() - struck
        self.agree(leader, *(self.node(nodes="3") for _ in range(2)))
        self.report(f"member sent {number.name} while a round forms: it counted for {gone_s:.2f} s")
        self.assertLess(gone_s, NOTICED_S + BUSY_S)
        return victim

    def test_another_member_is_killed_while_a_round_forms(self):
        self.lose_while_forming(signal.SIGKILL)

    def test_another_member_stands_still_while_a_round_forms(self):
        victim = self.lose_while_forming(signal.SIGSTOP)
        victim.send(signal.SIGCONT)
        victim.error("a spare: round 0 is full with 3 nodes")
        self.assertEqual([event.kind for event in victim.events], ["joining"])

    def test_all_but_one_are_killed_and_others_come(self):
        nodes = [self.node(nodes="3") for _ in range(3)]
        number, _ = self.agree(*nodes)
        survivor = nodes[0]
        for node in nodes[1:]:
            node.kill()
        late = [self.node(nodes="3") for _ in range(2)]
        self.agree(survivor, *late, after=number)


class Standstill(OnEtcd):
    def sleep_past_the_lease(self, nodes, sleeper):
        others = [node for node in nodes if node is not sleeper]
        number, _ = self.agree(*nodes)
        before = len(sleeper.events)
        sleeper.send(signal.SIGSTOP)
        stopped = time.monotonic()
        for node in others:
            lost = node.event(lambda event: event.kind == "member_lost", "word of the loss")
            self.assertEqual(lost.data["who"], sleeper.name)
        self.agree(*others, after=number)
        self.assertGreater(time.monotonic() - stopped, LEASE_S / 2)
        self.assertEqual(len(sleeper.events), before, "it stands still")
        sleeper.send(signal.SIGCONT)
        went_on = time.monotonic()
        first = sleeper.event(lambda event: True, "a word", after=before)
        self.assertEqual((first.kind, first.data.get("round")), ("place_lost", number), sleeper.events)
        _, formed = self.agree(*nodes, after=number)
        return (f"declared lost after {lost.time - stopped:.2f} s; SIGCONT: it reported that after {first.time - went_on:.2f} s, "
                f"and was in a round with all others after {formed - went_on:.2f} s")

    def test_a_member_that_stands_still_is_out_and_knows_it_first(self):
        nodes = [self.node(nodes="2:3") for _ in range(3)]
        self.agree(*nodes)
        _, others = self.leader_among(nodes)
        self.report("member stopped: " + self.sleep_past_the_lease(nodes, others[0]))

    def test_a_leader_that_stands_still_is_out_and_knows_it_first(self):
        nodes = [self.node(nodes="2:3") for _ in range(3)]
        self.agree(*nodes)
        leader, others = self.leader_among(nodes)
        self.report("leader stopped: " + self.sleep_past_the_lease(nodes, leader))
        self.assertIn(self.leader_among(nodes)[0], others)

    def test_a_node_that_stood_still_reports_its_own_lost_place_before_the_loss_of_another(self):
        nodes = [self.node(nodes="2:4") for _ in range(4)]
        number, _ = self.agree(*nodes)
        _, (sleeper, victim, *_) = self.leader_among(nodes)
        victim.kill()
        before = len(sleeper.events)
        sleeper.send(signal.SIGSTOP)  # the leader notifies it of the victim: both were last seen at about the same time
        others = [node for node in nodes if node not in (sleeper, victim)]
        self.agree(*others, after=number)
        sleeper.send(signal.SIGCONT)
        first = sleeper.event(lambda event: True, "a word", after=before)
        self.assertEqual(first.kind, "place_lost", sleeper.events)
        self.agree(*others, sleeper, after=number)


class Away(OnEtcd):
    def test_while_etcd_is_away_every_node_gives_itself_up_in_time_and_they_meet_when_it_is_back(self):
        nodes = [self.node(nodes="2:3") for _ in range(3)]
        number, _ = self.agree(*nodes)
        before = [len(node.events) for node in nodes]
        self.etcd.kill(0)
        gone = time.monotonic()
        for node, count in zip(nodes, before):
            first = node.event(lambda event: True, "a word", after=count)
            self.assertEqual((first.kind, first.data.get("round")), ("place_lost", number), node.events)
            self.assertLess(first.time - gone, LEASE_S + BUSY_S)
        self.etcd.start(0)
        back = time.monotonic()
        _, formed = self.agree(*nodes, after=number)
        self.report(f"etcd away: the last node gave itself up after {first.time - gone:.2f} s; all were in a round "
                    f"{formed - back:.2f} s after its start")


class EarlierRuns(OnEtcd):
    def test_a_run_that_was_closed_does_not_close_the_next_one_of_its_name(self):
        nodes = [self.node(*options, nodes="2", follow=False) for options in (("--close",), ())]
        number, _ = self.agree(*nodes)
        nodes[0].send(signal.SIGTERM)
        self.assertEqual(nodes[0].outcome()[0], 0)
        nodes[1].event(lambda event: event.kind == "closed", "the end")
        late = self.node(nodes="2")
        self.assertEqual(late.outcome()[0], 5)  # while a node is there that was in it
        nodes[1].send(signal.SIGTERM)
        self.assertEqual(nodes[1].outcome()[0], 0)
        again = [self.node(nodes="3") for _ in range(3)]  # and with other settings
        self.agree(*again, after=number)

    def test_a_run_that_crashed_is_no_part_of_the_next_one_of_its_name(self):
        nodes = [self.node(nodes="2:3") for _ in range(3)]
        number, _ = self.agree(*nodes)
        for node in nodes:
            node.kill()
        died = time.monotonic()
        again = [self.node(nodes="2:3") for _ in range(2)]
        _, formed = self.agree(*again, after=number)
        self.report(f"all killed, and others started at once: in a round after {formed - died:.2f} s")
        self.assertLess(formed - died, NOTICED_S + LAST_CALL_S + BUSY_S)

    def test_a_run_that_crashed_while_it_formed_is_no_part_of_the_next_one_of_its_name(self):
        nodes = [self.node(nodes="3") for _ in range(2)]
        for node in nodes:
            node.error("2 of 3 nodes are here")
        for node in nodes:
            node.kill()
        again = [self.node(nodes="2:3") for _ in range(2)]  # and with other settings
        self.agree(*again)


class BadInput(OnEtcd):
    def refused(self, *arguments, status, mentions):
        """One clear message."""
        done = subprocess.run([MUSTER, "rendezvous", "--backend", "etcd", "--id", self.run_id, "--nodes", "1",
                               "--local-addr", "127.0.0.1", "--hold", "0", *arguments], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        last = done.stderr.splitlines()[-1]
        for part in mentions:
            self.assertIn(part, last)
        if status == 2:
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_endpoints_without_a_server_are_named(self):
        there = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.refused("--endpoint", "etcd://" + ",".join(there), "--timeout", "2", status=4, mentions=there)

    def test_invalid_endpoints(self):
        self.refused("--endpoint", "ftp://127.0.0.1:1", status=2, mentions=["ftp", "etcd, http or https"])
        self.refused("--endpoint", "etcd://127.0.0.1:99999", status=2, mentions=["99999", "65535"])
        self.refused("--endpoint", "etcd://127.0.0.1:1,,127.0.0.1:2", status=2, mentions=["empty"])
        self.refused("--endpoint", "etcd://a:b:c", status=2, mentions=["a:b:c"])
        self.refused("--endpoint", "https://127.0.0.1:1", "--conf", "protocol=http", status=2, mentions=["https", "http"])
        self.refused("--endpoint", self.etcd.endpoint, "--conf", "keep_alive_max_attempt=0", status=2,
                     mentions=["keep_alive_max_attempt"])
        self.refused("--endpoint", self.etcd.endpoint, "--conf", "rank_policy=best", status=2, mentions=["best", "natural"])

    def test_an_etcd_that_speaks_no_tls_is_named(self):
        self.refused("--endpoint", self.etcd.endpoint.replace("etcd://", "https://"), "--timeout", "2", status=4,
                     mentions=[self.etcd.address(0)])

    def test_what_others_wrote_into_the_record_of_the_run_is_named(self):
        key = self.key("run")
        self.etcd.put(key, "not ours")
        self.refused("--endpoint", self.etcd.endpoint, status=1, mentions=[key])

    def test_what_others_wrote_into_a_notice_is_named(self):
        node = self.node(nodes="2")
        node.error("1 of 2 nodes are here")
        key = self.key(f"notices/{node.name}")
        self.assertIsNotNone(self.etcd.get(key))
        self.etcd.put(key, '{"session": "ours"}')
        status, errors = node.outcome()
        self.assertEqual(status, 1, errors)
        self.assertIn(key, errors.splitlines()[-1])

    def test_foreign_records_among_members_are_skipped(self):
        self.etcd.put(self.key("members/somebody"), "else")
        node = self.node(nodes="1")
        self.agree(node)

    def test_other_settings_than_those_of_the_others_are_named(self):
        node = self.node(nodes="2:3")
        node.error("1 of 3 nodes are here")
        # At once, not when the leases of the others would be over: 3 s, and the lease time before.
        status, errors = self.node("--timeout", "2", nodes="2:4").outcome()
        self.assertEqual(status, 1, errors)
        self.assertIn("max_nodes", errors.splitlines()[-1])
        self.assertIn("may not join", errors.splitlines()[-1])


class Permissions(OnEtcd):
    USERS = (("root", "root"), ("stranger", "word"), ("member", "word"))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for words in (("role", "add", "root"), *(("user", "add", f"{name}:{word}") for name, word in cls.USERS),
                      ("user", "grant-role", "root", "root"), ("role", "add", "musters"),
                      ("role", "grant-permission", "musters", "--prefix=true", "readwrite", "/muster/"),
                      ("user", "grant-role", "member", "musters"), ("auth", "enable")):
            done = cls.etcd.control(*words)
            if done.returncode != 0:
                raise AssertionError(f"etcdctl {' '.join(words)}: {done.stderr}")
        cls.etcd.log_in("root:root")

    refused = BadInput.refused

    def endpoint(self, who):
        return self.etcd.endpoint.replace("etcd://", f"etcd://{who}@")

    def password(self, word):
        """A file that only this user can read."""
        file = tempfile.NamedTemporaryFile(mode="w", encoding="utf-8", suffix=".password")
        self.addCleanup(file.close)
        file.write(f"{word}\n")
        file.flush()
        return f"password_file={file.name}"

    def refused_as(self, who, word, mentions):
        self.refused("--endpoint", self.endpoint(who), "--conf", self.password(word), status=4,
                     mentions=[self.etcd.address(0), mentions])

    def test_missing_permission_to_write_is_reported(self):
        self.refused_as("stranger", "word", "permission denied")

    def test_a_password_on_the_command_line_is_refused_and_not_shown(self):
        for arguments in (("--endpoint", self.endpoint("member:word")),
                          ("--endpoint", self.endpoint("member"), "--conf", "password=word")):
            self.refused(*arguments, status=2, mentions=["password_file", "MUSTER_ETCD_PASSWORD"])
        status = subprocess.run([MUSTER, "status", "--server", self.endpoint("member:word")], capture_output=True,
                                text=True, timeout=PATIENCE, check=False)
        self.assertEqual(status.returncode, 2, status.stderr)
        self.assertIn("MUSTER_ETCD_PASSWORD", status.stderr)

    def test_a_variable_may_have_it(self):
        status = subprocess.run([MUSTER, "status", "--server", self.endpoint("member")], capture_output=True, text=True,
                                timeout=PATIENCE, check=False, env=os.environ | {"MUSTER_ETCD_PASSWORD": "word"})
        self.assertEqual(status.returncode, 0, status.stderr)

    def test_a_missing_user_is_reported(self):
        self.refused("--endpoint", self.etcd.endpoint, status=4, mentions=[self.etcd.address(0), "no user was given"])

    def test_a_wrong_password_is_called_so(self):
        self.refused_as("member", "sword", "password")

    def test_users_with_permission_meet(self):
        nodes = [self.node(nodes="2", endpoint=self.endpoint("member"), conf=self.password("word")) for _ in range(2)]
        self.agree(*nodes)


if __name__ == "__main__":
    unittest.main()
