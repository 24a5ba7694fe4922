"""Which members must be notified of which loss, and by when: what docs/guide/elastic-jobs.md promises, on a machine as
busy as this one was."""

import dataclasses

from torture import promises

NOTIFIED = "notified"  # of this very loss
MOVED_ON = "moved on"  # it had to leave that round earlier: another node was lost, or nodes waited for the next one
EXEMPT = "exempt"  # a fault struck it, the server, or the link over which the server had to notice the loss
PENDING = "not due"
MISSED = "missed"

# What ends a member's part in a round without the server: the harness, or the end of the rendezvous.
ENDS = ("killed", "signalled", "ended", "left", "closing", "closed")


@dataclasses.dataclass(frozen=True)
class Notice:
    """What one other member of a round received about one loss."""
    loss: object  # the event: killed, or a long fault
    since: float  # when the lost node was gone
    by: float  # when the survivor must have been notified
    survivor: list  # its events
    report: object  # the first thing that the survivor reports after the loss, or None
    outcome: str

    @property
    def took_s(self):
        return self.report.at - self.since


def notices(story):
    """One for each loss and each other member of that round."""
    for loss, who, since in _losses(story):
        lost = story.life_at(who, loss.at)
        number = stands_in(lost, loss.at) if lost else None
        if number is None:
            continue
        for (survivor, _), events in story.lives.items():
            if survivor != who and survivor.startswith("node") and stands_in(events, loss.at) == number:
                yield _notice(story, loss, since, lost, events, number)


def stands_in(events, at):
    """The round in which this life of a node last reported to be. None: in none, or it has reported something else
    since."""
    reports = _before(events, at)
    return reports[-1].data["round"] if reports and reports[-1].kind == "round" else None


def _before(events, at):
    return [event for event in events if event.at < at and event.kind != "measured"]


def _losses(story):
    """(event, who, when it was gone)"""
    for event in story.events:
        if event.kind == "killed" and event.who.startswith("node"):
            yield event, event.who, event.at
        elif event.kind == "fault" and event.data["lasts"] >= _surely_lost_s(story):
            for who in event.data["silences"]:
                yield event, who, story.begun.get(event.data["number"], event.at)


def _surely_lost_s(story):
    return promises.ETCD_SURELY_LOST_S if story.rules.in_etcd else promises.SURELY_LOST_S


def _notice(story, loss, since, lost, survivor, number):
    report = next((event for event in survivor if event.at >= loss.at and event.kind != "measured"), None)
    within = _noticed_within(story, loss, since, lost)
    due = since + (within or 0) + promises.NOTICE_S
    by = due + promises.WAKE_UPS * story.lateness(since, due)
    if report and report.at <= by and _reports_loss(report, number, lost[0].data.get("node")):
        outcome = NOTIFIED
    elif report and report.at <= by and _had_to_leave(report, number):
        outcome = MOVED_ON
    elif within is None or _struck(story, survivor, loss, since, by) or (report and report.at <= by and report.kind in ENDS):
        outcome = EXEMPT
    else:
        outcome = PENDING if by > story.observed_until else MISSED
    return Notice(loss, since, by, survivor, report, outcome)


def _reports_loss(report, number, name):
    """The server names the first eight nodes; of the others it gives the number."""
    if report.kind != "member_lost" or report.data["round"] != number:
        return False
    named, _, more = report.data["who"].partition(" and ")
    return bool(more) or any(one.startswith(name) for one in named.split(", "))


def _had_to_leave(report, number):
    return report.kind == "nodes_waiting" or (report.kind == "member_lost" and report.data["round"] == number)


# ----------------------------------------------------------------------------------------------------------------
# faults that matter

def _noticed_within(story, loss, since, lost):
    """How long the server may take to notice the loss. None: this cannot be known, because messages reach it late."""
    who, last_report = lost[0].who, _before(lost, loss.at)[-1].at
    cables = [fault for fault in story.touches[who] if fault.cable and fault.matters(since, since, last_report)]
    cut = any(who in fault.silences and fault.ended >= since for fault in cables)
    if story.rules.in_etcd:
        return None if cables and not cut else promises.ETCD_NOTICED_S
    if loss.kind == "killed" and not cables:
        return promises.GRACE_S  # its kernel ends the connection
    if cables and not cut:
        return None
    return promises.SILENT_S + (promises.GRACE_S if loss.kind == "killed" else 0)


def _struck(story, survivor, loss, since, by):
    last_report = _before(survivor, loss.at)[-1].at
    if story.rules.in_etcd and any(touch.began <= by and touch.ended + promises.ETCD_AFTERMATH_S >= since
                                   for who, touches in story.touches.items() if who.startswith("etcd")
                                   for touch in touches):
        return True
    return any(fault.matters(since, by, last_report)
               for who in ("server", survivor[0].who) for fault in story.touches[who])


@dataclasses.dataclass(frozen=True)
class Touch:
    """A fault that strikes a process."""
    began: float
    ended: float
    cable: bool
    silences: tuple

    def matters(self, since, until, last_report):
        """Whether it matters between these two times, for a node that reported at `last_report` that it was in a round.
        """
        if last_report > self.ended + promises.PAUSE_S:
            return False  # it had reached the server again
        return self.began <= until and self.ended + self._aftermath() >= since

    def _aftermath(self):
        """How long node and server may take to reach each other again."""
        lasted = self.ended - self.began
        if not self.cable:
            return promises.PAUSE_S
        # TCP retransmits later and later; from about the window on, the connection is closed.
        return lasted if lasted < promises.WINDOW_S / 2 else lasted + promises.CONNECT_S + promises.PAUSE_S
