"""PyTorch's own timers in a worker of `muster run`: its client uses our watchdog."""

import re

WORKER = """
import os, signal, sys, time
from torch.distributed.elastic import timer

client = timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"])
timer.configure(client)
with timer.expires(after=600, scope="in time"):
    pass
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with timer.expires(after=0.5, scope="too late"):
        signal.pause()
print("came back")
"""


def test_launch135_launch136_pytorchs_client_sets_timers_that_count(job):
    script = job.directory / "worker.py"
    script.write_text(WORKER)
    agent = job.muster(
        "watched", "--standalone", "--max-restarts=1", script, TORCHELASTIC_ENABLE_FILE_TIMER="1"
    )
    job.assert_all_ended_well(agent)
    printed = agent.output()
    assert re.search(r"timer 'too late' of pid \d+ has expired: SIGKILL is sent", printed), printed
    assert "in time" not in printed
    assert printed.count("came back") == 1
