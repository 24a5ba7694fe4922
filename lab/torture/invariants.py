"""What must never be among the events of an episode. Each check is a function from a Story to Violations; CHECKS has
all.

A restarted server knows nothing of its former life, so the same round number may be given twice. What a node reports
belongs to a life of the server in which the node was waiting for it.
"""

import collections
import dataclasses

from torture import job_invariants, promises
from torture.losses import MISSED, Touch, notices, stands_in
from torture.violation import Violation


@dataclasses.dataclass(frozen=True)
class Rules:
    """Of the run that the story is about."""
    min_nodes: int
    max_nodes: int
    reports_losses: bool = True  # c10d does not
    in_etcd: bool = False


SERVERS = ("server", "etcd-0", "etcd-1", "etcd-2")
MEMBERS = ("node", "agent")  # the prefixes of names of processes that are in rounds


class Story:
    """Events in order, and ways to look at them."""

    def __init__(self, events, rules):
        self.events, self.rules = list(events), rules
        self.end = self.events[-1].at if self.events else 0.0
        self.lives = collections.defaultdict(list)  # from (who, life) to the events of that life
        for event in self.events:
            self.lives[event.who, event.life].append(event)
        # When each life of the server began. Before the first one, and on backends without a server, it is life 0.
        self._servers = [event.at for event in self.events if event.who == "server" and event.kind == "started"]
        # When a fault, by its number, was active on all its victims.
        self.begun = {event.data["number"]: event.at for event in self.events if event.kind == "begun"}
        self.touches = self._touches()
        self._beats = [event for event in self.events if event.kind == "beat"]

    def nodes(self):
        return [events for (who, _), events in self.lives.items() if who.startswith("node")]

    def members(self):
        """The last life of every node or launcher."""
        last = {who: events for (who, _), events in self.lives.items() if who.startswith(MEMBERS)}
        return list(last.values())

    def rounds(self):
        """(round event, the joining before it or None) of all nodes."""
        for events in self.nodes():
            joining = None
            for event in events:
                if event.kind == "joining":
                    joining = event
                elif event.kind == "round":
                    yield event, joining

    def server_life_at(self, at):
        return sum(began <= at for began in self._servers)

    def server_lives(self, event, joining):
        """The lives of the server in which this may have been reported."""
        since = joining.at if joining else event.at
        return range(self.server_life_at(since), self.server_life_at(event.at) + 1)

    def life_at(self, who, at):
        """The events of the life that `who` had then; None if it had not been started."""
        lives = [events for (name, _), events in self.lives.items() if name == who and events[0].at < at]
        return lives[-1] if lives else None

    # --- Faults

    def _touches(self):
        """By process: the faults that strike it."""
        touches, begun = collections.defaultdict(list), {}

        def add(fault, until):
            touch = Touch(fault.at, until, fault.data["cable"], fault.data["silences"])
            for who in fault.data["touches"]:
                touches[who].append(touch)

        for event in self.events:
            if event.kind == "fault":
                begun[event.data["number"]] = event
            elif event.kind == "healed":
                add(begun.pop(event.data["number"]), event.at)
        for fault in begun.values():
            add(fault, self.end)
        return touches

    def was_touched(self, who, since, until):
        return any(touch.began <= until and touch.ended >= since for touch in self.touches[who])

    # --- How busy the machine was

    @property
    def observed_until(self):
        """Until then it is known how busy the machine was."""
        return self._beats[-1].at if self._beats else 0.0

    def lateness(self, since, until):
        """The longest delay of a thread that was to wake up in this time."""
        before, longest = 0.0, 0.0
        for beat in self._beats:
            if beat.at >= since and before <= until:
                longest = max(longest, beat.data["late"])
            before = beat.at
        return longest


# ----------------------------------------------------------------------------------------------------------------
# agreement

