"""What a machine may lack. A test that needs it is skipped there, or fails if the machine must have it."""

import os
import shutil
import subprocess
import unittest


def skip_or_fail(why, variable):
    """Without a reason does nothing. Otherwise a failure if the variable is 1, or else the test is skipped."""
    if why:
        if os.environ.get(variable) == "1":
            raise AssertionError(f"{variable}=1, but {why}")
        raise unittest.SkipTest(why)


def require_own_networks():
    """For a test that runs `unshare -rn`."""
    allowed = shutil.which("unshare") and subprocess.run(["unshare", "-rn", "true"], check=False,
                                                         capture_output=True).returncode == 0
    skip_or_fail("" if allowed else "private networks are not allowed here", "MUSTER_REQUIRE_NETWORKS")
