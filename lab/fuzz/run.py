#!/usr/bin/env python3
"""Runs the fuzzers and reports what they found. scripts/fuzz builds them first.

    lab/fuzz/run.py [OPTION...] [NAME...]    NAME: requests, sessions, ... (default: all)

    --runs N        executions of each (default 10,000,000)
    --seconds S     end each after so long, whatever the number (default: never)
    --seed N        of the mutations (default: drawn, and printed)
    --jobs N        how many at a time (default 2)
    --build FOLDER  where the fuzzers are (default build/fuzz)
    --fresh         start from the corpus in the tree only, and keep nothing: the seed repeats the run
    --minimise      run nothing; renew the corpus in the tree with the fewest inputs that reach what all known ones do

New inputs of a run are kept in FOLDER/corpus, and the next run starts from them. A finding is kept in FOLDER/findings,
and shown with the command that replays it.

Ends with status 0 if every fuzzer did its share and none found anything, 1 if not, 2 if there is none to run, and 130
if it was interrupted. Its fuzzers end with it. Standard library only.
"""

import argparse
import ctypes
import fcntl
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# The longest input of each, in bytes: long enough for every shape, short enough to be quick.
LENGTHS = {"configuration": 512, "coordinator": 512, "error_files": 1024, "machine": 768, "requests": 1024,
           "sessions": 1024, "state": 4096}
# A story passes thousands of places; statistics on how rare each is would take longer than running it.
STORIES = {"coordinator", "machine"}
PROGRESS_SECONDS = 60
# For one input; inputs take milliseconds. This is wall time: on a busy machine a fuzzer may not run for seconds.
TIMEOUT_SECONDS = 60
STOP_SECONDS = 3  # how long a fuzzer has to end after SIGTERM
INTERRUPTIONS = []  # signals that have arrived; checked where no new process can be missed


def without_randomisation():
    """A prefix for the commands of fuzzers. Sanitizers cannot place their shadow memory under the address randomisation
    of some newer kernels. Where it cannot be switched off, there is no prefix."""
    command = ["setarch", platform.machine(), "-R"]
    try:
        works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        works = False
    return command if works else []


def say(text):
    print(f"fuzz: {text}", flush=True)


