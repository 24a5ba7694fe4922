"""``python -m muster``: the program."""

from __future__ import annotations

import os
import sys

from muster._job import find_program

if __name__ == "__main__":
    program = find_program()
    os.execv(program, [program, *sys.argv[1:]])
