# What the scripts share. Sourced, never run; the caller has set its shell options.
# shellcheck shell=bash disable=SC2034  # The scripts that source this use its variables.

# Every script works from the root of the repository, wherever it was called from.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

TORCH_VERSION=2.13.0
TORCH_VENV=${MUSTER_TORCH_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/muster/torch-$TORCH_VERSION}
JOBS=$(nproc)

# One line about what happens next, under the name of the script that says it.
say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }

# The same for what went wrong.
complain() { say "$@" >&2; }

# Whether the virtual environment of the PyTorch tests can be used.
torch_works() { "$TORCH_VENV/bin/python" -c 'import pytest, torch' >/dev/null 2>&1; }

# Configures a preset. A configured one is left to the build, which configures again by itself when a CMake file changed.
configure() {
  if [[ ! -f build/$1/build.ninja ]]; then
    cmake --preset "$1"
  fi
}

# Starts a command in the background, in a process group of its own: what it starts in turn ends with it. Its id is in
# $started. (A plain background process of a script ignores Ctrl-C, and its children outlive it.)
start() {
  set -m
  "$@" &
  started=$!
  set +m
}

# Ends a group that start() made, if it is still there, and waits until it is gone.
stop() {
  kill -TERM -- "-$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}