def handle_signals():
    """SIGINT is set explicitly: a process that a shell has started in the background ignores it by default."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: INTERRUPTIONS.append(number))


def rest():
    """Sleeps for a moment. Ends this process, in order, if it was interrupted."""
    time.sleep(0.1)
    if INTERRUPTIONS:
        sys.exit(130)


LIBC = ctypes.CDLL(None)


def end_with_parent():
    """Runs in a child, before it becomes the fuzzer: the kernel kills it when this process dies."""
    pr_set_pdeathsig = 1
    LIBC.prctl(pr_set_pdeathsig, signal.SIGKILL)


class Fuzzer:
    """One fuzzer: its files, its process and its result."""

    def __init__(self, name, build, folder, wrapper):
        self.name = name
        self.wrapper = wrapper
        self.program = build / f"{name}_fuzzer"
        self.tree = HERE / "corpus" / name
        self.grown = folder / name
        self.findings = build / "findings"
        self.log = build / f"{name}.log"
        self.held = None
        self.process = None
        self.seconds = 0.0

    def missing(self):
        """Why it cannot be started; empty: nothing is missing."""
        if not self.program.is_file():
            return f"there is no {self.program}"
        if not os.access(self.program, os.X_OK):
            return f"{self.program} is no program"
        return "" if self.take_log() else f"another run writes {self.log}"

    def take_log(self):
        """Whether this run has the log for itself, until it ends. If two runs write one log, neither can be judged by
        it."""
        self.held = open(self.log, "ab")
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def make_folders(self):
        for place in (self.grown, self.findings):
            place.mkdir(parents=True, exist_ok=True)

    def start(self, runs, seconds, seed):
        command = [*self.wrapper, self.program, f"-seed={seed}", f"-runs={runs}", f"-max_total_time={seconds}",
                   f"-max_len={LENGTHS[self.name]}", f"-timeout={TIMEOUT_SECONDS}", "-rss_limit_mb=2048", "-print_final_stats=1",
                   f"-artifact_prefix={self.findings}/{self.name}-"]
        if self.name in STORIES:
            command.append("-entropic=0")
        dictionary = HERE / "dictionaries" / f"{self.name}.dict"
        if dictionary.exists():
            command.append(f"-dict={dictionary}")
        self.limited = seconds > 0
        self.runs = runs
        self.began = time.monotonic()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*command, self.grown, self.tree], stdout=log, stderr=log,
                                            preexec_fn=end_with_parent)

    def is_done(self):
        if self.process.poll() is None:
            return False
        self.seconds = time.monotonic() - self.began
        return True

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def coverage(self):
        """Edges reached so far."""
        return int((re.findall(r" cov: (\d+)", self.text()) or [0])[-1])

    def executions(self):
        """The number so far; exact once it is done."""
        text = self.text()
        final = re.search(r"stat::number_of_executed_units:\s+(\d+)", text)
        return int(final.group(1) if final else (re.findall(r"^#(\d+)\t", text, re.MULTILINE) or [0])[-1])

    def verdict(self):
        """What is wrong; empty: nothing."""
        if self.process.returncode != 0:
            return "FINDING" if self.executions() > 0 or self.kept() else "did not run"
        if self.executions() < self.runs and not self.limited:
            return "ended early"
        return ""

    def kept(self):
        """Files with the inputs that it found."""
        return re.findall(r"Test unit written to (\S+)", self.text())

    def show(self):
        """Prints the end of its log."""
        say(f"{self.name}: ended with status {self.process.returncode}; the end of {self.log}:")
        # The check that failed is printed before the stack.
        lines = self.text().splitlines()
        first = next((i for i, line in enumerate(lines) if re.search(r"does not hold|ERROR:|runtime error", line)), 0)
        print("\n".join("    " + line for line in lines[first:first + 40]))
        if self.kept():
            say(f"{self.name}: replay it with: {' '.join([*self.wrapper, str(self.program), self.kept()[-1]])}")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def run_all(fuzzers, options):
    """Runs them, so many at a time, and prints the progress."""
    waiting, running = list(fuzzers), []
    next_word = time.monotonic() + PROGRESS_SECONDS
    while waiting or running:
        while waiting and len(running) < options.jobs:
            fuzzer = waiting.pop(0)
            fuzzer.start(options.runs, options.seconds, options.seed)
            running.append(fuzzer)
        rest()
        for fuzzer in [one for one in running if one.is_done()]:
            running.remove(fuzzer)
            say(f"{fuzzer.name}: {fuzzer.executions():,} executions, {fuzzer.verdict() or 'nothing found'}")
        if time.monotonic() >= next_word:
            next_word += PROGRESS_SECONDS
            for fuzzer in running:
                say(f"{fuzzer.name}: {fuzzer.executions():,} executions so far, coverage {fuzzer.coverage()}")


def print_table(fuzzers):
    print(f"{'fuzzer':<16} {'executions':>12} {'seconds':>8} {'per second':>11} {'coverage':>9}  findings")
    for fuzzer in fuzzers:
        executions = fuzzer.executions()
        rate = executions / max(fuzzer.seconds, 1)
        print(f"{fuzzer.name:<16} {executions:>12,} {fuzzer.seconds:>8.0f} {rate:>11.0f} {fuzzer.coverage():>9}  "
              f"{fuzzer.verdict() or 'none'}")


def minimise(fuzzer):
    """Renews the corpus in the tree. Files with a name (seeds, findings) stay. Of all files that have only a hash, and
    of what runs have found, it keeps the fewest inputs that together reach as much as all."""
    with tempfile.TemporaryDirectory() as folder:
        for path in fuzzer.tree.iterdir():
            if re.fullmatch(r"[0-9a-f]{40}", path.name):
                shutil.move(path, folder)
        command = [*fuzzer.wrapper, fuzzer.program, "-set_cover_merge=1", "-use_counters=0",
                   f"-max_len={LENGTHS[fuzzer.name]}", fuzzer.tree, folder, fuzzer.grown]
        with open(fuzzer.log, "wb") as log:
            fuzzer.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=end_with_parent)
        while fuzzer.process.poll() is None:
            rest()
    if fuzzer.process.returncode != 0:
        fuzzer.show()
        sys.exit(1)
    say(f"{fuzzer.name}: {len(list(fuzzer.tree.iterdir()))} inputs")


def arguments():
    parser = argparse.ArgumentParser(description="Runs the fuzzers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(LENGTHS))
    parser.add_argument("--runs", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/fuzz"))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--minimise", action="store_true")
    options = parser.parse_args()
    for name in options.names:
        if name not in LENGTHS:
            parser.error(f"there is no fuzzer '{name}'")
    return options


def run_and_report(fuzzers, options):
    share = f"{options.runs:,} executions" + (f" or {options.seconds} s" if options.seconds else "")
    say(f"seed {options.seed}, {len(fuzzers)} fuzzers, {options.jobs} at a time, {share} each")
    run_all(fuzzers, options)
    wrong = [fuzzer for fuzzer in fuzzers if fuzzer.verdict()]
    for fuzzer in wrong:
        fuzzer.show()
    print_table(fuzzers)
    say(f"FAILED: {', '.join(f'{fuzzer.name} ({fuzzer.verdict()})' for fuzzer in wrong)}" if wrong else "nothing found")
    return 1 if wrong else 0


def main():
    options = arguments()
    handle_signals()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) if options.fresh else options.build / "corpus"
        wrapper = without_randomisation()
        fuzzers = [Fuzzer(name, options.build, folder, wrapper) for name in options.names or LENGTHS]
        missing = [why for why in (fuzzer.missing() for fuzzer in fuzzers) if why]
        if missing:
            say(f"did not run: {'; '.join(missing)} (scripts/fuzz builds them; --build takes another folder)")
            return 2
        try:
            for fuzzer in fuzzers:
                fuzzer.make_folders()
            if not options.minimise:
                return run_and_report(fuzzers, options)
            for fuzzer in fuzzers:
                minimise(fuzzer)
            return 0
        finally:
            for fuzzer in fuzzers:
                fuzzer.stop()


if __name__ == "__main__":
    sys.exit(main())
