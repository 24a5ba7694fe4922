#!/usr/bin/env python3
"""The checks of fault campaigns: each is silent about what may happen, and speaks up about what may not."""

import os
import sys
import unittest

sys.path.insert(0, os.environ["MUSTER_SOURCE_DIR"])

from torture import invariants, promises  # noqa: E402
from torture.events import Event  # noqa: E402

RULES = invariants.Rules(min_nodes=2, max_nodes=3)


class StoryTeller(unittest.TestCase):
    """Made-up events, a second apart unless it is said when."""

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

    def fault(self, touches, silences=(), lasts=1.0, at=None, healed=None):
        self.faults += 1
        self.tell("world", "fault", 0, at=at, number=self.faults, what="", lasts=lasts, touches=touches,
                  silences=silences)
        if healed is not None:
            self.tell("world", "healed", 0, at=healed, number=self.faults)

    def found(self, rules=RULES):
        events = sorted(self.events, key=lambda event: event.at)
        return [violation.what for violation in invariants.violations(invariants.Story(events, rules))]

    def assert_clean(self, **more):
        self.assertEqual(self.found(**more), [])

    def assert_found(self, *parts):
        found = self.found()
        self.assertEqual(len(found), len(parts), found)
        for what, part in zip(found, parts):
            self.assertIn(part, what)


class Agreement(StoryTeller):
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

    def test_a_server_that_is_started_again_may_give_a_number_again(self):
        self.tell("server", "killed")
        self.tell("server", "started", 2)
        self.round("node-1", 0, 0, master_port=2)
        self.assert_clean()

    def test_who_waited_through_two_lives_of_the_server_agrees_with_one_of_them(self):
        self.tell("node-1", "joining")
        self.tell("server", "started", 2)
        self.round("node-2", 0, 0, master_port=2)
        self.round("node-1", 0, 1, master_port=2, joins=False)
        self.assert_clean()
        self.tell("node-3", "joining", at=3)
        self.round("node-3", 0, 1, master_port=3, joins=False)
        self.assert_found("agrees with neither")


class Order(StoryTeller):
    def test_rounds_of_a_node_only_grow(self):
        self.round("node-0", 1, 0)
        self.round("node-0", 2, 0)
        self.assert_clean()
        self.round("node-0", 2, 0)
        self.assertIn("a node was in this round, or a later one, before", self.found())

    def test_another_process_in_its_place_begins_anew(self):
        self.round("node-0", 4, 0)
        self.tell("server", "started")
        self.round("node-0", 0, 0, life=2)
        self.assert_clean()

    def test_who_has_lost_its_place_joins_before_it_is_in_a_round(self):
        self.round("node-0", 0, 0)
        self.tell("node-0", "place_lost", round=0, why="")
        self.round("node-0", 1, 0)
        self.assert_clean()
        self.tell("node-0", "place_lost", round=1, why="")
        self.round("node-0", 2, 0, joins=False)
        self.assert_found("without having joined")

    def test_who_has_heard_of_the_end_is_in_no_further_round(self):
        self.round("node-0", 0, 0)
        self.tell("node-0", "closed", who="node-1")
        self.assert_clean()
        self.round("node-0", 1, 0)
        self.assertIn("a node is in a round after it heard of the end", self.found())

    def test_nobody_gets_into_a_round_after_the_end(self):
        self.round("node-0", 0, 0)
        self.tell("node-0", "closing")
        self.round("node-1", 1, 0, at=promises.LOAD_S + 10)
        self.assert_found("after the end, and got there")

    def test_a_server_that_is_started_again_has_not_heard_of_the_end(self):
        self.round("node-0", 0, 0)
        self.tell("node-0", "closing")
        self.tell("server", "started", 2)
        self.round("node-1", 0, 0)
        self.assert_clean()


class Losses(StoryTeller):
    LATER = 100

    def setUp(self):
        super().setUp()
        self.round("node-0", 0, 0, at=1)
        self.round("node-1", 0, 1, at=1)

    def end(self):
        self.tell("world", "rest", 0, at=self.LATER)

    def test_a_member_hears_that_another_was_killed(self):
        self.tell("node-0", "killed", at=10)
        self.tell("node-1", "member_lost", at=11, round=0, who="node-0", why="")
        self.end()
        self.assert_clean()

    def test_a_member_that_hears_nothing_is_found(self):
        self.tell("node-0", "killed", at=10)
        self.end()
        self.assert_found("heard nothing of a loss")

    def test_c10d_promises_nothing(self):
        self.tell("node-0", "killed", at=10)
        self.end()
        self.assert_clean(rules=invariants.Rules(2, 3, tells_losses=False))

    def test_whoever_is_struck_itself_or_has_no_server_need_not_hear(self):
        for touched in ("node-1", "server"):
            with self.subTest(touched=touched):
                self.setUp()
                self.fault([touched], at=9, healed=12)
                self.tell("node-0", "killed", at=10)
                self.end()
                self.assert_clean()

    def test_who_is_elsewhere_need_not_hear(self):
        self.round("node-1", 1, 1, at=5)
        self.tell("node-0", "killed", at=10)
        self.end()
        self.assert_clean()

    def test_a_long_silence_is_a_loss_and_a_short_one_is_none(self):
        self.fault(["node-0"], silences=["node-0"], lasts=1, at=10, healed=11)
        self.fault(["node-0"], silences=["node-0"], lasts=promises.SURELY_LOST_S, at=40, healed=45)
        self.end()
        self.assert_found("heard nothing of a loss")

    def test_there_is_still_time(self):
        self.tell("node-0", "killed", at=10)
        self.tell("world", "rest", 0, at=10 + promises.HEARD_S - 1)
        self.assert_clean()


