#!/usr/bin/env bash
# Installs a built muster into a temporary folder, builds examples/store_meeting against it as a user would, and runs
# it: alone, and as two processes that meet at the installed server.
#
#   tools/check_install.sh BUILD_DIR
set -euo pipefail
(($# == 1)) || { echo "usage: tools/check_install.sh BUILD_DIR" >&2; exit 2; }
build=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
server=
members=()
# shellcheck disable=SC2317  # Reached through the trap.
clean_up() {
  local pid
  for pid in "${members[@]}" $server; do
    kill "$pid" 2>/dev/null || continue
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

fail() {
  echo "check_install: $1" >&2
  shift
  (($# == 0)) || cat "$@" >&2
  exit 1
}

# Prints a variable that BUILD_DIR was configured with.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

# --- Install.
prefix=$scratch/prefix
cmake --install "$build" --prefix "$prefix" >"$scratch/install.log" 2>&1 ||
  fail "the installation failed" "$scratch/install.log"

# --- Build the example: same compiler, and a sanitized library wants a sanitized program.
sanitizers=$(cached MUSTER_SANITIZE)
example=$scratch/example
cmake -S examples/store_meeting -B "$example" -G "$(cached CMAKE_GENERATOR)" \
  -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF \
  -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" -DCMAKE_CXX_FLAGS="${sanitizers:+-fsanitize=$sanitizers}" \
  >"$scratch/configure.log" 2>&1 || fail "find_package(muster) failed" "$scratch/configure.log"
cmake --build "$example" >"$scratch/build.log" 2>&1 || fail "the example does not build" "$scratch/build.log"

# --- Run it alone.
everybody="participant-0 participant-1 participant-2 participant-3"
"$example/store_meeting" >"$scratch/alone.txt" 2>&1 || fail "the example failed" "$scratch/alone.txt"
for rank in 0 1 2 3; do
  grep -qx "rank $rank met: $everybody" "$scratch/alone.txt" ||
    fail "rank $rank did not meet everybody:" "$scratch/alone.txt"
done
grep -qx "all 4 have met" "$scratch/alone.txt" || fail "the meeting has no end:" "$scratch/alone.txt"

# --- Run it as two processes with the installed program.
"$prefix/bin/muster" serve --listen 127.0.0.1:0 --port-file "$scratch/port" >"$scratch/server.txt" 2>&1 &
server=$!
while [[ ! -s $scratch/port ]]; do
  kill -0 "$server" 2>/dev/null || fail "the installed server did not start:" "$scratch/server.txt"
  sleep 0.02
done
for rank in 0 1; do
  "$example/store_meeting" "127.0.0.1:$(cat "$scratch/port")" "$rank" 2 >"$scratch/$rank.txt" 2>&1 &
  members+=($!)
done
for rank in 0 1; do
  wait "${members[rank]}" || fail "rank $rank failed:" "$scratch/$rank.txt"
  grep -qx "rank $rank met: participant-0 participant-1" "$scratch/$rank.txt" ||
    fail "rank $rank did not meet the other:" "$scratch/$rank.txt"
done
members=()
kill -TERM "$server"
wait "$server" || fail "the installed server ended with status $?:" "$scratch/server.txt"
server=
echo "check_install: installed, found, built, met"
