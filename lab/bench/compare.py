#!/usr/bin/env python3
"""Measures muster's server against PyTorch's and Redis, under the same load, in one run.

    lab/bench/compare.py --muster build/release/muster [--out build/compare] [--rounds 20] [--seconds 0.15]

The load comes from `muster-lab bench`, which speaks the plain protocols and checks every reply. The servers run all the
time. In each round, and for each operation, each server is loaded for a short time, one right after the other: that is
a turn.

Other work, on this machine or on others that share its hardware, slows down one server's share of a turn, often to
half, and not the next one's. Ratios of one pair of servers, within a turn, were between 0.8 and 3.8 in one run. So
there are many turns, most of them where the ratios are close to the bars. A ratio is taken within each turn, and the
table shows medians over all turns. Where a number comes from a few repetitions, the fastest one counts, because it was
disturbed least. CPU time per operation is the steadiest figure where other work shares the machine.

Cores are assigned beforehand; otherwise the scheduler's choices would be measured. Under load, a server with one thread
has a core for itself, and the generator another one. Latency and wakes are measured with both sides on one core, where
no sleeping core has to be woken. A server's default is half of the cores: one thread on two cores, else the server with
several threads. That one is judged where the machine has a core for each of them and one for the generator; elsewhere
its figures are only shown.

Writes compare.json and compare.txt into the folder --out, and the table to stdout. Ends with status 1 if a server gave
a wrong answer. Standard library only.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time

import servers
import table

OPS = ("get", "set", "add", "check")
DEPTHS = (1, 16)
TURNS_OF_A_ROUND = {1: 3, 16: 1}  # By depth.
CLIENTS = 64
VALUE_BYTES = 64


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of everything; they decide how long the comparison takes."""

    rounds: int
    seconds: float  # of load, for each server, operation and depth in each round
    latency_seconds: float
    connections: int
    waiters: tuple
    wakes: int
    repetitions: int  # of measurements that are not done in rounds


TINY = Sizes(rounds=1, seconds=0.05, latency_seconds=0.1, connections=100, waiters=(0, 10), wakes=10, repetitions=1)