class Processes(StoryTeller):
    def test_who_is_told_to_end_ends_with_a_good_status(self):
        self.tell("node-0", "told_to_end")
        self.tell("node-0", "ended", status=0, may=False)
        self.tell("server", "told_to_end")
        self.tell("server", "ended", status=0, may=False)
        self.assert_clean()

    def test_a_signal_may_come_before_a_process_is_ready_but_not_later(self):
        self.tell("node-0", "told_to_end")
        self.tell("node-0", "ended", status=-15, may=False)
        self.assert_clean()
        self.tell("node-1", "joining")
        self.tell("node-1", "told_to_end")
        self.tell("node-1", "ended", status=-15, may=False)
        self.assert_found("did not end well")

    def test_a_bad_status_is_found(self):
        self.tell("node-0", "told_to_end")
        self.tell("node-0", "ended", status=1, may=False)
        self.assert_found("did not end well")

    def test_who_takes_long_or_does_not_end_is_found(self):
        self.tell("node-0", "told_to_end", at=0)
        self.tell("node-0", "ended", at=promises.END_S + 1, status=0, may=False)
        self.tell("node-1", "told_to_end", at=0)
        self.assert_found("longer than", "has not within")

    def test_who_ends_by_itself_is_found_unless_it_may(self):
        self.tell("node-0", "ended", status=4, may=True)
        self.tell("node-1", "killed")
        self.tell("node-1", "ended", status=-9, may=False)
        self.tell("node-2", "closed")
        self.tell("node-2", "ended", status=5, may=False)
        self.assert_clean()
        self.tell("node-3", "ended", status=-6, may=False)
        self.assert_found("ended by itself")

    def test_output_that_cannot_be_read_is_found(self):
        self.tell("node-0", "nonsense", line="{")
        self.assert_found("no JSON")

    def measured(self, who, rss_bytes, descriptors, life=1):
        self.tell(who, "measured", life, rss_bytes=rss_bytes, descriptors=descriptors)

    def test_what_is_used_may_not_grow(self):
        for who, more in (("node-0", promises.NODE_GROWTH_BYTES), ("server", promises.SERVER_GROWTH_BYTES)):
            self.measured(who, 5 << 20, 10)
            self.measured(who, (5 << 20) + more, 10)
        self.assert_clean()
        self.measured("server", (5 << 20) + promises.SERVER_GROWTH_BYTES + 1, 10)
        self.assert_found("ever more rss_bytes")

    def test_descriptors_may_not_grow(self):
        self.measured("node-0", 1, 10)
        self.measured("node-0", 1, 11 + promises.NODE_GROWTH_DESCRIPTORS)
        self.assert_found("ever more descriptors")

    def test_another_process_is_measured_anew(self):
        self.measured("node-0", 1, 10)
        self.measured("node-0", 1 << 30, 1000, life=2)
        self.assert_clean()


class Progress(StoryTeller):
    """One complete round of all, or not."""

    LIVING = [("node-0", 1), ("node-1", 1)]

    def stands(self, living=None):
        return invariants.one_round_of_all(invariants.Story(self.events, RULES), living or self.LIVING)

    def test_all_are_in_one_round(self):
        self.round("node-0", 3, 0)
        self.assertIsNone(self.stands())
        self.round("node-1", 3, 1)
        self.assertEqual(self.stands(), 3)

    def test_not_if_they_are_in_two(self):
        self.round("node-0", 3, 0)
        self.round("node-1", 4, 1)
        self.assertIsNone(self.stands())

    def test_not_if_one_has_gone_on(self):
        self.round("node-0", 3, 0)
        self.round("node-1", 3, 1)
        self.tell("node-1", "member_lost", round=3, who="", why="")
        self.assertIsNone(self.stands())

    def test_not_if_the_round_is_of_others(self):
        self.round("node-0", 3, 0, world_size=3)
        self.round("node-1", 3, 1, world_size=3)
        self.assertIsNone(self.stands())

    def test_whoever_finds_no_place_is_a_spare(self):
        for rank in range(3):
            self.round(f"node-{rank}", 3, rank, world_size=3)
        self.tell("node-3", "joining")
        self.assertEqual(self.stands([(f"node-{number}", 1) for number in range(4)]), 3)


if __name__ == "__main__":
    unittest.main()
