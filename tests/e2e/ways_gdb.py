"""Runs inside gdb, for ways_test.py: writes the backtrace of each hit of some functions to a file, and lets the process
continue. Not a test itself.

WAYS_FUNCTIONS   a JSON list of [file, function]
WAYS_OUTPUT      where one JSON object a line goes: first the process, then the hits
"""

import json
import os
import time

import gdb  # exists inside gdb only

HITS_MAX = 500  # of one function; loops call some all the time
FRAMES_MAX = 100


class Step(gdb.Breakpoint):
    """A function whose hits are written down."""

    def __init__(self, index, file, function, output):
        super().__init__(source=file, function=function, internal=False)
        self.silent = True
        self._index, self._output, self._hits = index, output, 0

    def stop(self):
        self._output.write({"step": self._index, "time": time.monotonic(), "thread": gdb.selected_thread().ptid[1],
                            "frames": list(frames())})
        self._hits += 1
        if self._hits == HITS_MAX:
            self.enabled = False
        return False


class Output:
    """Complete lines only, so that they can be read while the process runs."""

    def __init__(self, path):
        self._file = open(path, "w", encoding="utf-8")  # open until gdb ends

    def write(self, entry):
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()


def frames():
    """[function, file where it is defined] of each frame with debug information, innermost first."""
    frame, count = gdb.newest_frame(), 0
    while frame is not None and count < FRAMES_MAX:
        symbol = frame.function()
        if symbol is not None and symbol.symtab is not None:
            yield [symbol.name, symbol.symtab.filename]
        frame, count = frame.older(), count + 1


def main():
    for setting in ("pagination off", "confirm off", "debuginfod enabled off", "startup-with-shell off",
                    "detach-on-fork on", "follow-fork-mode parent", "print thread-events off"):
        gdb.execute(f"set {setting}")
    gdb.execute("handle all nostop noprint pass", to_string=True)
    output = Output(os.environ["WAYS_OUTPUT"])
    steps = []
    for index, (file, function) in enumerate(json.loads(os.environ["WAYS_FUNCTIONS"])):
        steps.append(Step(index, file, function, output))
        if steps[-1].pending:  # It may be in a library that is loaded later; ours are not.
            output.write({"missing": index})
    gdb.execute("starti", to_string=True)
    output.write({"pid": gdb.selected_inferior().pid})
    gdb.execute("continue")


main()
