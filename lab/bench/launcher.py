#!/usr/bin/env python3
"""Measures what `muster run` costs compared with torchrun, and what it costs to show a worker's output.

    lab/bench/launcher.py --muster build/release/muster [--rounds 15] [--torch-rounds 5] [--megabytes 100]

Start-up: a worker that prints and exits, run bare, under `muster run --standalone`, and under `torchrun --standalone`
where MUSTER_TORCH_PYTHON names a Python that has PyTorch. They take turns; the table shows medians, and the overhead
over the bare run. All run the worker under the same Python. torchrun has fewer turns, because each takes seconds.

Output: a worker that writes 100 MB of lines, once alone with its stdout in a file, and once under `muster run --tee 1`.
Then the file must have every byte, and the console every line. The figure is how long the worker takes to write, by its
own clock: a training job waits that long. The launcher reads the file meanwhile and afterwards. The worker's CPU time
is shown, too; it is the steadier figure where other work shares the machine.

Writes launcher.json and launcher.txt into --out. Ends with status 1 if output was lost. Standard library only.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HELLO = "print('hello')\n"

# Lines as in logs: each with a write of its own, as `python -u` prints, or many with one.
WRITER = """
import os, sys, time
megabytes, at_once, told = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
block = b"".join(b"step %06d loss 0.12345 and some more words to fill this line up to a hundred bytes in all, %07d\\n" % (i, i)
                 for i in range(at_once))
left = megabytes * 1000000
began = time.monotonic()
while left > 0:
    left -= os.write(1, block[:left])
with open(told, "w") as file:
    file.write(f"{time.monotonic() - began} {time.process_time()}")
