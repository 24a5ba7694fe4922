"""What a machine may lack. A test that needs it is skipped there, and fails where it is demanded of the machine."""

import os
import unittest


def skip_or_fail(why, variable):
    """Raises, unless there is no reason to: a failure if the variable is 1, otherwise the test is skipped."""
    if why:
        if os.environ.get(variable) == "1":
            raise AssertionError(f"{variable}=1, but {why}")
        raise unittest.SkipTest(why)
