"""Machines on a switch: network namespaces of this machine, and cables of any quality. Nothing outside is touched."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

from torture import processes

PREFIX = "muster-torture"


@dataclasses.dataclass(frozen=True)
class Condition:
    """The state of one direction of a cable."""
    cut: bool = False
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0

    def combined(self, other):
        """Both conditions at once."""
        return Condition(self.cut or other.cut, self.delay_s + other.delay_s, self.jitter_s + other.jitter_s,
                         1 - (1 - self.loss) * (1 - other.loss))


class Machine:
    """A namespace and its cable."""

    def __init__(self, network, name, address):
        self.name, self.address = name, address
        self.namespace = f"{PREFIX}-{os.getpid()}-{name}"
        self._network = network
        self._troubles = []  # pairs of conditions: what it sends, what it receives
        self._downs = 0

    def inside(self):
        """A prefix for commands that run on this machine. It becomes the command, with the same process id."""
        return ("ip", "netns", "exec", self.namespace)

    def trouble(self, sends, receives):
        """Makes the cable worse, in addition to its other conditions. Returns a function that ends that."""
        entry = [sends, receives]
        self._troubles.append(entry)
        self._tell()

        def end():
            self._troubles[:] = [one for one in self._troubles if one is not entry]
            self._tell()
        return end

    def interface_down(self):
        """The interface comes up again after as many interface_up() calls."""
        self._downs += 1
        ip("-n", self.namespace, "link", "set", "cable", "down")

    def interface_up(self):
        self._downs -= 1
        if self._downs == 0:
            ip("-n", self.namespace, "link", "set", "cable", "up")

    def _tell(self):
        sends = receives = Condition()
        for one in self._troubles:
            sends, receives = sends.combined(one[0]), receives.combined(one[1])
        self._network.configure(self.address, sends, receives)


class Network:
    def __init__(self, names, seed):
        self.machines = {name: Machine(self, name, f"198.18.0.{number}") for number, name in enumerate(names, 1)}
        self._seed = seed
        self._switch = None

    def build(self):
        for machine in self.machines.values():
            ip("netns", "add", machine.namespace)
            ip("-n", machine.namespace, "link", "set", "lo", "up")
        words = [f"{machine.namespace}={machine.address}" for machine in self.machines.values()]
        self._switch = processes.start([sys.executable, "-m", "torture.switch", str(self._seed), *words],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._await("ready")

    def configure(self, address, sends, receives):
        command = {"address": address, "sends": dataclasses.asdict(sends), "receives": dataclasses.asdict(receives)}
        self._switch.stdin.write(json.dumps(command) + "\n")
        self._switch.stdin.flush()
        self._await("done")

    def _await(self, word):
        answer = self._switch.stdout.readline().strip()
        if answer != word:
            raise RuntimeError(f"the switch should answer '{word}', and answered '{answer}'")

    def remove(self):
        if self._switch:
            processes.end(self._switch)
            self._switch = None
        for machine in self.machines.values():
            ip("netns", "delete", machine.namespace, must=False)


def ip(*words, must=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)
    if must and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def sweep():
    """Removes what killed campaigns left behind: their namespaces are named after processes that are gone."""
    for name in re.findall(rf"^{PREFIX}-\d+-\S+", ip("netns", "list", must=False), re.MULTILINE):
        if not os.path.exists(f"/proc/{name.split('-')[2]}"):
            ip("netns", "delete", name, must=False)


def missing():
    """The reason why there can be no such network here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "setpriv"):
        if not shutil.which(program):
            return f"the program '{program}' is missing"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    trial = Network(["trial"], 0)
    try:
        trial.build()
    except (RuntimeError, OSError) as failure:
        return f"no network namespaces here: {failure}"
    finally:
        trial.remove()
    return ""
