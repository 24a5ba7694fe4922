"""Real PyTorch and muster in one rendezvous: they must agree on members, ranks and master address.

Each test runs on muster's server and on PyTorch's. test_rendezvous_master.py is about what happens
to the master address when rank 0 changes.
"""

import time

import pytest

from peers import eventually
from rendezvous_peers import (
    KINDS,
    LAST_CALL,
    QUICK,
    ROUND_S,
    all_next,
    assert_one_round,
    assert_same_master,
    is_served,
    master,
    other_kind,
    until_waiting,
)


@pytest.mark.parametrize("first_kind", KINDS)
def test_rdzv170_four_and_four_nodes_agree_on_everything(meeting, first_kind):
    meeting.limits(8, 8)
    kinds = [first_kind, other_kind(first_kind)] * 4
    nodes = [meeting.add(kind, last) for last, kind in enumerate(kinds, start=1)]
    results = all_next(nodes)
    first = assert_one_round(nodes, results, 0)
    assert first["kind"] == first_kind
    assert_same_master(results, first)
    state = meeting.state()
    assert {repr(node): rank for node, rank in state.participants.items()} == {
        result["node"]: result["rank"] for result in results
    }
    assert state.complete and not state.wait_list and not state.redundancy_list


def test_rdzv170_late_nodes_of_both_kinds_are_let_in(meeting):
    meeting.limits(4, 8, **LAST_CALL)
    early = [meeting.add(kind, last) for last, kind in enumerate(KINDS * 2, start=1)]
    earlier = all_next(early)
    first = assert_one_round(early, earlier, 0)
    assert_same_master(earlier, first)
    assert [node.waiting() for node in early] == [0] * 4

    late = [meeting.add(kind, last) for last, kind in enumerate(KINDS * 2, start=5)]
    for node in late:
        node.say("next")
    until_waiting(early, len(late))
    for node in early:
        node.say("next")
    nodes = early + late
    results = [node.result() for node in nodes]
    # Rank 0 is muster's, publishes in every round, and kept its store: even PyTorch's nodes agree, which never look
    # again.
    assert_same_master(results, assert_one_round(nodes, results, 1))


@pytest.mark.parametrize("victim_kind", KINDS)
def test_rdzv136_rdzv170_a_killed_rank_0_is_replaced_by_a_spare(meeting, victim_kind):
    meeting.limits(7, 8, **QUICK, **LAST_CALL)
    heir_kind = other_kind(victim_kind)
    kinds = [victim_kind, heir_kind] * 4
    victim, *survivors = [meeting.add(kind, last) for last, kind in enumerate(kinds, start=1)]
    dead = assert_one_round([victim, *survivors], all_next([victim, *survivors]), 0)
    spare = meeting.add(heir_kind, 9)
    spare.say("next")
    eventually(lambda: meeting.state().redundancy_list, "the spare is known", ROUND_S)
    assert [node.waiting() for node in survivors] == [0] * 7

    victim.kill()
    killed_at = time.monotonic()
    eventually(lambda: victim.name not in meeting.members(), "the victim is dropped", ROUND_S)
    dropped_s = time.monotonic() - killed_at
    until_waiting(survivors, 1)
    for node in survivors:
        node.say("next")
    nodes = [*survivors, spare]
    results = [node.result() for node in nodes]
    reformed_s = time.monotonic() - killed_at
    print(f"dropped after {dropped_s:.1f} s, next round after {reformed_s:.1f} s")
    assert dropped_s < 10, "about 3 s, and a busy machine"
    heir, *old, newcomer = results
    first = assert_one_round(nodes, results, 1)
    assert heir == first
    assert_same_master([newcomer], first)
    # muster's old nodes follow the new rank 0; PyTorch's keep the address of the dead one.
    assert_same_master([result for result in old if result["kind"] == "muster"], first)
    assert {master(result) for result in old if result["kind"] == "torch"} == {master(dead)}
    assert master(dead) != master(first)
    assert not is_served(dead)


def test_rdzv170_closing_by_pytorch_reaches_muster(meeting):
    meeting.limits(8, 8)
    kinds = ("torch", "muster") * 4
    nodes = [meeting.add(kind, last) for last, kind in enumerate(kinds, start=1)]
    torch, muster = nodes[:2]
    all_next(nodes)
    spare = meeting.add("muster", 9)
    spare.say("next")
    eventually(lambda: meeting.state().redundancy_list, "the spare is known", ROUND_S)
    torch.ask("close")
    assert spare.outcome()["error"] == "RendezvousGracefulExitError"
    eventually(lambda: muster.ask("closed")["closed"], "muster knows that it is closed")
    for node in (*nodes[1::2], meeting.add("muster", 10)):
        outcome = node.try_("next")
        assert outcome["error"] == "RendezvousClosedError"
        assert "by a node that left no name" in outcome["message"]


def test_rdzv170_closing_by_muster_reaches_pytorch_and_the_reason_survives_it(meeting):
    meeting.limits(8, 8)
    kinds = ("muster", "torch") * 4
    nodes = [meeting.add(kind, last) for last, kind in enumerate(kinds, start=1)]
    muster = nodes[0]
    all_next(nodes)
    spare = meeting.add("torch", 9)
    spare.say("next")
    eventually(lambda: meeting.state().redundancy_list, "the spare is known", ROUND_S)
    muster.ask('close the disk of "node 1" is full')
    assert spare.outcome()["error"] == "RendezvousGracefulExitError"
    for torch in nodes[1::2]:
        eventually(lambda node=torch: node.ask("closed")["closed"], "PyTorch knows that it is closed")
        # It removes itself before it notices, and so rewrites what muster has written.
        assert torch.name in meeting.members()
        assert torch.try_("next")["error"] == "RendezvousClosedError"
        assert torch.name not in meeting.members()
    for node in (*nodes[2::2], meeting.add("muster", 10)):
        outcome = node.try_("next")
        assert outcome["error"] == "RendezvousClosedError"
        assert f'{muster.name}: the disk of "node 1" is full' in outcome["message"]


def test_rdzv170_round_after_round_whichever_node_leaves_first(meeting):
    meeting.limits(4, 8, **LAST_CALL)
    nodes = [meeting.add(kind, last) for last, kind in enumerate(KINDS * 4, start=1)]
    results = all_next(nodes)
    first = assert_one_round(nodes, results, 0)
    assert_same_master(results, first)
    for number, leaving_kind in enumerate([*KINDS, None], start=1):
        leaving = [node for node in nodes if node.kind == leaving_kind]
        staying = [node for node in nodes if node.kind != leaving_kind]
        for node in leaving:
            node.say("next")
        until_waiting(staying, len(leaving))
        for node in staying:
            node.say("next")
        results = [node.result() for node in nodes]
        assert_same_master(results, assert_one_round(nodes, results, number))
        assert_same_master(results, first)
