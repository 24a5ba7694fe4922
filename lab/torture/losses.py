"""Which members must be notified of which loss, and by when: what docs/rendezvous.md promises, on a machine as busy as this one was."""

import dataclasses

from torture import promises

TOLD = "told"  # of this very loss
WENT_ON = "gone on"  # it had to leave that round before: another node was lost, or nodes waited for the next one
EXCUSED = "excused"  # a fault was upon it, upon the server, or upon the way by which the server was to notice
PENDING = "not due"
UNHEARD = "unheard"

# What ends a member's part in a round without the server: the harness, or the end of the rendezvous.
ENDS = ("killed", "told_to_end", "ended", "left", "closing", "closed")


@dataclasses.dataclass(frozen=True)
class Hearing:
    """Of one loss by one of the other members of its round."""
    loss: object  # the event: killed, or a fault that lasts
    since: float  # when the lost one was gone
    by: float  # when the survivor must have heard
    survivor: list  # its events
    word: object  # the first thing that it says after the loss, or None
    outcome: str

    @property
    def took_s(self):
        return self.word.at - self.since


def hearings(story):
    """Of all losses, by all who were in one round with the lost one."""
    for loss, who, since in _losses(story):
        lost = story.life_at(who, loss.at)
        number = stands_in(lost, loss.at) if lost else None
        if number is None:
            continue
        for (survivor, _), events in story.lives.items():
            if survivor != who and survivor.startswith("node") and stands_in(events, loss.at) == number:
                yield _hearing(story, loss, since, lost, events, number)


def stands_in(events, at):
    """The round in which this life of a node said it was, last before; None: in none, or it said something since."""
    said = _before(events, at)
    return said[-1].data["round"] if said and said[-1].kind == "round" else None


def _before(events, at):
    return [event for event in events if event.at < at and event.kind != "measured"]


def _losses(story):
    """(event, who, when they were gone)"""
    for event in story.events:
        if event.kind == "killed" and event.who.startswith("node"):
            yield event, event.who, event.at
        elif event.kind == "fault" and event.data["lasts"] >= _surely_lost_s(story):
            for who in event.data["silences"]:
                yield event, who, story.begun.get(event.data["number"], event.at)


def _surely_lost_s(story):
    return promises.ETCD_SURELY_LOST_S if story.rules.in_etcd else promises.SURELY_LOST_S


def _hearing(story, loss, since, lost, survivor, number):
    word = next((event for event in survivor if event.at >= loss.at and event.kind != "measured"), None)
    notices = _noticed_within(story, loss, since, lost)
    due = since + (notices or 0) + promises.TOLD_S
    by = due + promises.WAKE_UPS * story.lateness(since, due)
    if word and word.at <= by and _is_told(word, number, lost[0].data.get("node")):
        outcome = TOLD
    elif word and word.at <= by and _had_to_go(word, number):
        outcome = WENT_ON
    elif notices is None or _struck(story, survivor, loss, since, by) or (word and word.at <= by and word.kind in ENDS):
        outcome = EXCUSED
    else:
        outcome = PENDING if by > story.observed_until else UNHEARD
    return Hearing(loss, since, by, survivor, word, outcome)


def _is_told(word, number, name):
    """The server names the first eight; of the others it says how many."""
    if word.kind != "member_lost" or word.data["round"] != number:
        return False
    named, _, more = word.data["who"].partition(" and ")
    return bool(more) or any(one.startswith(name) for one in named.split(", "))


def _had_to_go(word, number):
    return word.kind == "nodes_waiting" or (word.kind == "member_lost" and word.data["round"] == number)


# ----------------------------------------------------------------------------------------------------------------
# faults that matter

def _noticed_within(story, loss, since, lost):
    """How long the server may take to know; None: nobody can tell, for some of what it hears comes late."""
    who, last_word = lost[0].who, _before(lost, loss.at)[-1].at
    cables = [fault for fault in story.touches[who] if fault.cable and fault.matters(since, since, last_word)]
    cut = any(who in fault.silences and fault.ended >= since for fault in cables)
    if story.rules.in_etcd:
        return None if cables and not cut else promises.ETCD_NOTICED_S
    if loss.kind == "killed" and not cables:
        return promises.GRACE_S  # its kernel says so
    if cables and not cut:
        return None
    return promises.SILENT_S + (promises.GRACE_S if loss.kind == "killed" else 0)


def _struck(story, survivor, loss, since, by):
    last_word = _before(survivor, loss.at)[-1].at
    if story.rules.in_etcd and any(touch.began <= by and touch.ended + promises.ETCD_AFTERMATH_S >= since
                                   for who, touches in story.touches.items() if who.startswith("etcd")
                                   for touch in touches):
        return True
    return any(fault.matters(since, by, last_word)
               for who in ("server", survivor[0].who) for fault in story.touches[who])


@dataclasses.dataclass(frozen=True)
class Touch:
    """A fault upon somebody."""
    began: float
    ended: float
    cable: bool
    silences: tuple

    def matters(self, since, until, last_word):
        """Between these two, to one who said at `last_word` that it was in a round."""
        if last_word > self.ended + promises.PAUSE_S:
            return False  # it had found the server again
        return self.began <= until and self.ended + self._aftermath() >= since

    def _aftermath(self):
        """How long it may take to find each other again."""
        lasted = self.ended - self.began
        if not self.cable:
            return promises.PAUSE_S
        # TCP sends again later and later; from about the window on, the connection is given up.
        return lasted if lasted < promises.WINDOW_S / 2 else lasted + promises.CONNECT_S + promises.PAUSE_S
