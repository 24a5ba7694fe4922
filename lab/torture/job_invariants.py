"""What must never be among the events of a job: launchers and their workers. As in invariants.py, each check is a
function from a Story to Violations.

A launcher reports `formed` (a round), its workers report `worker`, and it reports `again` when it leaves that round.
The harness adds `orphan` when it finds a process whose launcher is gone.
"""

import collections

from torture import promises
from torture.violation import Violation


def agents(story):
    return [events for (who, _), events in story.lives.items() if who.startswith("agent")]


def workers(story):
    for events in agents(story):
        for event in events:
            if event.kind == "worker":
                yield event


def ranks_of_a_round_are_distinct(story):
    """The workers that meet in one place in one round: no two have one rank, and all know how many they are."""
    worlds = collections.defaultdict(list)
    for event in workers(story):
        worlds[event.data["round"], event.data["master_addr"], event.data["master_port"]].append(event)
    for world in worlds.values():
        ranks = {}
        for event in world:
            before = ranks.setdefault(event.data["rank"], event)
            if before is not event:
                yield Violation("two workers of one round have one rank", (before, event))
            if event.data["world_size"] != world[0].data["world_size"]:
                yield Violation("two workers of one round do not agree on its size", (world[0], event))
            if not 0 <= event.data["rank"] < event.data["world_size"]:
                yield Violation("a worker's rank is outside its world", (event,))


def ranks_of_a_node_are_contiguous(story):
    for events in agents(story):
        first = None
        for event in events:
            if event.kind == "formed":
                first = None
            elif event.kind == "worker":
                first = first or event
                expected = first.data["rank"] - first.data["local_rank"] + event.data["local_rank"]
                if event.data["rank"] != expected:
                    yield Violation("the ranks of a node's workers do not follow each other", (first, event))


def workers_are_those_of_their_round(story):
    """Each worker is in the round that its launcher reported before, and no local rank occurs twice."""
    for events in agents(story):
        formed, local = None, {}
        for event in events:
            if event.kind in ("formed", "again"):
                formed, local = (event if event.kind == "formed" else None), {}
            elif event.kind == "worker":
                if formed is None:
                    yield Violation("a worker runs outside of any round", (event,))
                    continue
                if event.data["world_size"] != formed.data["workers"]:
                    yield Violation("a worker does not know the size that its launcher knows", (formed, event))
                before = local.setdefault(event.data["local_rank"], event)
                if before is not event:
                    yield Violation("a worker was started twice in one round", (before, event))


def rounds_of_agents_only_grow(story):
    for events in agents(story):
        formed = [event for event in events if event.kind == "formed"]
        for before, event in zip(formed, formed[1:]):
            if event.data["round"] <= before.data["round"]:
                yield Violation("a launcher was in this round, or a later one, before", (before, event))


def jobs_are_as_large_as_allowed(story):
    rules = story.rules
    for events in agents(story):
        for event in events:
            if event.kind == "formed" and not rules.min_nodes <= event.data["nodes"] <= rules.max_nodes:
                yield Violation(f"a job is not of {rules.min_nodes} to {rules.max_nodes} nodes", (event,))


def no_process_outlives_its_agent(story):
    for event in story.events:
        if event.kind == "orphan":
            yield Violation(f"it is alive {promises.ORPHAN_S} s after its launcher has ended", (event,))


CHECKS = (ranks_of_a_round_are_distinct, ranks_of_a_node_are_contiguous, workers_are_those_of_their_round,
          rounds_of_agents_only_grow, jobs_are_as_large_as_allowed, no_process_outlives_its_agent)


def one_job_of_all(story, living):
    """Whether `living` ((who, life) of all launchers) are in one round with all their workers, or spares of a full one.
    Returns its number, or None."""
    formed, there = {}, {}
    for key in living:
        last = None
        for event in story.lives[key]:
            if event.kind in ("formed", "again"):
                last, there[key] = (event if event.kind == "formed" else None), []
            elif event.kind == "worker" and last:
                there[key].append(event.data["rank"])
        if last:
            formed[key] = last
    numbers = {event.data["round"] for event in formed.values()}
    size = min(len(living), story.rules.max_nodes)
    if len(numbers) != 1 or len(formed) != size or {event.data["nodes"] for event in formed.values()} != {size}:
        return None
    ranks = sorted(rank for key in formed for rank in there[key])
    total = {event.data["workers"] for event in formed.values()}
    return numbers.pop() if total == {len(ranks)} and ranks == list(range(len(ranks))) else None
