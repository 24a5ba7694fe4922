"""The master address in rendezvous of PyTorch's and muster's nodes, when rank 0 changes.

A rank 0 of PyTorch 2.6 to 2.13 publishes its address only in the round in which it starts its store, and all of its
nodes keep their first address. muster's nodes publish in every round, and look for the address of the present rank 0.
PyTorch's own error is asserted, too, under the name `upstream`: if PyTorch fixes it, muster can be simpler.
"""

from peers import eventually
from rendezvous_peers import (
    LAST_CALL,
    QUICK,
    ROUND_S,
    all_next,
    assert_one_round,
    assert_same_master,
    is_served,
    master,
    until_waiting,
)


def test_rdzv137_late_nodes_under_a_rank_0_of_pytorch_get_a_live_master(meeting):
    meeting.limits(2, 4, read_timeout=5, **LAST_CALL)
    early = [meeting.add("torch", 1), meeting.add("muster", 2)]
    assert_one_round(early, all_next(early), 0)
    late = [meeting.add("muster", 3), meeting.add("torch", 4)]
    for node in late:
        node.say("next")
    until_waiting(early, len(late))
    for node in early:
        node.say("next")
    rank_0, *muster = [node.result() for node in (early + late)[:3]]
    assert [result["rank"] for result in (rank_0, *muster)] == [0, 1, 2]
    assert {result["world_size"] for result in (rank_0, *muster)} == {4}
    assert {result["round"] for result in (rank_0, *muster)} == {1}
    assert_same_master(muster, rank_0)
    assert is_served(rank_0)
    # PyTorch's rank 0 publishes its address only in the round in which it started its store. A new PyTorch node looks
    # only in the present round, until the store's timeout.
    upstream = late[1].outcome()
    assert upstream["error"] == "DistStoreError", upstream


def test_rdzv135_a_newcomer_that_sorts_first_is_followed_by_muster(meeting):
    meeting.limits(2, 4, **LAST_CALL)
    early = [meeting.add("muster", 3), meeting.add("torch", 4)]
    before = assert_one_round(early, all_next(early), 0)
    late = [meeting.add("muster", 1), meeting.add("torch", 2)]
    for node in late:
        node.say("next")
    until_waiting(early, len(late))
    for node in early:
        node.say("next")
    nodes = early + late
    results = [node.result() for node in nodes]
    first = assert_one_round(nodes, results, 1)
    old_muster, upstream, _, new_torch = results
    assert_same_master([old_muster, new_torch], first)
    # An old PyTorch node keeps its first address: its workers use another store than all others.
    assert master(upstream) == master(before) != master(first)


def test_rdzv137_a_rank_0_of_pytorch_that_missed_a_round_is_followed_when_it_is_back(meeting):
    """It does not publish again. The last node that did was its deputy, which is still there."""
    meeting.limits(2, 3, **QUICK, **LAST_CALL)
    away, deputy, muster = nodes = [
        meeting.add("torch", 1),
        meeting.add("torch", 2),
        meeting.add("muster", 3),
    ]
    results = all_next(nodes)
    before = assert_one_round(nodes, results, 0)
    assert_same_master(results, before)

    away.pause()
    eventually(lambda: away.name not in meeting.members(), "it is declared lost", ROUND_S)
    present = [deputy, muster]
    results = all_next(present)
    assert_same_master(results, assert_one_round(present, results, 1))

    away.resume()
    away.say("next")
    until_waiting(present, 1)
    for node in present:
        node.say("next")
    results = [node.result() for node in nodes]
    first = assert_one_round(nodes, results, 2)
    assert master(first) == master(before)
    _, upstream, follower = results
    assert_same_master([follower], first)
    assert master(upstream) != master(first)  # the deputy continues as if it were still rank 0