def machine_busy():
    """Seconds of CPU time that all processes together have taken, on all cores."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, idle, iowait, *rest = map(int, stat.readline().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def on_cores(cores, pid=0):
    """Keeps all threads of a process, and processes that it starts later, on these cores. 0: this process."""
    for thread in os.listdir(f"/proc/{pid or os.getpid()}/task"):
        os.sched_setaffinity(int(thread), cores)


def least(rows, key):
    return min(rows, key=lambda row: row[key])


class Comparison:
    def __init__(self, program, sizes):
        self.program = program
        self.sizes = sizes
        self.running = []
        self.missing = []
        self.turns = []  # one for each, with the results of all servers
        self.errors = 0
        self.cores = sorted(os.sched_getaffinity(0))

    # --- Servers ---

    def start(self):
        self.one = self.add(lambda: servers.Muster(self.program, 1))
        self.torch = self.add(servers.Torch)  # right after the one that it is compared with
        self.many = self.add(lambda: servers.Muster(self.program, max(2, len(self.cores) // 2)))
        self.redis = self.add(servers.Redis)
        if self.one is None or self.many is None:
            raise SystemExit(f"compare: {self.missing[0]}")

    def add(self, make):
        try:
            server = make()
        except servers.Missing as missing:
            self.missing.append(str(missing))
            print(f"compare: left out: {missing}", file=sys.stderr)
            return None
        self.running.append(server)
        return server

    def close(self):
        for server in self.running:
            server.close()

    # --- Measuring ---

    def bench(self, *arguments):
        """Runs `muster-lab bench` and returns its output."""
        done = subprocess.run([servers.lab_of(self.program), "bench", *map(str, arguments), "--json"], stdout=subprocess.PIPE,
                              text=True, check=False)
        if not done.stdout:
            raise SystemExit(f"compare: muster-lab bench {' '.join(map(str, arguments))}: status {done.returncode}")
        return json.loads(done.stdout)

    def at(self, server):
        return ["--server", server.address, "--server-pid", server.pid, "--protocol", server.protocol]

    def load(self, server, op, depth):
        result, = self.bench("store", *self.at(server), "--clients", CLIENTS, "--pipeline", depth, "--ops", op,
                             "--seconds", self.sizes.seconds, "--warm-up", 0.05, "--value-size", VALUE_BYTES,
                             "--threads", 1)
        self.errors += result["errors"]
        return result

    def load_apart(self, server, op, depth):
        """The server on one core and the generator on another, if the server has one thread and there are two cores."""
        apart = server is not self.many and len(self.cores) > 1
        on_cores(self.cores[:1] if apart else self.cores, server.pid)
        on_cores(self.cores[1:2] if apart else self.cores)
        try:
            return self.load(server, op, depth)
        finally:
            on_cores(self.cores)

    @contextlib.contextmanager
    def together(self, server=None):
        """Puts this process, its children and the server on one core."""
        try:
            on_cores(self.cores[:1])
            if server is not None:
                on_cores(self.cores[:1], server.pid)
            yield
        finally:
            on_cores(self.cores)
            if server is not None:
                on_cores(self.cores, server.pid)

    def turn(self, depth, op, order):
        before, own = machine_busy(), self.own_busy()
        started = time.monotonic()
        results = {server.name: self.load_apart(server, op, depth) for server in order}
        others = machine_busy() - before - (self.own_busy() - own)
        return {"depth": depth, "op": op, "results": results,
                "other_cores": round(max(0.0, others / (time.monotonic() - started)), 3)}

    def own_busy(self):
        """Seconds of CPU time that the servers and the load generators have used."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime + sum(server.cpu_seconds() for server in self.running)

    def rounds(self):
        for number in range(self.sizes.rounds):
            self.say(f"round {number + 1} of {self.sizes.rounds}")
            # The first server in a turn may find cold caches, so each is first in some turns.
            shift = number % len(self.running)
            order = self.running[shift:] + self.running[:shift]
            self.turns += [self.turn(depth, op, order) for depth in DEPTHS for _ in range(TURNS_OF_A_ROUND[depth])
                           for op in OPS]

    def turns_at(self, depth, op):
        return [turn["results"] for turn in self.turns if (turn["depth"], turn["op"]) == (depth, op)]

    def repeat(self, *arguments):
        return [self.bench(*arguments) for _ in range(self.sizes.repetitions)]

    def connections(self):
        found = {}
        for server in self.running:
            if server is self.one:
                continue
            on_cores(self.cores, server.pid)
            self.say(f"{self.sizes.connections} connections to {server.name}")
            found[server.name] = least(
                self.repeat("store", *self.at(server), "--connections-only", self.sizes.connections), "seconds")
        return found

    def wakes(self):
        found = {}
        for server in filter(None, (self.one, self.many, self.torch)):
            self.say(f"waiters of {server.name}")
            with self.together(server):
                curves = self.repeat("wake", "--server", server.address, "--waiters",
                                     ",".join(map(str, self.sizes.waiters)), "--wakes", self.sizes.wakes,
                                     "--passes", 1)
            found[server.name] = [least(points, "p50_us") for points in zip(*curves)]
        return found

    def latency(self):
        self.say("latency compared with an echo server")
        with self.together():
            runs = self.repeat("latency", "--seconds", self.sizes.latency_seconds, "--rounds", 20)
        rows = []
        for tries in zip(*runs):
            row, echo = least(tries, "p50_us"), least(tries, "echo_p50_us")
            rows.append({**row, "echo_p50_us": echo["echo_p50_us"], "echo_p99_us": echo["echo_p99_us"],
                         "p50_ratio": round(row["p50_us"] / echo["echo_p50_us"], 3),
                         "errors": sum(one["errors"] for one in tries)})
        return rows

    def say(self, what):
        print(f"compare: {what}", file=sys.stderr, flush=True)

    # --- Results ---

    def median(self, depth, op, server, figure):
        return statistics.median(results[server.name][figure] for results in self.turns_at(depth, op))

    @property
    def room(self):
        """Whether each thread of the largest server had a core, and the generator another one."""
        return len(self.cores) > self.many.threads

    def ratio(self, depth, op, ours, theirs, figure):
        """The median, over the turns, of our figure divided by theirs."""
        pairs = [(results[ours.name][figure], results[theirs.name][figure]) for results in self.turns_at(depth, op)]
        ratios = [a / b for a, b in pairs if b]
        # In a very short run a server may not have used a whole tick of the clock.
        return round(statistics.median(ratios), 3) if ratios else math.nan

    def loads(self):
        figures = ("ops_per_second", "p50_us", "p99_us", "p999_us", "server_cpu_us_per_op", "server_cores",
                   "client_cpu_us_per_op", "server_rss_bytes", "errors")
        return [{"pipeline": depth, "op": op, "server": server.name,
                 **{figure: self.median(depth, op, server, figure) for figure in figures},
                 "work_hash": self.turns[0]["results"][server.name]["work_hash"]}
                for depth in DEPTHS for op in OPS for server in self.running]

    def bars(self, connections, wakes, latency):
        """(what, measured, bar, whether it is met); the bar is None where the figure is only shown."""
        rows = []

        def bar(what, measured, least=None, most=None, unit="x"):
            met = None
            if least is not None:
                met = measured >= least
            if most is not None:
                met = measured <= most
            wanted = f">= {least}" if least is not None else f"<= {most}" if most is not None else "-"
            rows.append({"what": what, "measured": measured, "bar": wanted, "unit": unit, "met": met})

        self.bars_for_torch(bar)
        self.bars_for_redis(bar)
        for op in ("get", "add", "check"):
            bar(f"throughput of {self.many.threads} server threads to 1: {op}",
                self.ratio(1, op, self.many, self.one, "ops_per_second"), least=1.0 if self.room else None)
        ours = connections[self.many.name]
        bar(f"{ours['connections']} connections opened and answered", round(ours["seconds"], 3), most=2.0, unit="s")
        bar("server memory with them", round(ours["server_rss_bytes"] / 2**20, 1), most=64, unit="MiB")
        for row in latency:
            bar(f"p50 latency to a libuv echo: {row['op']}", row["p50_ratio"], most=1.3)
        for server in (self.one, self.many):
            curve = wakes[server.name]
            bar(f"p50 of a wake among {curve[-1]['waiters']} waiters to one alone, {server.name}",
                round(curve[-1]["p50_us"] / curve[0]["p50_us"], 3), most=1.3)
        return rows

    def bars_for_torch(self, bar):
        if self.torch is None:
            return
        for op in ("get", "add", "check", "set"):
            # Three operations are judged; SET has no reply and is shown for completeness.
            for ours in (self.one, self.many):
                counts = op != "set" and (ours is self.one or self.room)
                bar(f"throughput to PyTorch, unpipelined, {ours.name}: {op}",
                    self.ratio(1, op, ours, self.torch, "ops_per_second"), least=1.2 if counts else None)
                bar(f"server CPU per operation to PyTorch, unpipelined, {ours.name}: {op}",
                    self.ratio(1, op, ours, self.torch, "server_cpu_us_per_op"), most=1.0 if counts else None)
        for op in OPS:
            # PyTorch sends each reply with its own write. A batch of SETs has one reply, so nothing can be gained
            # there.
            for ours in (self.one, self.many):
                bar(f"throughput to PyTorch, pipelined by 16, {ours.name}: {op}",
                    self.ratio(16, op, ours, self.torch, "ops_per_second"), least=4.0 if op != "set" else None)

    def bars_for_redis(self, bar):
        if self.redis is None:
            return
        for depth in (16, 1):
            for op in ("get", "set"):
                for ours in (self.one, self.many):
                    cost = self.ratio(depth, op, ours, self.redis, "server_cpu_us_per_op")
                    bar(f"operations per server core to Redis, depth {depth}, {ours.name}: {op}",
                        round(1 / cost, 3) if cost else math.inf, least=1.0 if depth == 16 else None)

    def run(self):
        started = time.monotonic()
        self.start()
        latency = self.latency()
        self.rounds()
        connections = self.connections()
        wakes = self.wakes()
        self.errors += sum(row["errors"] for row in latency)
        return {
            "machine": {"cores": os.cpu_count(), "system": platform.platform(), "load": os.getloadavg(),
                        "other_cores": statistics.median(turn["other_cores"] for turn in self.turns)},
            "settings": {"clients": CLIENTS, "value_size": VALUE_BYTES, **dataclasses.asdict(self.sizes)},
            "missing": self.missing,
            "errors": self.errors,
            "load": self.loads(),
            "latency": latency,
            "connections": connections,
            "wake": wakes,
            "bars": self.bars(connections, wakes, latency),
            "turns": self.turns,
            "took_seconds": round(time.monotonic() - started, 1),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--muster", default="build/release/muster", help="the program to measure")
    parser.add_argument("--out", default="build/compare", type=pathlib.Path, help="folder for the results")
    parser.add_argument("--rounds", default=20, type=int, help="each with several turns at each operation")
    parser.add_argument("--seconds", default=0.15, type=float, help="load on each server in a turn")
    parser.add_argument("--tiny", action="store_true", help="as little as possible, to see that it works")
    options = parser.parse_args()
    sizes = TINY if options.tiny else Sizes(rounds=options.rounds, seconds=options.seconds, latency_seconds=0.7,
                                            connections=10_000, waiters=(0, 100, 1000, 10_000), wakes=400,
                                            repetitions=3)
    # When the comparison is ended, its servers are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    comparison = Comparison(options.muster, sizes)
    try:
        result = comparison.run()
    except KeyboardInterrupt:
        return 130
    finally:
        comparison.close()
    options.out.mkdir(parents=True, exist_ok=True)
    text = table.render(result)
    (options.out / "compare.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (options.out / "compare.txt").write_text(text, encoding="utf-8")
    print(text, end="")
    print(f"written to {options.out}/compare.json and compare.txt")
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
