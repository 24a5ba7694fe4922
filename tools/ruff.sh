#!/usr/bin/env bash
# Checks the Python of this repository with ruff, and that of the package for its format, too.
#
# MUSTER_PYTHON_TOOLS    Python with the packages of python/tools.txt (default: what `scripts/setup test` has made).
#                        Without: status 77, skipped
# MUSTER_REQUIRE_PYTHON  1: fail instead of skipping
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

python=${MUSTER_PYTHON_TOOLS:-$PYTHON_VENV/bin/python}
if ! "$python" -c 'import ruff' 2>/dev/null; then
  complain "ruff is not installed (scripts/setup test installs it)"
  [[ ${MUSTER_REQUIRE_PYTHON:-} != 1 ]] || exit 1
  exit 77
fi
cd python
"$python" -m ruff check --no-cache .
# Elsewhere: what fails when it runs, such as an undefined name, and imports that nothing uses.
"$python" -m ruff check --no-cache --isolated --select E9,F ../examples ../lab ../scripts ../scripts/release ../tests ../tools
"$python" -m ruff format --no-cache --check .
