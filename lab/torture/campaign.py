"""Episodes: a fleet meets, is struck, heals, and must meet again. Finally all of it must end.

One seed decides what is drawn: the victims, the faults, the times. (It does not decide what the kernel makes of it:
that differs from run to run.)"""

import os
import random
import shutil
import time

from torture import etcd_faults, etcd_fleet, network_faults, process_faults, promises, resource_faults, worker_faults
from torture.etcd_fleet import EtcdFleet, EtcdRun
from torture.events import Record
from torture.fleet import Fleet, Run
from torture.job_fleet import JobFleet, JobRun
from torture.invariants import Violation, violations
from torture.losses import EXEMPT, MOVED_ON, NOTIFIED, notices
from torture.network import Network
from torture.probe import Probe
from torture.site import Site
from torture.victims import Server

FAULTS = (process_faults.KillNodes, process_faults.KillServer, process_faults.PauseNodes, process_faults.PauseServer,
          process_faults.Leave, network_faults.Cut, network_faults.CutOneWay, network_faults.BadCable,
          network_faults.InterfaceDown, resource_faults.FullDisk, resource_faults.ClockJump, resource_faults.Flood,
          resource_faults.Garbage, resource_faults.ServerDescriptors, resource_faults.NodeDescriptors,
          worker_faults.KillWorkers, worker_faults.PauseWorkers, etcd_faults.KillMembers, etcd_faults.PauseMembers,
          etcd_faults.CutMembers)
NODES_MIN, NODES_MAX = 3, 12
# In this share of episodes the server itself has no fault: then all remaining nodes must be notified of every loss.
SPARED_SHARE = 0.4
STORES = ("muster",) * 7 + ("c10d",) * 2 + ("file",)
JOB_SHARE = 0.35  # share of episodes in which launchers run a job
ETCD_SHARE = 0.25  # share of the others in which nodes meet in etcd
ETCD_NODES_MAX = 8
JOB_NODES_MIN, JOB_NODES_MAX = 2, 6


class Failure(Exception):
    """What was found, and in which episode."""

    def __init__(self, found):
        super().__init__("\n".join(str(violation) for violation in found))
        self.found = found


class Campaign:
    def __init__(self, muster, seed, folder, say):
        self.muster, self.seed, self.folder, self.say = muster, seed, folder, say
        machines = ["server", *(f"node-{number}" for number in range(NODES_MAX)), "stranger", *etcd_fleet.MEMBERS]
        self.network = Network(machines, seed)
        self.site = Site(folder, muster)
        self.counts = {"episodes": 0, "strikes": 0, "rounds": 0, "workers": 0}
        self.losses = {NOTIFIED: 0, MOVED_ON: 0, EXEMPT: 0}  # by what the other members of the round received
        self.slowest_notice_s = {"killed": 0.0, "silent": 0.0}
        self.latest_s = 0.0  # the latest wake-up of the probe
        self.faults = {kind.__name__: 0 for kind in FAULTS}
        self.slowest_s = 0.0

    def build(self):
        self.network.build()
        self.site.build()

    def remove(self):
        self.network.remove()
        self.site.remove()

    def run(self, until, first_episode=1, store=None):
        """Plays episodes until then (time.monotonic()). Raises Failure."""
        number = first_episode
        while time.monotonic() < until:
            Episode(self, number, store).play(until)
            self.counts["episodes"] += 1
            number += 1


