#!/usr/bin/env python3
"""Text of a peer, a worker or the store never reaches a terminal as a command: it is escaped wherever it is printed."""

import json
import os
import pty
import re
import subprocess
import unittest

from launching import PATIENCE, Launching
from processes import MUSTER, Processes

# Sets the clipboard (OSC 52), clears the screen, moves up and erases; the same with C1, a title, a direction of text.
HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2J\x1b[1A\x1b[2K\x9b2J\x90q\x7f\u202egpj\u2066\x08\rdone"
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Hostile(Launching, Processes, unittest.TestCase):
    def assert_harmless(self, received, *shows):
        text = received.decode() if isinstance(received, bytes) else received
        self.assertIsNone(COMMANDS.search(text), repr(text))
        for part in shows:
            self.assertIn(part, text)

    def server(self):
        _, endpoint = self.start_server()
        return endpoint

    def store(self, endpoint, *words):
        done = subprocess.run([MUSTER, "store", "--server", endpoint, "--json", *words], capture_output=True,
                              timeout=PATIENCE, check=True)
        return json.loads(done.stdout)

    def two_nodes(self, worker, *options):
        endpoint = self.server()
        nodes = [self.launch("--nnodes=2", "--rdzv-id=job", f"--rdzv-endpoint={endpoint}", "--max-restarts=0", *options,
                             "--no-python", worker) for _ in range(2)]
        return endpoint, nodes

    def test_a_first_failure_that_a_stranger_has_put_into_the_store(self):
        worker = self.script('touch "$SEEN/$RANK"\nwhile [ ! -e "$SEEN/go" ]; do sleep 0.01; done\nexit 3')
        endpoint, nodes = self.two_nodes(worker)
        self.wait_for_seen("0", "1")
        of_rank_0 = next(key for key in self.store(endpoint, "keys")["keys"] if key.endswith("/assigned_ranks/0"))
        prefix = of_rank_0.removesuffix("torchelastic/assigned_ranks/0")
        record = {"host": HOSTILE, "rank": 7, "local_rank": 0, "pid": 4711, "exitcode": 9, "time_seconds": 1, "order": 0,
                  "error_time": 0, "error_file": HOSTILE, "message": f"first\n{HOSTILE}\nlast", "is_trace": True, "output": HOSTILE,
                  "was_told": False}
        self.store(endpoint, "set", prefix + "muster/first_failure", json.dumps(record))
        (self.seen / "go").touch()
        for node in nodes:
            outcome = self.ended(node)
            self.assertEqual(outcome.status, 1)
            self.assert_harmless(outcome.err, "rank      : 7", "\\x1b]52;c;", "\n  last\n")

    def test_an_error_file_of_a_worker(self):
        error = {"message": {"message": HOSTILE, "extraInfo": {"py_callstack": f"Traceback:\n{HOSTILE}", "timestamp": "1"}}}
        source = self.folder / "error.json"
        source.write_text(json.dumps(error), encoding="utf-8")
        worker = self.script(f'[ "$RANK" = 1 ] || exec sleep 600\ncp {source} "$TORCHELASTIC_ERROR_FILE"\nexit 3')
        report = self.folder / "report.json"
        _, nodes = self.two_nodes(worker, f"--failure-report={report}")
        for node in nodes:
            self.assert_harmless(self.ended(node).err, "\\x1b]52;c;")
        self.assert_harmless(report.read_text(encoding="utf-8"), "\\u001b]52;c;")

    def test_values_of_the_store_on_a_terminal(self):
        endpoint = self.server()
        self.store(endpoint, "set", "k", HOSTILE)
        terminal, child = pty.openpty()
        self.addCleanup(os.close, terminal)
        for options in ((), ("--json",)):
            subprocess.run([MUSTER, "store", "--server", endpoint, *options, "get", "k"], stdout=child, timeout=PATIENCE,
                           check=True)
            received = b""
            while not received.endswith(b"\n"):
                received += os.read(terminal, 4096)
            self.assert_harmless(received.replace(b"\r\n", b"\n"), "]52;c;")
        os.close(child)
        piped = subprocess.run([MUSTER, "store", "--server", endpoint, "get", "k"], capture_output=True, timeout=PATIENCE,
                               check=True)
        self.assertEqual(piped.stdout, HOSTILE.encode() + b"\n")


if __name__ == "__main__":
    unittest.main()
