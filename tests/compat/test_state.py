"""The serialized rendezvous state: torch's classes and Python's pickle against muster's codec.

Items 160 to 163, 167 and 168 of the rendezvous checklist, with states built by PyTorch.
"""

import base64
import binascii
import datetime
import io
import json
import pathlib
import pickle
import pickletools
import random
import time

import pytest
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

from peers import Child, required

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
NOON = datetime.datetime(2026, 3, 1, 12, 34, 56, 789012, tzinfo=UTC)

# Python writes groups of 1000, and one group too many for a set of exactly 1000.
SIZES = [0, 1, 2, 999, 1000, 1001, 3000]

KNOWN = {
    *("round", "complete", "deadline", "closed", "participants", "wait_list"),
    *("redundancy_list", "last_heartbeats"),
}

EXTRAS = {
    "none": None,
    "truth": True,
    "numbers": [0, 255, 256, 65536, -1, 2**31, -(2**63), 2**64, 2**1000, 1.5, float("inf")],
    "texts": ["", "héllo", "🚀", "x" * 300],
    "bytes": (b"", b"\0\xff", b"y" * 300),
    "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "dict": {1: {"a": [None]}, "k": {}, (1, 2): b"v"},
    "sets": [set(), {1}, {"a", "b"}],
    "long": list(range(2500)),
    "time": NOON,
    "zoned": NOON.astimezone(datetime.timezone(datetime.timedelta(hours=-5, minutes=-30), "west")),
    "node": _NodeDesc("elsewhere", 7, 8),
    "span": datetime.timedelta(days=3, microseconds=5),
}


class StatePeer:
    """muster's codec in its own process (state_peer.cc)."""

    class Error(Exception):
        """The peer's error."""

    def __init__(self, directory: pathlib.Path):
        log = directory / f"state-peer-{time.monotonic_ns()}.log"
        self.child = Child([required("MUSTER_STATE_PEER")], log)

    def _ask(self, command: str, argument: str) -> str:
        answer = self.child.ask(f"{command} {argument}")
        if answer.startswith("! "):
            raise self.Error(answer[2:])
        return answer

    def decode(self, content: bytes) -> dict:
        return json.loads(self._ask("decode", content.hex()))

    def encode(self, state: dict) -> bytes:
        return bytes.fromhex(self._ask("encode", json.dumps(state)))

    def unbase64(self, text: bytes) -> bytes:
        return bytes.fromhex(self._ask("unbase64", text.hex()))


@pytest.fixture(scope="module")
def muster(tmp_path_factory):
    peer = StatePeer(tmp_path_factory.mktemp("state"))
    yield peer
    peer.child.end()