def those_in_a_round_agree(story):
    """Members agree on the size and on where workers meet, and no two have one rank. A report that may be from two
    lives of the server must agree with one of them."""
    sure, unsure = collections.defaultdict(list), []
    for event, joining in story.rounds():
        lives = story.server_lives(event, joining)
        if len(lives) == 1:
            sure[lives[0], event.data["round"]].append(event)
        else:
            unsure.append((event, lives))
    for reports in sure.values():
        for other in reports[1:]:
            if not _agree(reports[0], other):
                yield Violation("two nodes of one round do not agree", (reports[0], other))
        ranks = collections.defaultdict(list)
        for event in reports:
            ranks[event.data["rank"]].append(event)
        for events in ranks.values():
            if len(events) > 1:
                yield Violation("two nodes of one round have one rank", tuple(events))
    for event, lives in unsure:
        others = [sure.get((life, event.data["round"])) for life in lives]
        if all(others) and not any(_agree(reports[0], event) for reports in others):
            yield Violation("a node agrees with neither life of the server",
                            (event, *(reports[0] for reports in others)))


def _agree(one, other):
    return all(one.data[key] == other.data[key] for key in ("world_size", "master_addr", "master_port"))


def ranks_are_within_the_world(story):
    for event, _ in story.rounds():
        if not 0 <= event.data["rank"] < event.data["world_size"]:
            yield Violation("a rank is outside its world", (event,))


def worlds_are_as_large_as_allowed(story):
    rules = story.rules
    for event, _ in story.rounds():
        if not rules.min_nodes <= event.data["world_size"] <= rules.max_nodes:
            yield Violation(f"a world is not of {rules.min_nodes} to {rules.max_nodes} nodes", (event,))


# ----------------------------------------------------------------------------------------------------------------
# order

def rounds_only_grow(story):
    for events in story.nodes():
        last = None
        for event in events:
            if event.kind != "round":
                continue
            if last and event.data["round"] <= last.data["round"]:
                yield Violation("a node was in this round, or a later one, before", (last, event))
            last = event


def no_node_is_in_a_round_it_did_not_join(story):
    """Especially not after its place was lost: between that and the next round it has to join."""
    for events in story.nodes():
        before = None  # the last event that shows where it is
        for event in events:
            if event.kind == "round" and (before is None or before.kind != "joining"):
                yield Violation("a node reports that it is in a round without having joined",
                                (before, event) if before else (event,))
            if event.kind in ("joining", "round", "place_lost", "member_lost", "nodes_waiting", "left", "closing"):
                before = event


def closed_stays_closed(story):
    """A node that was notified is in no further round, and no node that set out later is in one. (A restarted server
    does not know that the run was closed.)"""
    a_moment_s = 1  # between what happens and when this harness reads it
    for events in story.nodes():
        closed = None
        for event in events:
            if event.kind in ("closed", "closing"):
                closed = closed or event
            elif event.kind == "round" and closed:
                yield Violation("a node is in a round after it was notified of the end", (closed, event))
    first = {}  # by life of the server
    for event in story.events:
        if event.kind in ("closed", "closing") and event.who.startswith("node"):
            first.setdefault(story.server_life_at(event.at), event)
    for event, joining in story.rounds():
        lives = story.server_lives(event, joining)
        closed = first.get(lives[0])
        if joining and closed and len(lives) == 1 and joining.at > closed.at + a_moment_s:
            yield Violation("a node joined after the end, and got into a round", (closed, joining, event))


# ----------------------------------------------------------------------------------------------------------------
# notices

def members_are_notified_of_losses(story):
    """In time, and of exactly these; unless the server, or they themselves, are struck then."""
    if not story.rules.reports_losses:
        return
    for notice in notices(story):
        if notice.outcome == MISSED:
            yield Violation(f"a member was not notified of a loss within {notice.by - notice.since:.1f} s",
                            (notice.loss, *([notice.report] if notice.report else notice.survivor[-1:])))


# ----------------------------------------------------------------------------------------------------------------
# processes

