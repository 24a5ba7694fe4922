# Shared by the scripts. Sourced, never run; the caller has set its shell options.
# shellcheck shell=bash disable=SC2034  # The scripts that source this use its variables.

# Every script works from the root of the repository, wherever it was called from.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/muster
TORCH_VERSION=2.13.0
TORCH_VENV=${MUSTER_TORCH_VENV:-$CACHE/torch-$TORCH_VERSION}
TORCH_LATEST=2.15.0  # for `make test-torch-latest`
TORCH_LATEST_VENV=${MUSTER_TORCH_LATEST_VENV:-$CACHE/torch-$TORCH_LATEST}
TORCH_TOOLS=tests/compat/requirements.txt  # further packages for the tests with PyTorch
# The tools that build and check the Python package; each list has its own folder.
PYTHON_TOOLS=python/tools.txt
PYTHON_VENV=${MUSTER_PYTHON_VENV:-$CACHE/python-tools-$(
  { cat $PYTHON_TOOLS 2>/dev/null || true; } | cksum | cut -d ' ' -f 1)}
JOBS=${MUSTER_JOBS:-$(nproc)}  # compilers at a time; set fewer if memory is short

# Prints one line about the next step, with the name of the script.
say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }

# The same for errors.
complain() { say "$@" >&2; }

# Whether the virtual environment of the PyTorch tests can be used.
torch_works() { "$TORCH_VENV/bin/python" -c 'import pytest, torch' >/dev/null 2>&1; }
torch_latest_works() { TORCH_VENV=$TORCH_LATEST_VENV torch_works; }

# Whether a Python can compile extension modules: it has its headers.
python_compiles() {
  "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' >/dev/null 2>&1
}

# Whether the Python package can be built and tested.
python_works() {
  "$PYTHON_VENV/bin/python" -c 'import cloudpickle, mypy, nanobind, pytest, ruff, scikit_build_core' >/dev/null 2>&1 &&
    python_compiles "$PYTHON_VENV/bin/python"
}

# Whether there is a clang++ that makes fuzzers: the compiler, and the libraries that they link.
clang_fuzzes() {
  local folder status=0
  folder=$(mktemp -d)
  printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, decltype(sizeof 0)) { return 0; }' |
    clang++ -fsanitize=fuzzer,address,undefined -x c++ - -o "$folder/fuzzer" >/dev/null 2>&1 || status=1
  rm -rf "$folder"
  return "$status"
}

# Configures a preset; quick when nothing changed.
configure() { cmake --preset "$1"; }

# --- Processes. Everything that a script starts ends with it, however it ends.
#
# Each command gets a process group of its own, so that its own children can be ended with it. (A plain
# background process of a script ignores Ctrl-C, and its children outlive it.)
declare -A running=()

# Starts a command in the background; its id is in $started.
start() {
  set -m
  "$@" &
  started=$!
  set +m
  running[$started]=yes
}

# Waits for a command that start() started; returns its status.
await() {
  local status=0
  wait "$1" || status=$?
  unset "running[$1]"
  return "$status"
}

# Runs a command to its end. Unlike a plain call, it is ended at once when this script is.
attend() {
  start "$@"
  await "$started"
}

stop_all() {
  trap '' INT TERM HUP
  local id
  for id in "${!running[@]}"; do
    kill -TERM -- "-$id" 2>/dev/null || true
    wait "$id" 2>/dev/null || true
  done
}
trap stop_all EXIT
trap 'complain "interrupted"; exit 130' INT TERM HUP
