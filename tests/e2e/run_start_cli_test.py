#!/usr/bin/env python3
"""How quickly `muster run` starts its workers. Not for a program with a sanitizer: those take their time to start."""

import time
import unittest

from launching import Launching
from ports import free_port


class Starting(Launching, unittest.TestCase):

    def test_launch145_the_first_worker_is_there_within_50_milliseconds(self):
        def took():
            began = time.time_ns()
            port = free_port()
            outcome = self.run_job("--rdzv-backend=static", f"--master-port={port}", "--no-python", "date", "+%s%N")
            return (int(outcome.out) - began) / 1e6

        # Time that others take from this machine is not the launcher's: the quickest of many tells.
        times = []
        while len(times) < 200 and min(times, default=50) >= 50:
            times.append(took())
        self.assertLess(min(times), 50)


if __name__ == "__main__":
    unittest.main()
