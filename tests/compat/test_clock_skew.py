"""One node's wall clock is an hour off: muster's nodes tolerate it, PyTorch's lose each other.

PyTorch compares its own clock with times that others have written (section 7.4 of the rendezvous specification). muster
measures, with its own clock, when others change. PyTorch's failure is asserted, too: it shows that the scenario does
harm, and from what muster protects its nodes.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rendezvous_peers import ROUND_S, Meeting, Node, TorchNodes, all_next, assert_one_round

pytestmark = [
    pytest.mark.skipif(
        not shutil.which("faketime") and os.environ.get("MUSTER_REQUIRE_TORCH") != "1",
        reason="faketime is not installed",
    ),
    pytest.mark.parametrize("meeting", ["muster"], indirect=True),  # the server does not matter
]

OFFSETS_S = [3600, -3600]
OFFSET_NAMES = ["an_hour_ahead", "an_hour_behind"]

# Silent for 3 s means lost; 8 s are clearly more. PyTorch's nodes may never agree: they time out.
LIMITS = {
    "keep_alive_interval": 1,
    "keep_alive_max_attempt": 3,
    "last_call_timeout": 2,
    "join_timeout": 10,
}
WATCHED_S = 8.0


def forget_dead_clocks() -> None:
    for left in Path("/dev/shm").glob("*faketime_s*"):
        pid = left.name.rpartition("_")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            left.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def nothing_is_left_of_clocks():
    """libfaketime leaves files behind for each killed process. The next process with the same pid, faketime itself
    included, would find them and fail."""
    forget_dead_clocks()
    yield
    forget_dead_clocks()


def shifted_clock(offset_s: int) -> dict[str, str]:
    """An environment in which the wall clock is off, and the monotonic one is not."""
    preload = subprocess.run(
        ["faketime", "-m", "-f", "+0", "printenv", "LD_PRELOAD"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    asan = os.environ.get("ASAN_OPTIONS", "")
    return {
        "LD_PRELOAD": preload,
        "FAKETIME": f"{offset_s:+d}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # libfaketime is loaded first, which AddressSanitizer would refuse.
        "ASAN_OPTIONS": f"{asan}:verify_asan_link_order=0".lstrip(":"),
    }


def assert_shifted(node: Node, offset_s: int) -> None:
    clock = node.ask("clock")
    assert abs(clock["wall"] - time.time() - offset_s) < 60, "the wall clock is shifted"
    assert abs(clock["monotonic"] - time.monotonic()) < 60, "the monotonic clock is not"


def evicted_within(meeting: Meeting, nodes: list[Node], watched_s: float) -> set[str]:
    """Nodes that were missing among the stored members at any time."""
    give_up = time.monotonic() + watched_s
    evicted: set[str] = set()
    while time.monotonic() < give_up:
        evicted |= {node.name for node in nodes} - meeting.members()
        time.sleep(0.05)  # the claim is about this time
    return evicted


@pytest.mark.parametrize("offset_s", OFFSETS_S, ids=OFFSET_NAMES)
def test_no_muster_node_is_evicted(meeting, offset_s):
    meeting.limits(3, 4, **LIMITS)
    nodes = [meeting.add("muster", last) for last in (1, 3)]
    nodes.append(meeting.add("muster", 2, **shifted_clock(offset_s)))
    assert_shifted(nodes[-1], offset_s)
    results = all_next(nodes)
    assert_one_round(nodes, results, 0)
    # The last call neither ended at once nor lasted an hour.
    assert all(1.5 < result["seconds"] < ROUND_S / 2 for result in results), results
    assert evicted_within(meeting, nodes, WATCHED_S) == set()
    assert [node.waiting() for node in nodes] == [0] * 3
    assert_one_round(nodes, all_next(nodes), 1)
    # No node had to compete for this: an eviction that is undone at once would show here.
    costs = [node.ask("cost") for node in nodes]
    assert all(cost["reads"] + cost["writes"] < 200 for cost in costs), costs


def lost_nodes(meeting: Meeting, nodes: list[Node]) -> list[str]:
    """What happened to the PyTorch nodes that did not stay in one round with all others."""
    for node in nodes:
        node.say("next")
    outcomes = [node.outcome() for node in nodes]
    errors = {outcome["error"] for outcome in outcomes if "error" in outcome}
    assert errors <= {"RendezvousTimeoutError"}, outcomes  # any other error is a fault of the scenario
    lost = [
        f"{node.name}: {outcome.get('error') or 'alone with %d' % outcome['world_size']}"
        for node, outcome in zip(nodes, outcomes)
        if outcome.get("world_size") != len(nodes)
    ]
    return lost or [f"{name}: evicted" for name in evicted_within(meeting, nodes, WATCHED_S)]


@pytest.mark.parametrize("offset_s", [0, *OFFSETS_S], ids=["in_step", *OFFSET_NAMES])
def test_upstream_loses_nodes_unless_clocks_agree(meeting, tmp_path, offset_s):
    meeting.limits(3, 4, **LIMITS)
    shifted_nodes = TorchNodes(tmp_path, **shifted_clock(offset_s))
    try:
        nodes = [meeting.add("torch", last) for last in (1, 3)]
        nodes.append(meeting.add("torch", 2, torch_nodes=shifted_nodes))
        assert_shifted(nodes[-1], offset_s)
        lost = lost_nodes(meeting, nodes)
    finally:
        meeting.end()
        shifted_nodes.end()
    print(f"PyTorch, the clock of {nodes[-1].name} is {offset_s:+d} s off: {lost or 'all is well'}")
    assert bool(lost) == bool(offset_s)
