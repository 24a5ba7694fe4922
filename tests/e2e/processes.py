"""Processes of the program under test that end with their test."""

import json
import os
import signal
import subprocess

signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a test that is ended ends its processes, too

MUSTER = os.environ["MUSTER_BIN"]
LAB = os.environ["MUSTER_LAB_BIN"]


class Processes:
    """A mixin for a TestCase."""

    def start(self, *arguments, program=MUSTER, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        process = subprocess.Popen([program, *arguments], **options)
        self.addCleanup(self.end, process)
        return process

    def start_server(self):
        """Returns the process and its port."""
        server = self.start("serve", "--listen", "127.0.0.1:0", "--json")
        return server, f"127.0.0.1:{json.loads(server.stdout.readline())['port']}"

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
