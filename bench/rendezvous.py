#!/usr/bin/env python3
"""Measures how long N nodes take to agree through one shared state: muster's handlers beside PyTorch's.

    bench/rendezvous.py --muster build/release/muster [--nodes 4,16,64,256] [--rounds 3] [--patience 60]

Both kinds use the c10d backend on the same server, muster's, each node with its own connections, all nodes of a
run in one process, minimum and maximum equal to N; connecting is not measured. The two kinds take turns; the
table shows medians, and how often a node tried to replace the state. Ends with status 1 if nodes did not get
distinct ranks, or if muster was slower. A run that takes longer than --patience seconds is ended, its figures are those of
that time (">"), and it is not repeated. Writes rendezvous.json and rendezvous.txt into --out.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import servers

HERE = pathlib.Path(__file__).parent


def run(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(f"rendezvous: {command[0]} ended with status {done.returncode} and said nothing")
    result = json.loads(done.stdout)
    return result[0] if isinstance(result, list) else result


def measure(options, server):
    python = os.environ.get("MUSTER_TORCH_PYTHON")
    rows = []
    for count in options.nodes:
        kinds = {"muster": [options.muster, "bench", "rendezvous", "--server", server.address, "--nodes", count,
                            "--json"]}
        if python:
            kinds["PyTorch"] = [python, HERE / "torch_rendezvous.py", server.address, count,
                                options.patience]
        tries = {kind: [] for kind in kinds}
        for number in range(options.rounds):
            print(f"rendezvous: {count} nodes, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for kind, command in kinds.items():
                if all(one.get("finished", True) for one in tries[kind]):
                    tries[kind].append(run(command))
        row = {"nodes": count, "errors": sum(one["errors"] for kind in tries.values() for one in kind)}
        for kind, results in tries.items():
            finished = all(one.get("finished", True) for one in results)
            counted = results if finished else results[-1:]
            row[kind] = {"finished": finished,
                         **{figure: statistics.median(one[figure] for one in counted)
                            for figure in ("seconds", "writes_per_node", "lost_per_node", "reads_per_node")}}
        if python:
            row["times_faster"] = round(row["PyTorch"]["seconds"] / row["muster"]["seconds"], 1)
        rows.append(row)
    return rows


def render(rows):
    lines = [f"{'nodes':>6} {'who':<8} {'seconds':>9} {'writes/node':>12} {'lost/node':>10} {'reads/node':>11} "
             f"{'times faster':>13}"]
    for row in rows:
        for kind in ("muster", "PyTorch"):
            if kind not in row:
                continue
            it = row[kind]
            faster = row.get("times_faster", "") if kind == "muster" else ""
            more = "" if it["finished"] else ">"
            cells = [f"{more}{it['seconds']:.3f}".rjust(9),
                     *(f"{more}{it[figure]:.2f}".rjust(width)
                       for figure, width in (("writes_per_node", 12), ("lost_per_node", 10), ("reads_per_node", 11)))]
            lines.append(f"{row['nodes']:>6} {kind:<8} {' '.join(cells)} {faster:>13}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--muster", default="build/release/muster", help="the program to measure")
    parser.add_argument("--out", default="build/compare", type=pathlib.Path, help="folder for the results")
    parser.add_argument("--rounds", default=3, type=int, help="runs of each kind at each number of nodes")
    parser.add_argument("--nodes", default=[4, 16, 64, 256], help="numbers of nodes, with commas",
                        type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--patience", default=60, type=float, help="seconds that a run may take")
    options = parser.parse_args()
    server = servers.Muster(options.muster, 0)
    try:
        rows = measure(options, server)
    finally:
        server.close()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "rendezvous.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (options.out / "rendezvous.txt").write_text(render(rows) + "\n", encoding="utf-8")
    print(render(rows))
    wrong = any(row["errors"] for row in rows)
    slower = any(row.get("times_faster", 1) < 1 for row in rows)
    return 1 if wrong or slower else 0


if __name__ == "__main__":
    sys.exit(main())