def microseconds(moment: datetime.datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // MICROSECOND


def triple(node: _NodeDesc) -> list:
    return [node.addr, node.pid, node.local_id]


def described(state: _RendezvousState) -> dict:
    """The expected output of muster, without unknown attributes."""
    times = [state.deadline, *state.last_heartbeats.values()]
    return {
        "round": state.round,
        "complete": state.complete,
        "deadline": None if state.deadline is None else microseconds(state.deadline),
        "closed": state.closed,
        "participants": sorted([triple(node), rank] for node, rank in state.participants.items()),
        "wait_list": sorted(map(triple, state.wait_list)),
        "redundancy_list": sorted(map(triple, getattr(state, "redundancy_list", ()))),
        "last_heartbeats": sorted(
            [triple(node), microseconds(moment)] for node, moment in state.last_heartbeats.items()
        ),
        "closed_by": getattr(state, "muster_closed_by", ""),
        "completion": None,
        "unknown": {},
        "unknown_of_nodes": [],
        "naive_times": any(moment is not None and moment.tzinfo is None for moment in times),
    }


def state_of(size: int, seed: int = 1) -> _RendezvousState:
    """A state of so many participants, and some others."""
    draw = random.Random(seed)
    state = _RendezvousState()
    state.round = draw.choice([0, 3, 300, 70_000, 2**40])
    state.complete = draw.random() < 0.5
    state.closed = draw.random() < 0.5
    state.deadline = draw.choice([None, NOON + datetime.timedelta(seconds=30)])
    pids = [1, 255, 256, 4711, 65_536, 2**31 - 1, 2**31, 2**63 - 1]
    nodes = [
        _NodeDesc(f"nöde-{number}.example.com", draw.choice(pids), number % 3)
        for number in range(2 * size)
    ]
    state.participants = {node: rank for rank, node in enumerate(nodes[:size])}
    for node in nodes[size:]:
        (state.wait_list if draw.random() < 0.5 else state.redundancy_list).add(node)
    for node in nodes:
        state.last_heartbeats[node] = NOON + draw.randrange(10**9) * MICROSECOND
    return state


def assert_same(ours: _RendezvousState, theirs: _RendezvousState) -> None:
    assert type(ours) is type(theirs) is _RendezvousState
    assert vars(ours) == vars(theirs)
    assert list(vars(ours))[:8] == list(vars(_RendezvousState()))
    moments = [*ours.last_heartbeats.values(), *filter(None, [ours.deadline])]
    assert all(moment.tzinfo is UTC for moment in moments)
    assert all(type(value) is bool for value in (ours.complete, ours.closed))


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("size", SIZES)
def test_rdzv160_rdzv162_rdzv163_muster_reads_what_python_writes(muster, size, protocol):
    for seed in range(4):
        state = state_of(size, seed)
        assert muster.decode(pickle.dumps(state, protocol=protocol)) == described(state)


@pytest.mark.parametrize("size", SIZES)
def test_rdzv161_python_reads_what_muster_writes(muster, size):
    for seed in range(4):
        state = state_of(size, seed)
        assert_same(pickle.loads(muster.encode(described(state))), state)


@pytest.mark.parametrize("size", SIZES)
def test_rdzv161_the_pure_python_unpickler_reads_it_too(muster, size):
    """It checks frames and the memo more strictly than the C version."""
    state = state_of(size)
    content = muster.encode(described(state))
    assert_same(pickle._Unpickler(io.BytesIO(content)).load(), state)
    pickletools.dis(content, out=io.StringIO())  # raises if they do not match


def test_rdzv161_there_and_back_and_there_again(muster):
    state = state_of(20)
    for _ in range(3):
        state = pickle.loads(muster.encode(muster.decode(pickle.dumps(state))))
    assert_same(state, state_of(20))


def test_rdzv163_python_streams_that_are_written_in_other_ways(muster):
    state = state_of(300)
    plain = pickle.dumps(state)
    pure = io.BytesIO()
    pickle._Pickler(pure, 4).dump(state)
    framed = io.BytesIO()  # several frames: an optimized pickle has one, a long one many
    pickle.Pickler(framed, 4).dump(state_of(3000))
    assert framed.getvalue().count(b"\x95") > 1
    assert muster.decode(pure.getvalue()) == described(state)
    assert muster.decode(framed.getvalue()) == described(state_of(3000))
    assert muster.decode(pickletools.optimize(plain)) == described(state)


def test_rdzv167_unknown_attributes_survive_a_rewrite(muster):
    state = state_of(5)
    vars(state).update(EXTRAS)
    vars(state)["again"] = [state.deadline, *state.participants]  # shared with the rest
    node = next(iter(state.participants))
    vars(node)["extras"] = EXTRAS
    decoded = muster.decode(pickle.dumps(state))
    assert sorted(decoded["unknown"]) == sorted([*EXTRAS, "again"])
    assert [entry[0] for entry in decoded["unknown_of_nodes"]] == [triple(node)]
    rewritten = pickle.loads(muster.encode(decoded))
    assert vars(rewritten) == vars(state)
    assert rewritten.zoned.tzinfo.tzname(None) == "west"
    same = next(one for one in rewritten.participants if one == node)
    assert vars(same) == vars(node)
    assert set(vars(rewritten)) == KNOWN | set(EXTRAS) | {"again"}


@pytest.mark.parametrize("value", [frozenset([1]), 1j, bytearray(b"x"), range(3), Ellipsis, print])
def test_rdzv167_values_of_other_classes_are_refused(muster, value):
    state = state_of(1)
    state.extra = value
    with pytest.raises(StatePeer.Error, match="not (allowed|part of a rendezvous state)"):
        muster.decode(pickle.dumps(state))


def test_rdzv168_naive_times_are_noticed_and_kept(muster):
    state = state_of(2)
    state.deadline = NOON.replace(tzinfo=None)
    state.last_heartbeats = {
        node: moment.replace(tzinfo=None) for node, moment in state.last_heartbeats.items()
    }
    decoded = muster.decode(pickle.dumps(state))
    assert decoded["naive_times"] is True
    assert decoded == described(state)
    assert vars(pickle.loads(muster.encode(decoded))) == vars(state)


def test_states_of_old_releases_can_be_distinguished(muster):
    state = state_of(2)
    state.redundancy_list = set()
    expected = described(state)
    del state.redundancy_list
    assert muster.decode(pickle.dumps(state)) == expected
    old = _NodeDesc("a", 1, 2)
    vars(old)["fqdn"] = vars(old).pop("addr")
    state.other = old
    assert "other" in muster.decode(pickle.dumps(state))["unknown"]
    hidden = pickle.dumps(state_of(1)).replace(b"\x8c\x04addr", b"\x8c\x04fqdn")
    with pytest.raises(StatePeer.Error, match="'fqdn' instead of 'addr'"):
        muster.decode(hidden)


def test_torch_passes_on_which_node_closed_it(muster):
    state = described(state_of(1)) | {"closed": True, "closed_by": "host_1_0: workers failed"}
    in_torch = pickle.loads(muster.encode(state))
    in_torch.round += 1
    again = muster.decode(pickle.dumps(in_torch))
    assert again["closed_by"] == "host_1_0: workers failed"


def test_torch_hands_on_how_many_ranks_a_round_has(muster):
    state = described(state_of(1)) | {"completion": [7, 16]}
    in_torch = pickle.loads(muster.encode(state))
    assert (in_torch.muster_completed_round, in_torch.muster_world_size) == (7, 16)
    assert muster.decode(pickle.dumps(in_torch))["completion"] == [7, 16]


def test_other_zones_are_converted(muster):
    state = state_of(1)
    expected = described(state)
    for offset in (-23 * 3600, -5400, 1, 12 * 3600):
        zone = datetime.timezone(datetime.timedelta(seconds=offset, microseconds=offset))
        state.last_heartbeats = {
            node: moment.astimezone(zone) for node, moment in state.last_heartbeats.items()
        }
        assert muster.decode(pickle.dumps(state)) == expected


def test_times_of_all_years_are_the_same_on_both_sides(muster):
    draw = random.Random(2)
    span = (datetime.datetime.max - datetime.datetime.min) // MICROSECOND
    first = datetime.datetime.min.replace(tzinfo=UTC)
    moments = [first, first + span * MICROSECOND]
    moments += [first + draw.randrange(span) * MICROSECOND for _ in range(200)]
    state = _RendezvousState()
    state.last_heartbeats = {_NodeDesc("a", 1, i): moment for i, moment in enumerate(moments)}
    assert muster.decode(pickle.dumps(state)) == described(state)
    assert_same(pickle.loads(muster.encode(described(state))), state)


def test_mutated_pickles_mean_the_same_or_are_refused(muster):
    """muster may refuse what Python accepts. What muster accepts, Python reads as the same state."""
    draw = random.Random(3)
    original = pickle.dumps(state_of(2))
    taken = 0
    for _ in range(3000):
        content = bytearray(original)
        content[draw.randrange(len(content))] = draw.randrange(256)
        try:
            decoded = muster.decode(bytes(content))
        except StatePeer.Error:
            continue
        taken += 1
        # Nothing can be executed: muster has found only the allowed classes.
        state = pickle.loads(bytes(content))
        known = {name: value for name, value in decoded.items() if not name.startswith("unknown")}
        wanted = described(state)
        assert known == {name: wanted[name] for name in known}
    assert taken > 100


def test_base64_is_as_lenient_as_pythons(muster):
    draw = random.Random(4)
    for _ in range(2000):
        text = bytes(draw.choice(b"AZaz09+/==#\n") for _ in range(draw.randrange(12)))
        try:
            expected = base64.b64decode(text)
        except binascii.Error:
            with pytest.raises(StatePeer.Error):
                muster.unbase64(text)
        else:
            assert muster.unbase64(text) == expected, text
