"""What a machine may lack. A test that needs it is skipped there, or fails if the machine must have it."""

import os
import unittest


def skip_or_fail(why, variable):
    """Without a reason does nothing. Otherwise a failure if the variable is 1, or else the test is skipped."""
    if why:
        if os.environ.get(variable) == "1":
            raise AssertionError(f"{variable}=1, but {why}")
        raise unittest.SkipTest(why)
