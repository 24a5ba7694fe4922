#!/usr/bin/env python3
"""Measures how long N nodes take to agree: muster's coordinator, muster's handlers on c10d, and PyTorch's handlers.

    lab/bench/rendezvous.py --muster build/release/muster [--nodes 4,16,64,256] [--rounds 3] [--patience 60]

All use the same server, muster's. All nodes of a run are in one process, and minimum and maximum are N. On c10d each
node has its own connections, made beforehand; for the coordinator, connecting is included in the time. The three take
turns; the table shows medians, and how often a node of c10d tried to replace the state.

Ends with status 1 if nodes did not get distinct ranks, or if the coordinator is not as many times faster than PyTorch
as was promised. A run that takes longer than --patience seconds is ended; its figures are lower limits (">"), and it is
not repeated. Writes rendezvous.json and rendezvous.txt into --out.
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
WRITES = ("writes_per_node", "lost_per_node", "reads_per_node")


def run(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(f"rendezvous: {command[0]} ended with status {done.returncode} and printed nothing")
    result = json.loads(done.stdout)
    return result[0] if isinstance(result, list) else result


def right(result):
    """Whether every node got a rank of its own."""
    return result["ranks_ok"] if "ranks_ok" in result else result["errors"] == 0


def measure(options, server):
    python = os.environ.get("MUSTER_TORCH_PYTHON")
    rows = []
    for count in options.nodes:
        ours = [servers.lab_of(options.muster), "bench", "rendezvous", "--server", server.address, "--nodes", count,
                "--json", "--backend"]
        kinds = {"muster": [*ours, "muster"], "muster, c10d": [*ours, "c10d"]}
        if python:
            kinds["PyTorch"] = [python, HERE / "torch_rendezvous.py", server.address, count,
                                options.patience]
        tries = {kind: [] for kind in kinds}
        for number in range(options.rounds):
            print(f"rendezvous: {count} nodes, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for kind, command in kinds.items():
                if all(one.get("finished", True) for one in tries[kind]):
                    tries[kind].append(run(command))
        row = {"nodes": count, "right": all(right(one) for kind in tries.values() for one in kind)}
        for kind, results in tries.items():
            finished = all(one.get("finished", True) for one in results)
            counted = results if finished else results[-1:]
            row[kind] = {"finished": finished,
                         **{figure: statistics.median(one[figure] for one in counted)
                            for figure in ("seconds", *WRITES) if figure in counted[0]}}
        for kind in kinds:
            if python and kind != "PyTorch":
                row[kind]["times_faster"] = round(row["PyTorch"]["seconds"] / row[kind]["seconds"], 1)
        rows.append(row)
    return rows


def bar(row):
    """How many times faster than PyTorch muster must be with so many nodes; None: no bar."""
    return {4: 20, 64: 20, 256: 50}.get(row["nodes"])


def missed(rows):
    return [row["nodes"] for row in rows
            if row["muster"].get("times_faster", float("inf")) < (bar(row) or 1)]


def render(rows):
    lines = [f"{'nodes':>6} {'who':<13} {'seconds':>9} {'writes/node':>12} {'lost/node':>10} {'reads/node':>11} "
             f"{'times faster':>13}"]
    for row in rows:
        for kind, it in row.items():
            if not isinstance(it, dict):
                continue
            more = "" if it["finished"] else ">"
            figures = [f"{more}{it[figure]:.2f}" if figure in it else "-" for figure in WRITES]
            cells = [f"{more}{it['seconds']:.4f}".rjust(9),
                     *(text.rjust(width) for text, width in zip(figures, (12, 10, 11)))]
            faster = it.get("times_faster", "")
            wanted = f" (bar: {bar(row)})" if kind == "muster" and faster and bar(row) else ""
            lines.append(f"{row['nodes']:>6} {kind:<13} {' '.join(cells)} {faster:>13}{wanted}")
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
    for nodes in missed(rows):
        print(f"rendezvous: with {nodes} nodes muster misses its bar", file=sys.stderr)
    return 0 if all(row["right"] for row in rows) and not missed(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
