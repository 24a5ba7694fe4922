"""Runs one file of these tests: `run.py test_values.py [pytest options]`. Needs nothing but the standard library.

Status 77, and a line that names the file, where there is no PyTorch to test with; MUSTER_REQUIRE_TORCH=1 makes that a
failure.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def why_not(python: str) -> str:
    """What keeps `python` from running the tests; empty if nothing does."""
    if not python:
        return "MUSTER_TORCH_PYTHON is not set"
    try:
        tried = subprocess.run([python, "-c", "import pytest"], capture_output=True, text=True, check=False)
    except OSError as failure:
        return f"MUSTER_TORCH_PYTHON: {failure}"
    return tried.stderr.strip().split("\n")[-1] if tried.returncode else ""


def main() -> int:
    name, *options = sys.argv[1:]
    python = os.environ.get("MUSTER_TORCH_PYTHON", "")
    reason = why_not(python)
    if reason:
        is_required = os.environ.get("MUSTER_REQUIRE_TORCH") == "1"
        print(f"{'FAILED (MUSTER_REQUIRE_TORCH=1)' if is_required else 'SKIPPED'}: {name}: {reason}")
        return 1 if is_required else 77
    # Nothing is written next to the sources: no bytecode, no cache of pytest's.
    command = [python, "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-ra", "--durations=3"]
    sys.stdout.flush()
    os.execv(python, [*command, f"--rootdir={HERE}", str(HERE / name), *options])


if __name__ == "__main__":
    sys.exit(main())
