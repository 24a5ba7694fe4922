"""Measures how busy this machine is: a thread that wants to wake up on time, and records how late it was."""

import threading
import time

EVERY_S = 0.05
BEAT_S = 0.5


class Probe:
    """Adds an event "beat" to the record repeatedly. `late` is the longest delay since the last one. Use it in a with
    statement; it adds a last event when that ends."""

    def __init__(self, record):
        self._record = record
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        late, beat = 0.0, time.monotonic()
        over = False
        while not over:
            asleep = time.monotonic()
            over = self._over.wait(EVERY_S)
            late = max(late, time.monotonic() - asleep - EVERY_S)
            if over or time.monotonic() - beat >= BEAT_S:
                self._record.add("world", 0, "beat", late=round(late, 3))
                late, beat = 0.0, time.monotonic()