ENDS_WELL = (0, 128 + 15)  # a node that waits reports which signal ended it
TOO_EARLY = -15  # the signal came before the process could handle it


def signalled_processes_end(story):
    for (who, _), events in story.lives.items():
        signalled = next((event for event in events if event.kind == "signalled"), None)
        if signalled is None or any(event.kind == "killed" for event in events):
            continue
        ended = next((event for event in events if event.kind == "ended"), None)
        if ended is None and story.end - signalled.at > promises.END_S:
            yield Violation(f"it was signalled to end, and has not ended within {promises.END_S} s", (signalled,))
        exempt = ended and any(story.was_touched(one, signalled.at, ended.at) for one in (who, *SERVERS))
        if ended and ended.at - signalled.at > promises.END_S and not exempt:
            yield Violation(f"it took longer than {promises.END_S} s to end", (signalled, ended))
        well = ENDS_WELL if any(event.kind in ("joining", "up", "formed") for event in events) else (*ENDS_WELL, TOO_EARLY)
        if ended and ended.data["status"] not in well and not ended.data["may"] and not _closed(events):
            yield Violation("it ended with a wrong status", (signalled, ended))


def _closed(events):
    """Whether it was notified of the end of the rendezvous. Then its status may say so, too."""
    return any(event.kind == "closed" for event in events) or events[-1].data.get("status") == 5


def no_process_ends_by_itself(story):
    for events in story.lives.values():
        ended = next((event for event in events if event.kind == "ended"), None)
        if ended is None or ended.data["may"] or _closed(events):
            continue
        if not any(event.kind in ("killed", "signalled") for event in events):
            yield Violation("it ended by itself", (ended,))


def output_is_json(story):
    for event in story.events:
        if event.kind == "not_json":
            yield Violation("a line of its output is not JSON", (event,))


def resources_do_not_grow(story):
    """Memory and descriptors at rest, compared with the first rest."""
    nodes = len({who for who, _ in story.lives if who.startswith(MEMBERS)})
    of_the_server = promises.SERVER_GROWTH_DESCRIPTORS_PER_NODE * nodes
    of_a_node = promises.NODE_GROWTH_DESCRIPTORS + promises.ETCD_GROWTH_DESCRIPTORS * story.rules.in_etcd
    for (who, _), events in story.lives.items():
        measured = [event for event in events if event.kind == "measured"]
        server = who == "server"
        allowed = {"rss_bytes": promises.SERVER_GROWTH_BYTES if server else promises.NODE_GROWTH_BYTES,
                   "descriptors": of_the_server if server else of_a_node}
        for later in measured[1:]:
            for key, more in allowed.items():
                if later.data[key] > measured[0].data[key] + more:
                    yield Violation(f"its {key} grow without end", (measured[0], later))
                    return


CHECKS = (those_in_a_round_agree, ranks_are_within_the_world, worlds_are_as_large_as_allowed, rounds_only_grow,
          no_node_is_in_a_round_it_did_not_join, closed_stays_closed, members_are_notified_of_losses, signalled_processes_end,
          no_process_ends_by_itself, output_is_json, resources_do_not_grow, *job_invariants.CHECKS)


def violations(story):
    return [violation for check in CHECKS for violation in check(story)]


# ----------------------------------------------------------------------------------------------------------------
# progress

def one_round_of_all(story, living):
    """Whether `living` ((who, life) of all nodes that should be there) are in one complete round, or spares of a full
    one. Returns its number, or None."""
    stands = {key: stands_in(story.lives[key], story.end + 1) for key in living}
    rounds = [number for number in stands.values() if number is not None]
    size = min(len(living), story.rules.max_nodes)
    if len(rounds) != size or len(set(rounds)) != 1:
        return None
    reports = [event for key in living for event in story.lives[key]
               if event.kind == "round" and event.data["round"] == rounds[0]]
    return rounds[0] if {event.data["world_size"] for event in reports} == {size} else None
