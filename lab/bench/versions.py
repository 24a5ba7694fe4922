#!/usr/bin/env python3
"""Compares two builds of muster: is the new one slower than the old one?

    lab/bench/versions.py OLD NEW [--rounds 7] [--nodes 1000] [--most 1.03]

OLD and NEW are programs `muster`, each with its `muster-lab` in the same folder. They take turns, in changing order. The server has one core for itself and the
load generator another; both run before all other work where the system allows it (root). Prints the
median of the ratios NEW/OLD of each round: server CPU time per operation of the store, and the time in which so many
nodes form a round. Ends with status 1 if a ratio is above --most.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import servers

OPERATIONS = ("get", "set", "add", "check")


def favour(thread, core):
    """Gives a thread (0: the caller) a core and a high priority."""
    os.sched_setaffinity(thread, {core})
    try:
        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        pass  # Then the figures are noisier, but not wrong.


def ask(command, core):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True,
                          preexec_fn=lambda: favour(0, core))
    return json.loads(done.stdout)


def serve(program, core):
    server = servers.Muster(program, 1)
    for thread in os.listdir(f"/proc/{server.pid}/task"):
        favour(int(thread), core)
    return server


def store(options, program, pipeline, cores):
    """Server CPU time per operation, in microseconds, by operation."""
    server = serve(program, cores[0])
    try:
        rows = ask([servers.lab_of(options.new), "bench", "store", "--server", server.address, "--server-pid", server.pid,
                    "--clients", 64, "--pipeline", pipeline, "--ops", ",".join(OPERATIONS), "--seconds",
                    options.seconds, "--json"], cores[-1])
    finally:
        server.close()
    return {f"{row['op']}{', pipelined' if pipeline > 1 else ''}": row["server_cpu_us_per_op"] for row in rows}


def formation(options, program, cores):
    """Seconds until all nodes have their place."""
    server = serve(program, cores[0])
    try:
        # A server for the nodes of this build: builds may speak different versions of the session protocol.
        rows = ask([servers.lab_of(program), "bench", "rendezvous", "--server", server.address, "--nodes", options.nodes,
                    "--rounds", 3, "--json"], cores[-1])
    finally:
        server.close()
    return {f"a round of {options.nodes} nodes": rows[0]["seconds"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("old", help="program to compare with")
    parser.add_argument("new", help="program to judge")
    parser.add_argument("--rounds", default=7, type=int, help="turns of each program")
    parser.add_argument("--seconds", default=1.0, type=float, help="time of each operation in each turn")
    parser.add_argument("--nodes", default=1000, type=int, help="nodes of the round that is formed")
    parser.add_argument("--most", default=1.03, type=float, help="highest ratio allowed")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    turns = []
    for number in range(options.rounds):
        programs = [options.old, options.new]
        figures = {}
        for program in programs if number % 2 == 0 else reversed(programs):
            figures[program] = {**store(options, program, 1, cores), **store(options, program, 16, cores),
                                **formation(options, program, cores)}
        turns.append((figures[options.old], figures[options.new]))
    print(f"{'what':<24} {'old':>10} {'new':>10} {'new/old':>9}")
    worst = 0.0
    for what in turns[0][0]:
        ratio = statistics.median(new[what] / old[what] for old, new in turns)
        worst = max(worst, ratio)
        olds, news = (statistics.median(turn[side][what] for turn in turns) for side in (0, 1))
        print(f"{what:<24} {olds:>10.4f} {news:>10.4f} {ratio:>9.3f}")
    return 0 if worst <= options.most else 1


if __name__ == "__main__":
    sys.exit(main())
