#!/usr/bin/env python3
"""Runs a GoogleTest program. Failed tests run once more, each alone, and must pass then.

    tools/run_again.py LOG PROGRAM [OPTION...]

All output of the program goes to LOG. Prints which tests failed, and their results alone. Status 0: all tests passed, or
the failed ones passed alone; 1: not. A program that ended in another way than with failed tests is not run again,
because it may have left out tests.

This is for runs that share the machine with instrumented tests, as those of scripts/coverage. scripts/test does not
repeat failed tests. Standard library only.
"""

import re
import subprocess
import sys

FAILED_TESTS = 1  # GoogleTest's exit status


def run(log, command):
    """Its status and its output."""
    began = log.tell()
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode
    log.seek(began)
    said = log.read().decode(errors="replace")
    return status, said


def failed_in(said):
    """The names, once each, in their order."""
    return list(dict.fromkeys(re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", said, re.MULTILINE)))


def passes_alone(log, command, test):
    """A filter without a match would pass, too."""
    status, said = run(log, [*command, f"--gtest_filter={test}"])
    return status == 0 and "[  PASSED  ] 1 test." in said


def main(log_path, program, *options):
    with open(log_path, "wb+") as log:
        status, said = run(log, [program, *options])
        if status == 0:
            return 0
        failed = failed_in(said)
        if status != FAILED_TESTS or not failed:
            print(f"{program}: ended with status {status}; the end of {log_path}:")
            print("\n".join("    " + line for line in said.splitlines()[-20:]))
            return 1
        # The last filter counts.
        stubborn = [test for test in failed if not passes_alone(log, [program, *options], test)]
    for test in failed:
        print(f"{program}: {test} failed" + (", and alone again" if test in stubborn else ", and passed alone"))
    if stubborn:
        print(f"{program}: the whole output is in {log_path}")
    return 1 if stubborn else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