"""
WAYS = {"line by line": (1, 1), "640 lines at once": (640, 4)}  # (lines in a write, factor of the number of rounds)


def seconds_of(command, environment, output=subprocess.DEVNULL):
    began = time.monotonic()
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, check=False)
    took = time.monotonic() - began
    if done.returncode != 0:
        raise SystemExit(f"launcher: {' '.join(map(str, command))}: status {done.returncode}\n{done.stderr.decode()}")
    return took


class Comparison:
    def __init__(self, options, folder):
        self.options = options
        self.folder = pathlib.Path(folder)
        self.environment = {**os.environ, "TMPDIR": folder, "OMP_NUM_THREADS": "1"}
        torch = os.environ.get("MUSTER_TORCH_PYTHON")
        self.python = torch or sys.executable
        self.torchrun = [torch, "-m", "torch.distributed.run"] if torch else None

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="ascii")
        return path

    def muster(self, *arguments):
        return [self.options.muster, "run", "--standalone", "--python", self.python, *arguments]

    # --- Start-up ---

    def start_up(self):
        hello = self.script("hello.py", HELLO)
        kinds = {"bare": [self.python, "-u", hello], "muster run": self.muster(hello)}
        if self.torchrun:
            kinds["torchrun"] = [*self.torchrun, "--standalone", hello]
        tries = {kind: [] for kind in kinds}
        for command in kinds.values():
            seconds_of(command, self.environment)  # The first run reads files from disk, and is not counted.
        for number in range(self.options.rounds):
            for kind, command in kinds.items():
                if kind != "torchrun" or number < self.options.torch_rounds:
                    tries[kind].append(seconds_of(command, self.environment))
        rows = {kind: {"ms": round(1e3 * statistics.median(times), 2), "least_ms": round(1e3 * min(times), 2),
                       "times": len(times)} for kind, times in tries.items()}
        for kind, times in tries.items():
            # Runs next to each other in time ran under the same conditions.
            rows[kind]["over_bare_ms"] = round(1e3 * statistics.median(a - b for a, b in zip(times, tries["bare"])), 2)
        return rows

    # --- Output ---

    def output(self):
        """For each way of writing: how long the worker took, bare and under muster, and how many runs lost output."""
        found, lost = {}, 0
        for way, (at_once, more) in WAYS.items():
            rows, torn = self.written(at_once, more * self.options.output_rounds)
            found[way] = rows
            lost += torn
        return found, lost

    def written(self, at_once, rounds):
        reported, logs = self.folder / "told", self.folder / "logs"
        arguments = [self.script("writer.py", WRITER), str(self.options.megabytes), str(at_once), reported]
        commands = {"bare": [self.python, "-u", *arguments],
                    "muster run --tee": self.muster("--log-dir", logs, "--tee", "1", *arguments)}
        tries, cpu, whole, lost = *({kind: [] for kind in commands} for _ in range(3)), 0
        for number in range(1 + rounds):
            for kind, command in commands.items():
                # A new file each time: overwriting an old one has other costs.
                path = self.folder / ("bare.log" if kind == "bare" else "console.log")
                path.unlink(missing_ok=True)
                with open(path, "xb") as file:
                    took = seconds_of(command, self.environment, file)
                if number > 0:  # the first one is a warm-up
                    whole[kind].append(took)
                    wrote, used = map(float, reported.read_text(encoding="ascii").split())
                    tries[kind].append(wrote)
                    cpu[kind].append(used)
            lost += not self.is_whole(next(logs.glob("*/attempt_0/0/stdout.log")))
            shutil.rmtree(logs)
        rows = {kind: {"seconds": round(statistics.median(times), 4), "least_seconds": round(min(times), 4),
                       "least_cpu_seconds": round(min(cpu[kind]), 4),
                       "whole_run_seconds": round(statistics.median(whole[kind]), 3)}
                for kind, times in tries.items()}
        # The fastest of each: other work on the machine slows them down, and never speeds them up.
        rows["slower_percent"] = round(100 * (min(tries["muster run --tee"]) / min(tries["bare"]) - 1), 1)
        return rows, lost

    def is_whole(self, log):
        """Whether the file has what the bare worker wrote, and the console the same lines with a prefix."""
        with open(self.folder / "bare.log", "rb") as bare, open(log, "rb") as ours, \
                open(self.folder / "console.log", "rb") as console:
            for want in bare:
                if ours.readline() != want or console.readline() != b"[default0]:" + want.rstrip(b"\n") + b"\n":
                    return False
            return bare.tell() == self.options.megabytes * 1_000_000 and not ours.read(1) and not console.read(1)


def bars(start_up, output):
    """(what, measured, unit, wanted, whether it is met)"""
    over = start_up["muster run"]["over_bare_ms"]
    rows = [("start-up of muster run over the bare worker", over, "ms", "<= 50", over <= 50)]
    if "torchrun" in start_up:
        times = round(start_up["torchrun"]["over_bare_ms"] / over, 1) if over > 0 else float("inf")
        rows.append(("overhead of torchrun to that of muster run", times, "x", ">= 30", times >= 30))
    for way, row in output.items():
        slower = row["slower_percent"]
        rows.append((f"a worker that writes {way}, slowed by --tee", slower, "%", "<= 10", slower <= 10))
    return [dict(zip(("what", "measured", "unit", "bar", "met"), row)) for row in rows]


def render(result):
    lines = [f"{'a worker that prints':<22} {'median ms':>10} {'least ms':>10} {'over bare ms':>13} {'runs':>5}"]
    lines += [f"{kind:<22} {row['ms']:>10.1f} {row['least_ms']:>10.1f} {row['over_bare_ms']:>13.1f} {row['times']:>5}"
              for kind, row in result["start_up"].items()]
    for way, rows in result["output"].items():
        lines += ["", f"{result['megabytes']} MB, {way:<28} {'median s':>10} {'least s':>10} {'least CPU s':>12} {'whole run s':>12}"]
        lines += [f"{kind:<36} {row['seconds']:>10.3f} {row['least_seconds']:>10.3f} "
                  f"{row['least_cpu_seconds']:>12.3f} {row['whole_run_seconds']:>12.3f}"
                  for kind, row in rows.items() if kind != "slower_percent"]
    lines += [f"runs whose output was not whole: {result['lost']}", ""]
    lines.append(f"{'bar':<60} {'measured':>12} {'wanted':>10}")
    lines += [f"{row['what']:<60} {row['measured']:>10g} {row['unit']} {row['bar']:>10}  {'met' if row['met'] else 'MISSED'}"
              for row in result["bars"]]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--muster", default="build/release/muster", help="the program to measure")
    parser.add_argument("--out", default="build/compare", type=pathlib.Path, help="folder for the results")
    parser.add_argument("--rounds", default=15, type=int, help="starts of each kind but torchrun")
    parser.add_argument("--torch-rounds", default=5, type=int, help="starts of torchrun")
    parser.add_argument("--output-rounds", default=5, type=int, help="runs of the worker that writes")
    parser.add_argument("--megabytes", default=100, type=int, help="that it writes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-launcher-") as folder:
        comparison = Comparison(options, folder)
        start_up = comparison.start_up()
        output, lost = comparison.output()
    result = {"start_up": start_up, "output": output, "lost": lost, "megabytes": options.megabytes,
              "bars": bars(start_up, output)}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "launcher.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (options.out / "launcher.txt").write_text(render(result), encoding="utf-8")
    print(render(result), end="")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
