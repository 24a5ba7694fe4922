"""A worker that reports itself and then executes orders, for tests of `muster run`. Not a test itself.

    python3 -I -S obedient_worker.py FOLDER [WORD...]

Writes FOLDER/worker.PID.json, with its environment in it, as its only report. Then it waits for orders: lines in
FOLDER/order.PID or, for all workers, including later ones, in FOLDER/order.all:

    exit N      ends with that status
    die N       dies by that signal
    stick 0     goes into uninterruptible sleep, which only SIGKILL ends

Signals that it receives are lines in FOLDER/signals.PID; then it dies of them. Words change its behaviour:

    stubborn    does not die of signals
    parent      has a child that sleeps; `stray` one that has left its session and ignores SIGTERM and SIGHUP
    mortal      ends with status 0 by itself, at once
"""

import json
import os
import signal
import sys
import time

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LONG = "1000"


def write_whole(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


def start_child(stray):
    # Signals wait until the child is set up: it must not run the worker's handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    child = os.fork()
    if not child:
        for number in HANDLED:
            signal.signal(number, signal.SIG_DFL)
        if stray:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    if not child:
        os.execvp("sleep", ["sleep", LONG])
    return child


def sleep_uninterruptibly(fifo):
    """Until the child of a vfork can open its standard input, and that is never."""
    os.mkfifo(fifo)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])


def disposition(number):
    handler = signal.getsignal(number)
    return {signal.SIG_DFL: "default", signal.SIG_IGN: "ignored"}.get(handler, "handled")


class Worker:
    def __init__(self, folder, words):
        self._folder, self._words = folder, words
        self._dispositions = {number.name: disposition(number) for number in HANDLED}
        self._children = []

    def path(self, what):
        return os.path.join(self._folder, f"{what}.{os.getpid()}")

    def heed(self, number, _):
        with open(self.path("signals"), "a", encoding="utf-8") as file:
            file.write(signal.Signals(number).name + "\n")
        if "stubborn" not in self._words:
            self.die(number)

    @staticmethod
    def die(number):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def introduce(self):
        account = {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0), "session": os.getsid(0),
                   "dispositions": self._dispositions, "children": self._children, "environment": dict(os.environ),
                   "at": time.monotonic()}
        write_whole(os.path.join(self._folder, f"worker.{os.getpid()}.json"), json.dumps(account))

    def orders(self):
        for path in (self.path("order"), os.path.join(self._folder, "order.all")):
            try:
                with open(path, encoding="utf-8") as file:
                    yield from file.read().splitlines()
            except FileNotFoundError:
                pass

    def live(self):
        for number in HANDLED:
            signal.signal(number, self.heed)
        if "parent" in self._words:
            self._children.append(start_child(stray=False))
        if "stray" in self._words:
            self._children.append(start_child(stray=True))
        self.introduce()
        if "mortal" in self._words:
            sys.exit(0)
        while True:
            for order in self.orders():
                word, number = order.split()
                if word == "exit":
                    os._exit(int(number))
                if word == "stick":
                    sleep_uninterruptibly(self.path("fifo"))
                self.die(int(number))
            time.sleep(0.02)


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2:]).live()