class Episode:
    def __init__(self, campaign, number, store):
        self._campaign, self._number = campaign, number
        jobs = random.Random(f"{campaign.seed}/{number}/job")  # separate: the other draws do not change
        is_job = store == "job" or (jobs.random() < JOB_SHARE and store is None)
        etcds = random.Random(f"{campaign.seed}/{number}/etcd")
        is_etcd = store == "etcd" or (store is None and not is_job and etcds.random() < ETCD_SHARE and
                                      not etcd_fleet.missing())
        others = random.Random(f"{campaign.seed}/{number}")  # so that each episode can be played alone
        self._rng = rng = jobs if is_job else etcds if is_etcd else others
        drawn = rng.choice(STORES)
        self._run = (self._draw_job() if is_job else self._draw_etcd() if is_etcd else
                     self._draw_run(store or drawn))
        self._strikes = rng.randint(3, 8)
        self._closes = self._run.finishes if is_job else rng.random() < 0.5
        self._kinds = ()
        self._faults = 0
        self._folder = os.path.join(campaign.folder, f"episode-{number}")

    def _draw_run(self, store):
        rng, site = self._rng, self._campaign.site
        nodes = rng.randint(NODES_MIN, NODES_MAX)
        # Only the coordinator has spares. On c10d, nodes without a place make the others form rounds without end.
        most = rng.randint(max(2, nodes - 2), nodes + 1) if store == "muster" else rng.randint(nodes, nodes + 1)
        identity = f"episode-{self._number}"
        endpoint = (os.path.join(site.store_disk.path, identity) if store == "file"
                    else f"{self._campaign.network.machines['server'].address}:{Server.PORT}")
        return Run(identity, store, nodes, rng.randint(1, min(most, nodes)), most, endpoint)

    def _draw_job(self):
        rng = self._rng
        nodes = rng.randint(JOB_NODES_MIN, JOB_NODES_MAX)
        most = rng.randint(max(2, nodes - 1), nodes + 1)
        endpoint = f"{self._campaign.network.machines['server'].address}:{Server.PORT}"
        return JobRun(f"episode-{self._number}", "muster", nodes, rng.randint(1, min(most, nodes)), most, endpoint,
                      finishes=rng.random() < 0.5)

    def _draw_etcd(self):
        rng = self._rng
        nodes = rng.randint(NODES_MIN, ETCD_NODES_MAX)
        most = rng.randint(max(2, nodes - 2), nodes + 1)
        return EtcdRun(f"episode-{self._number}", "etcd", nodes, rng.randint(1, min(most, nodes)), most,
                       etcd_fleet.endpoint(self._campaign.network))

    def play(self, until):
        campaign, run = self._campaign, self._run
        os.makedirs(self._folder)
        record = Record(os.path.join(self._folder, "events.jsonl"))
        kind = {JobRun: JobFleet, EtcdRun: EtcdFleet}.get(type(run), Fleet)
        fleet = kind(run, campaign.muster, campaign.network, campaign.site, record, self._folder, self._rng)
        fleet.server.spared = self._rng.random() < SPARED_SHARE
        fitting = [kind for kind in FAULTS if kind.fits(fleet)]
        self._kinds = self._rng.sample(fitting, self._rng.randint(3, len(fitting)))  # other kinds do not occur
        campaign.say(f"episode {self._number}: store={'job' if fleet.has_workers else run.store} nodes={run.nodes} min={run.min_nodes} "
                     f"max={run.max_nodes} strikes={self._strikes} close={'yes' if self._closes else 'no'} "
                     f"server={'spared' if fleet.server.spared else 'struck'} "
                     f"faults={','.join(sorted(kind.__name__ for kind in self._kinds))}")
        try:
            with Probe(record):
                self._rest(fleet, "start")
                for number in range(self._strikes):
                    if time.monotonic() > until:
                        break
                    self._strike(fleet, number)
                self._end(fleet)
            self._check(fleet)
            self._count(fleet.story())
        finally:
            fleet.kill()
            record.close()
        campaign.site.disk.clear()
        campaign.site.store_disk.clear()
        shutil.rmtree(self._folder)

    # --- A strike

    def _strike(self, fleet, number):
        faults = self._draw_faults(fleet)
        self._campaign.say(f"  strike {number + 1}: {'; '.join(str(fault) for _, fault in faults)}")
        began = time.monotonic()
        plan = sorted([(at, 0, fault) for at, fault in faults] +
                      [(at + fault.lasts, 1, fault) for at, fault in faults], key=lambda step: step[:2])
        begun = {}
        try:
            for at, heals, fault in plan:
                fleet.wait(began + at - time.monotonic())
                if heals:
                    self._heal(fleet, fault, begun.pop(fault))
                else:
                    begun[fault] = self._begin(fleet, fault)
        finally:
            for fault in begun:
                fault.heal()
        self._campaign.counts["strikes"] += 1
        self._rest(fleet, f"strike {number + 1}")

    def _draw_faults(self, fleet):
        """A list of (when, what), in the order of their beginning."""
        rng = self._rng
        faults = []
        for _ in range(rng.randint(1, 4)):
            kind = rng.choice(self._kinds)
            short = rng.random() < 0.4
            lasts = rng.uniform(promises.FAULT_S_MIN, promises.WINDOW_S) if short else rng.uniform(
                promises.WINDOW_S, promises.FAULT_S_MAX)
            faults.append((rng.uniform(0, 3), kind(fleet, rng, lasts)))
            self._campaign.faults[kind.__name__] += 1
        return sorted(faults, key=lambda one: one[0])

    def _begin(self, fleet, fault):
        self._faults += 1
        fleet.record.add("world", 0, "fault", number=self._faults, what=str(fault), lasts=fault.lasts,
                         touches=fault.touches, silences=fault.silences, cable=fault.cable)
        fault.begin()
        fleet.record.add("world", 0, "begun", number=self._faults)
        return self._faults

    @staticmethod
    def _heal(fleet, fault, number):
        fault.heal()
        fleet.record.add("world", 0, "healed", number=number)

    # --- Rest: no fault is active

    def _rest(self, fleet, what, steady_s=0.0):
        took = fleet.converge(lambda: self._check(fleet), steady_s)
        self._check(fleet)
        if took is None:
            stands = fleet.status() if fleet.server.alive else "nothing"
            raise Failure([Violation(f"no round of all nodes within {fleet.run.recovery_s:.0f} s after {what}; "
                                     f"the server's status: {stands}",
                                     tuple(events[-1] for events in fleet.story().members()))])
        fleet.measure()
        self._check(fleet)
        fleet.record.add("world", 0, "rest")
        self._campaign.slowest_s = max(self._campaign.slowest_s, took)
        self._campaign.say(f"    one round of all after {took:.1f} s")

    def _end(self, fleet):
        if self._closes:
            if fleet.run.settles_s:
                self._rest(fleet, "the last strike", fleet.run.settles_s)
            self._close(fleet)
        left = fleet.end()
        if left:
            raise Failure([Violation(f"{victim.name} did not end within {promises.END_S} s", ()) for victim in left])

    def _count(self, story):
        campaign = self._campaign
        campaign.counts["rounds"] += sum(event.kind in ("round", "formed") for event in story.events)
        campaign.counts["workers"] += sum(event.kind == "worker" for event in story.events)
        campaign.latest_s = max(campaign.latest_s, story.lateness(0, story.end))
        for notice in notices(story) if story.rules.reports_losses else ():
            if notice.outcome in campaign.losses:
                campaign.losses[notice.outcome] += 1
            if notice.outcome == NOTIFIED:
                kind = "killed" if notice.loss.kind == "killed" else "silent"
                campaign.slowest_notice_s[kind] = max(campaign.slowest_notice_s[kind], notice.took_s)

    @staticmethod
    def _close(fleet):
        received = fleet.close()
        if received is None:
            return
        if not received:
            raise Failure([Violation(f"not all nodes were notified of the end within {promises.CLOSED_S} s",
                                     tuple(events[-1] for events in fleet.story().members()))])
        if not fleet.newcomer_is_refused():
            raise Failure([Violation("a new node was not refused after the end", ())])

    @staticmethod
    def _check(fleet):
        found = violations(fleet.story())
        if found:
            raise Failure(found)
