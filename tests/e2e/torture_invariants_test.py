#!/usr/bin/env python3
"""The checks of fault campaigns: each accepts what may happen, and reports what may not."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "lab"))

from torture import invariants, job_invariants, losses, promises  # noqa: E402
from torture.events import Event  # noqa: E402
from torture.victims import last_is_a_spare_of  # noqa: E402

RULES = invariants.Rules(min_nodes=2, max_nodes=3)


class StoryTest(unittest.TestCase):
    """Made-up events, a second apart unless a time is given."""

    def setUp(self):
        self.events = []
        self.faults = 0

    def tell(self, who, kind, life=1, /, at=None, **data):
        at = (self.events[-1].at + 1 if self.events else 0.0) if at is None else at
        self.events.append(Event(at, who, life, kind, data))

    def round(self, who, number, rank, life=1, at=None, world_size=2, master_port=1, joins=True):
        if joins:
            self.tell(who, "joining", life, at=at)
        self.tell(who, "round", life, at=at, round=number, rank=rank, world_size=world_size, master_addr="198.18.0.2",
                  master_port=master_port, store_prefix="")

    def fault(self, touches, silences=(), lasts=1.0, at=None, healed=None, cable=False):
        self.faults += 1
        self.tell("world", "fault", 0, at=at, number=self.faults, what="", lasts=lasts, touches=touches,
                  silences=silences, cable=cable)
        if healed is not None:
            self.tell("world", "healed", 0, at=healed, number=self.faults)

    def story(self, rules=RULES):
        return invariants.Story(sorted(self.events, key=lambda event: event.at), rules)

    def found(self, rules=RULES):
        return [violation.what for violation in invariants.violations(self.story(rules))]

    def assert_clean(self, **more):
        self.assertEqual(self.found(**more), [])

    def assert_found(self, *parts):
        found = self.found()
        self.assertEqual(len(found), len(parts), found)
        for what, part in zip(found, parts):
            self.assertIn(part, what)


class Agreement(StoryTest):
    def setUp(self):
        super().setUp()
        self.tell("server", "started")
        self.round("node-0", 0, 0)

    def test_two_nodes_with_two_ranks_agree(self):
        self.round("node-1", 0, 1)
        self.assert_clean()

    def test_one_rank_is_for_one_node(self):
        self.round("node-1", 0, 0)
        self.assert_found("have one rank")

    def test_a_round_has_one_size(self):
        self.round("node-1", 0, 1, world_size=3)
        self.assert_found("do not agree")

    def test_workers_meet_in_one_place(self):
        self.round("node-1", 0, 1, master_port=2)
        self.assert_found("do not agree")

    def test_a_rank_lies_within_its_world(self):
        self.round("node-1", 0, 2)
        self.assert_found("outside its world")

    def test_a_world_is_neither_too_small_nor_too_large(self):
        self.round("node-1", 1, 0, world_size=1)
        self.round("node-2", 2, 0, world_size=4)
        self.assert_found("of 2 to 3 nodes", "of 2 to 3 nodes")

    def test_a_restarted_server_may_give_a_number_again(self):
        self.tell("server", "killed")
        self.tell("server", "started", 2)
        self.round("node-1", 0, 0, master_port=2)
        self.assert_clean()

    def test_a_node_that_waited_through_two_lives_of_the_server_agrees_with_one_of_them(self):
        self.tell("node-1", "joining")
        self.tell("server", "started", 2)
        self.round("node-2", 0, 0, master_port=2)
        self.round("node-1", 0, 1, master_port=2, joins=False)
        self.assert_clean()
        self.tell("node-3", "joining", at=3)
        self.round("node-3", 0, 1, master_port=3, joins=False)
        self.assert_found("agrees with neither")


class Order(StoryTest):
    def test_rounds_of_a_node_only_grow(self):
        self.round("node-0", 1, 0)
        self.round("node-0", 2, 0)
        self.assert_clean()
        self.round("node-0", 2, 0)
        self.assertIn("a node was in this round, or a later one, before", self.found())

    def test_another_process_in_its_place_begins_again(self):
        self.round("node-0", 4, 0)
        self.tell("server", "started")
        self.round("node-0", 0, 0, life=2)
        self.assert_clean()

    def test_a_node_that_lost_its_place_joins_before_it_is_in_a_round(self):
        self.round("node-0", 0, 0)
        self.tell("node-0", "place_lost", round=0, why="")
        self.round("node-0", 1, 0)
        self.assert_clean()
        self.tell("node-0", "place_lost", round=1, why="")
        self.round("node-0", 2, 0, joins=False)
        self.assert_found("without having joined")

    def test_a_node_that_was_notified_of_the_end_is_in_no_further_round(self):
        self.round("node-0", 0, 0)
        self.tell("node-0", "closed", who="node-1")
        self.assert_clean()
        self.round("node-0", 1, 0)
        self.assertIn("a node is in a round after it was notified of the end", self.found())

    def test_no_node_gets_into_a_round_after_the_end(self):
        self.round("node-0", 0, 0)
        self.tell("node-0", "closing")
        self.round("node-1", 1, 0, at=promises.LOAD_S + 10)
        self.assert_found("after the end, and got into a round")

    def test_a_restarted_server_does_not_know_of_the_end(self):
        self.round("node-0", 0, 0)
        self.tell("node-0", "closing")
        self.tell("server", "started", 2)
        self.round("node-1", 0, 0)
        self.assert_clean()


class Losses(StoryTest):
    """node-0 is lost at 10, or later; node-1 must be notified."""

    KILL_NOTICE_S = promises.GRACE_S + promises.NOTICE_S
    SILENCE_NOTICE_S = promises.SILENT_S + promises.NOTICE_S

    def setUp(self):
        super().setUp()
        for number in range(2):
            self.tell(f"node-{number}", "started", at=0, node=f"198.18.0.{number + 2}_{100 + number}_0")
            self.round(f"node-{number}", 0, number, at=1)

    def kill(self, at=10):
        self.tell("node-0", "killed", at=at)

    def silence(self, at=10, lasts=promises.SURELY_LOST_S, cable=True):
        self.fault(["node-0"], silences=["node-0"], lasts=lasts, at=at, healed=at + lasts, cable=cable)

    def receives(self, at, kind="member_lost", who="198.18.0.2_100_0", number=0):
        self.tell("node-1", kind, at=at, round=number, who=who, why="")

    def outcomes(self, late=0.0, until=100):
        for second in range(1, until + 1):
            self.tell("world", "beat", 0, at=second, late=late)
        return [notice.outcome for notice in losses.notices(self.story())]

    def assert_missed(self, **more):
        self.assertEqual(self.outcomes(**more), [losses.MISSED])
        self.assert_found("was not notified of a loss")

    def assert_outcome(self, outcome, **more):
        self.assertEqual(self.outcomes(**more), [outcome])
        self.assert_clean()

    # --- What counts as notice

    def test_a_member_is_notified_that_another_was_killed(self):
        self.kill()
        self.receives(10.5)
        self.assert_outcome(losses.NOTIFIED)

    def test_a_member_that_is_not_notified_is_found(self):
        self.kill()
        self.assert_missed()

    def test_joining_does_not_count_as_notice(self):
        self.kill()
        self.round("node-1", 1, 0, at=10.5)
        self.assert_missed()

    def test_losing_its_own_place_does_not_count_as_notice(self):
        self.kill()
        self.receives(10.5, "place_lost")
        self.assert_missed()

    def test_a_loss_in_another_round_does_not_count_as_notice(self):
        self.kill()
        self.receives(10.5, number=1)
        self.assert_missed()

    def test_one_of_many_lost_nodes_is_reported_with_them(self):
        for who in ("198.18.0.9_7_0, 198.18.0.2_100_0", "198.18.0.9_7_0 and 3 more"):
            with self.subTest(who=who):
                self.setUp()
                self.kill()
                self.receives(10.5, who=who)
                self.assert_outcome(losses.NOTIFIED)

    def test_a_member_that_left_the_round_for_another_reason_has_moved_on(self):
        for kind, who in (("member_lost", "198.18.0.9_7_0"), ("nodes_waiting", "")):
            with self.subTest(kind=kind):
                self.setUp()
                self.kill()
                self.receives(10.1, kind, who=who)
                self.assert_outcome(losses.MOVED_ON)

    # --- In time

    def test_the_notice_of_a_killed_process_comes_soon(self):
        for more, outcome in ((-0.05, losses.NOTIFIED), (0.05, losses.MISSED)):
            with self.subTest(outcome=outcome):
                self.setUp()
                self.kill()
                self.receives(10 + self.KILL_NOTICE_S + more)
                self.assertEqual(self.outcomes(), [outcome])

    def test_the_notice_of_a_silent_node_comes_after_the_window(self):
        for cable in (True, False):
            for more, outcome in ((-0.05, losses.NOTIFIED), (0.05, losses.MISSED)):
                with self.subTest(cable=cable, outcome=outcome):
                    self.setUp()
                    self.silence(cable=cable)
                    self.receives(10 + self.SILENCE_NOTICE_S + more)
                    self.assertEqual(self.outcomes(), [outcome])

    def test_a_silence_counts_from_the_time_when_it_began(self):
        self.silence()
        self.tell("world", "begun", 0, at=11, number=1)
        self.receives(11 + self.SILENCE_NOTICE_S - 0.05)
        self.assert_outcome(losses.NOTIFIED)

    def test_a_short_silence_is_no_loss(self):
        self.silence(lasts=1)
        self.assertEqual(self.outcomes(), [])

    def test_a_cut_cable_delays_the_notice_of_the_end_of_a_process(self):
        self.silence(lasts=promises.SURELY_LOST_S - 0.1)
        self.kill(at=10.5)
        self.receives(10.5 + promises.GRACE_S + self.SILENCE_NOTICE_S - 0.05)
        self.assert_outcome(losses.NOTIFIED)

    def test_the_limit_grows_by_the_delay_of_a_busy_machine(self):
        for late, outcome in ((0.0, losses.MISSED), (0.2, losses.NOTIFIED)):
            with self.subTest(late=late):
                self.setUp()
                self.kill()
                self.receives(10 + self.KILL_NOTICE_S + 4 * 0.2)
                self.assertEqual(self.outcomes(late), [outcome])

    def test_delays_at_another_time_do_not_count(self):
        self.kill()
        self.receives(12)
        self.tell("world", "beat", 0, at=5, late=3.0)
        self.assert_missed()

    def test_a_notice_that_is_not_due_is_pending(self):
        self.kill()
        self.tell("world", "rest", 0, at=50)  # the delays since then are not known yet
        self.assert_outcome(losses.PENDING, until=10)

    # --- Which members are exempt

    def test_a_member_that_is_struck_or_has_no_server_is_exempt(self):
        for touched in ("node-1", "server"):
            for cable in (True, False):
                with self.subTest(touched=touched, cable=cable):
                    self.setUp()
                    self.fault([touched], at=9, healed=12, cable=cable)
                    self.kill()
                    self.assert_outcome(losses.EXEMPT)

    def test_a_fault_at_another_time_exempts_no_member(self):
        for began, healed in ((4, 6), (12, 20)):
            with self.subTest(began=began):
                self.setUp()
                self.fault(["node-1"], at=began, healed=healed)
                self.kill()
                self.assert_missed()

    def test_a_cut_exempts_a_member_for_as_long_after_it_as_tcp_may_take(self):
        for killed, outcome in ((6.5, losses.EXEMPT), (7.5, losses.MISSED)):
            with self.subTest(killed=killed):
                self.setUp()
                self.fault(["node-1"], at=5, healed=5.9, cable=True)
                self.kill(at=killed)
                self.assertEqual(self.outcomes(), [outcome])

    def test_a_member_that_was_in_a_round_since_has_reached_the_server_again(self):
        self.fault(["node-1"], at=2, healed=7, cable=True)
        self.round("node-0", 1, 0, at=9)
        self.round("node-1", 1, 1, at=9)
        self.kill()
        self.assert_missed()

    def test_a_bad_cable_has_no_time_limit(self):
        self.fault(["node-0"], at=9, healed=15, cable=True)
        self.kill()
        self.assert_outcome(losses.EXEMPT)

    def test_a_member_that_ends_is_exempt(self):
        self.kill()
        self.tell("node-1", "signalled", at=10.1)
        self.tell("node-1", "ended", at=10.2, status=0, may=False)
        self.assert_outcome(losses.EXEMPT)

    def test_a_node_in_another_round_needs_no_notice(self):
        self.round("node-1", 1, 1, at=5)
        self.kill()
        self.assertEqual(self.outcomes(), [])

    def test_c10d_promises_nothing(self):
        self.kill()
        self.outcomes()
        self.assert_clean(rules=invariants.Rules(2, 3, reports_losses=False))

    def test_in_etcd_a_lease_has_to_end_first(self):
        self.kill()
        self.receives(10 + promises.ETCD_LEASE_S + 1)
        self.outcomes()
        self.assert_found("was not notified of a loss")
        self.assert_clean(rules=invariants.Rules(2, 3, in_etcd=True))

    def test_in_etcd_the_limit_is_the_end_of_the_lease(self):
        self.kill()
        self.receives(10 + promises.ETCD_NOTICED_S + promises.NOTICE_S + 0.1)
        self.outcomes()
        self.assertTrue(invariants.violations(self.story(invariants.Rules(2, 3, in_etcd=True))))

    def test_faults_of_members_of_etcd_exempt_all_nodes(self):
        self.fault(["etcd-1"], lasts=1, at=8, healed=9)
        self.kill()
        self.outcomes()
        self.assert_clean(rules=invariants.Rules(2, 3, in_etcd=True))


class Processes(StoryTest):
    def test_a_signalled_process_ends_with_a_good_status(self):
        self.tell("node-0", "signalled")
        self.tell("node-0", "ended", status=0, may=False)
        self.tell("server", "signalled")
        self.tell("server", "ended", status=0, may=False)
        self.assert_clean()

    def test_a_signal_may_come_before_a_process_is_ready_but_not_later(self):
        self.tell("node-0", "signalled")
        self.tell("node-0", "ended", status=-15, may=False)
        self.assert_clean()
        self.tell("node-1", "joining")
        self.tell("node-1", "signalled")
        self.tell("node-1", "ended", status=-15, may=False)
        self.assert_found("with a wrong status")

    def test_a_bad_status_is_found(self):
        self.tell("node-0", "signalled")
        self.tell("node-0", "ended", status=1, may=False)
        self.assert_found("with a wrong status")

    def test_a_process_that_ends_late_or_not_at_all_is_found(self):
        self.tell("node-0", "signalled", at=0)
        self.tell("node-0", "ended", at=promises.END_S + 1, status=0, may=False)
        self.tell("node-1", "signalled", at=0)
        self.assert_found("longer than", "has not ended within")

    def test_a_process_that_ends_by_itself_is_found_unless_it_may(self):
        self.tell("node-0", "ended", status=4, may=True)
        self.tell("node-1", "killed")
        self.tell("node-1", "ended", status=-9, may=False)
        self.tell("node-2", "closed")
        self.tell("node-2", "ended", status=5, may=False)
        self.assert_clean()
        self.tell("node-3", "ended", status=-6, may=False)
        self.assert_found("ended by itself")

    def test_output_that_cannot_be_read_is_found(self):
        self.tell("node-0", "not_json", line="{")
        self.assert_found("not JSON")

    def measured(self, who, rss_bytes, descriptors, life=1):
        self.tell(who, "measured", life, rss_bytes=rss_bytes, descriptors=descriptors)

    def test_memory_may_not_grow(self):
        for who, more in (("node-0", promises.NODE_GROWTH_BYTES), ("server", promises.SERVER_GROWTH_BYTES)):
            self.measured(who, 5 << 20, 10)
            self.measured(who, (5 << 20) + more, 10)
        self.assert_clean()
        self.measured("server", (5 << 20) + promises.SERVER_GROWTH_BYTES + 1, 10)
        self.assert_found("its rss_bytes grow")

    def test_descriptors_may_not_grow(self):
        self.measured("node-0", 1, 10)
        self.measured("node-0", 1, 11 + promises.NODE_GROWTH_DESCRIPTORS)
        self.assert_found("its descriptors grow")

    def test_in_etcd_a_node_keeps_a_connection_to_each_member_and_no_more(self):
        in_etcd = invariants.Rules(2, 3, in_etcd=True)
        most = 10 + promises.NODE_GROWTH_DESCRIPTORS + promises.ETCD_GROWTH_DESCRIPTORS
        self.measured("node-0", 1, 10)
        self.measured("node-0", 1, most)
        self.assert_clean(rules=in_etcd)
        self.measured("node-0", 1, most + 1)
        self.assertTrue(invariants.violations(self.story(in_etcd)))

    def test_another_process_is_measured_separately(self):
        self.measured("node-0", 1, 10)
        self.measured("node-0", 1 << 30, 1000, life=2)
        self.assert_clean()


class Progress(StoryTest):
    """One complete round of all nodes, or not."""

    LIVING = [("node-0", 1), ("node-1", 1)]

    def stands(self, living=None):
        return invariants.one_round_of_all(invariants.Story(self.events, RULES), living or self.LIVING)

    def test_all_are_in_one_round(self):
        self.round("node-0", 3, 0)
        self.assertIsNone(self.stands())
        self.round("node-1", 3, 1)
        self.assertEqual(self.stands(), 3)

    def test_two_rounds_are_not_progress(self):
        self.round("node-0", 3, 0)
        self.round("node-1", 4, 1)
        self.assertIsNone(self.stands())

    def test_a_node_that_left_its_round_is_not_progress(self):
        self.round("node-0", 3, 0)
        self.round("node-1", 3, 1)
        self.tell("node-1", "member_lost", round=3, who="", why="")
        self.assertIsNone(self.stands())

    def test_a_round_of_other_nodes_is_not_progress(self):
        self.round("node-0", 3, 0, world_size=3)
        self.round("node-1", 3, 1, world_size=3)
        self.assertIsNone(self.stands())

    def test_a_node_without_a_place_is_a_spare(self):
        for rank in range(3):
            self.round(f"node-{rank}", 3, rank, world_size=3)
        self.tell("node-3", "joining")
        self.assertEqual(self.stands([(f"node-{number}", 1) for number in range(4)]), 3)

    def test_in_etcd_a_spare_has_to_report_it(self):
        spare = "muster: a spare: round 3 is full with 5 nodes; waits without limit for one of them to leave\n"
        out = "muster: waiting for the backend to say how the rendezvous 'x' stands: etcd is out of reach\n"
        self.assertTrue(last_is_a_spare_of(out + spare, 3))
        self.assertFalse(last_is_a_spare_of(spare, 4), "it was one of an earlier round")
        self.assertFalse(last_is_a_spare_of(spare, 30))
        self.assertFalse(last_is_a_spare_of(spare + out, 3), "it has lost its lease, or its connection")
        self.assertFalse(last_is_a_spare_of("", 3), "it is just being started")


class JobStoryTest(StoryTest):
    """Launchers, and what their workers report."""

    def formed(self, who, number, nodes=2, workers=2, life=1):
        self.tell(who, "formed", life, round=number, nodes=nodes, workers=workers, took_ms=1)

    def worker(self, who, number, rank, local_rank=0, world_size=2, master_port=1, life=1):
        self.tell(who, "worker", life, round=number, rank=rank, local_rank=local_rank, world_size=world_size,
                  master_addr="198.18.0.2", master_port=master_port, pid=1)

    def again(self, who, life=1):
        self.tell(who, "again", life, why="")


class Jobs(JobStoryTest):
    def setUp(self):
        super().setUp()
        self.tell("server", "started")
        self.formed("agent-0", 0)
        self.worker("agent-0", 0, 0)
        self.formed("agent-1", 0)

    def test_two_workers_with_two_ranks_agree(self):
        self.worker("agent-1", 0, 1)
        self.assert_clean()

    def test_one_rank_is_for_one_worker(self):
        self.worker("agent-1", 0, 0)
        self.assert_found("two workers of one round have one rank")

    def test_in_another_place_the_same_rank_is_another_one(self):
        self.worker("agent-1", 0, 0, master_port=2)  # of a restarted server
        self.assert_clean()

    def test_workers_of_one_round_agree_on_its_size(self):
        self.worker("agent-1", 0, 1, world_size=3)
        self.assert_found("do not agree on its size", "does not know the size that its launcher knows")

    def test_a_workers_rank_lies_within_its_world(self):
        self.worker("agent-1", 0, 2)
        self.assert_found("outside its world")

    def test_the_ranks_of_a_node_follow_each_other(self):
        self.formed("agent-2", 1, workers=4)
        self.worker("agent-2", 1, 1, local_rank=1, world_size=4)
        self.worker("agent-2", 1, 2, local_rank=2, world_size=4)
        self.assert_clean()
        self.worker("agent-2", 1, 3, local_rank=0, world_size=4)
        self.assert_found("do not follow each other")

    def test_a_worker_is_started_once_in_a_round(self):
        self.worker("agent-0", 0, 0)
        self.assertIn("a worker was started twice in one round", self.found())

    def test_between_rounds_there_is_no_worker(self):
        self.again("agent-0")
        self.assert_clean()
        self.worker("agent-0", 1, 0)
        self.assert_found("outside of any round")

    def test_rounds_of_a_launcher_only_grow_but_another_process_begins_again(self):
        self.formed("agent-0", 1)
        self.formed("agent-0", 0, life=2)
        self.assert_clean()
        self.formed("agent-0", 0, life=2)
        self.assert_found("a launcher was in this round")

    def test_a_job_is_neither_too_small_nor_too_large(self):
        self.formed("agent-2", 1, nodes=1)
        self.formed("agent-3", 1, nodes=4)
        self.assert_found("of 2 to 3 nodes", "of 2 to 3 nodes")

    def test_a_process_that_outlives_its_launcher_is_found(self):
        self.tell("agent-0", "orphan", pid=7, command="python3")
        self.assert_found("alive 5 s after its launcher")

    def test_a_launcher_may_show_by_its_status_that_a_signal_ended_it(self):
        self.tell("agent-0", "signalled")
        self.tell("agent-0", "ended", status=1, may=True)
        self.assert_clean()
        self.tell("agent-1", "ended", status=1, may=False)
        self.assert_found("ended by itself")


class ProgressOfJobs(JobStoryTest):
    LIVING = [("agent-0", 1), ("agent-1", 1)]

    def setUp(self):
        super().setUp()
        for number in range(2):
            self.formed(f"agent-{number}", 3)

    def stands(self, living=None):
        return job_invariants.one_job_of_all(invariants.Story(self.events, RULES), living or self.LIVING)

    def test_all_are_there_with_all_their_workers(self):
        self.worker("agent-0", 3, 1)
        self.assertIsNone(self.stands())
        self.worker("agent-1", 3, 0)
        self.assertEqual(self.stands(), 3)

    def test_a_node_that_left_its_round_is_not_progress(self):
        self.worker("agent-0", 3, 1)
        self.worker("agent-1", 3, 0)
        self.again("agent-1")
        self.assertIsNone(self.stands())

    def test_two_rounds_are_not_progress(self):
        self.worker("agent-0", 3, 1)
        self.formed("agent-1", 4)
        self.worker("agent-1", 4, 0)
        self.assertIsNone(self.stands())

    def test_a_node_without_a_place_is_a_spare(self):
        for number in range(3):
            self.formed(f"agent-{number}", 5, nodes=3, workers=3)
            self.worker(f"agent-{number}", 5, number, world_size=3)
        living = [(f"agent-{number}", 1) for number in range(4)]
        self.tell("agent-3", "started")
        self.assertEqual(self.stands(living), 5)


if __name__ == "__main__":
    unittest.main()
