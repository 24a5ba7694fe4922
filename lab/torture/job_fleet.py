"""The processes of an episode in which launchers run a job: a server, launchers on machines of their own, and workers."""

import dataclasses
import os
import time

from torture import promises
from torture.fleet import Fleet, Run
from torture.job_invariants import one_job_of_all
from torture.launchers import Launcher, marked
from torture.victims import await_end

NATURES = ((), (), (), ("deaf",), ("parent",), ("deaf", "parent"))  # of workers
WORKERS_MAX = 3  # of a node


@dataclasses.dataclass(frozen=True)
class JobRun(Run):
    """`finishes`: finally all workers succeed; otherwise the launchers receive SIGTERM."""
    finishes: bool = False

    @property
    def conf(self):
        # The server may be away for as long as a fault lasts; that must not end any job.
        return (f"{super().conf},contact_timeout={promises.JOB_CONTACT_S},"
                f"last_call_timeout={promises.LAST_CALL_S}")

    @property
    def recovery_s(self):
        return promises.JOB_RECOVERY_S


class JobFleet(Fleet):
    has_workers = True

    def make_nodes(self, rng, folder):
        self._finish = os.path.join(folder, "finish")
        self._folder = folder
        self._gone = {}  # from (name, life) to the time when it ended
        return [Launcher(number, self._muster, self.run, self._finish, rng.choice(NATURES), rng.randint(1, WORKERS_MAX),
                         self._network.machines[f"node-{number}"], self.record, folder,
                         environment=self.site.clocks.environment(f"agent-{number}"))
                for number in range(self.run.nodes)]

    def supervise(self):
        for node in self.nodes:
            if node.life and not node.alive:
                self._gone.setdefault((node.name, node.life), time.monotonic())
        super().supervise()

    # --- One round of all launchers

    def is_in_place(self):
        number = one_job_of_all(self.story(), [(node.name, node.life) for node in self.nodes])
        return number is not None and self.server_reports_it(number)

    def look_for_orphans(self):
        """Records processes that live although their launcher has been gone for longer than it takes to end them."""
        now = time.monotonic()
        for (name, life), since in list(self._gone.items()):
            if now - since < promises.ORPHAN_S:
                continue
            for pid in marked(f"{self._folder}:{name}.{life}"):
                self.record.add(name, life, "orphan", pid=pid, command=command_of(pid))
            del self._gone[name, life]

    def measure(self):
        self.look_for_orphans()
        super().measure()

    # --- The end

    def close(self):
        """The job is done, or is being ended."""
        if not self.run.finishes:
            return None
        with open(self._finish, "w", encoding="ascii"):
            pass
        for node in self.nodes:
            node.wanted = False
        return not await_end(self.nodes, promises.JOB_END_S)

    def newcomer_is_refused(self):
        return True  # it may be refused, or may begin the job again if the server has forgotten it

    def end(self):
        left = super().end()
        until = time.monotonic() + promises.ORPHAN_S
        while marked(f"{self._folder}:") and time.monotonic() < until:
            time.sleep(0.05)
        for pid in marked(f"{self._folder}:"):
            self.record.add("agent", 0, "orphan", pid=pid, command=command_of(pid))
        return left

    def kill(self):
        """Kills the launchers; the processes that their workers started end a moment later."""
        super().kill()
        until = time.monotonic() + promises.ORPHAN_S
        while marked(f"{self._folder}:") and time.monotonic() < until:
            time.sleep(0.05)


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as cmdline:
            return cmdline.read().replace("\0", " ")
    except OSError:
        return ""
