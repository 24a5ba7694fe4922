#!/usr/bin/env bash
# Installs a built muster into a temporary folder, builds the examples against it as a user would, and runs them;
# store_meeting also as two processes that meet at the installed server.
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

# --- Build the examples with the same compiler; a sanitized library needs a sanitized program.
sanitizers=$(cached MUSTER_SANITIZE)
build_example() {
  cmake -S "examples/$1" -B "$scratch/$1" -G "$(cached CMAKE_GENERATOR)" \
    -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF \
    -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" -DCMAKE_CXX_FLAGS="${sanitizers:+-fsanitize=$sanitizers}" \
    >"$scratch/configure.log" 2>&1 || fail "find_package(muster) failed" "$scratch/configure.log"
  cmake --build "$scratch/$1" >"$scratch/build.log" 2>&1 || fail "examples/$1 does not build" "$scratch/build.log"
}
build_example store_meeting
build_example own_backend
build_example elastic_worker
example=$scratch/store_meeting

# --- A rendezvous on the user's own backend.
"$scratch/own_backend/own_backend" >"$scratch/own.txt" 2>&1 || fail "own_backend failed" "$scratch/own.txt"
for rank in 0 1 2; do
  grep -qx "rank $rank of 3" "$scratch/own.txt" || fail "own_backend has no rank $rank:" "$scratch/own.txt"
done

# --- A job of two workers under the installed launcher.
"$prefix/bin/muster" run --standalone --nproc-per-node 2 --log-dir "$scratch/logs" --no-python \
  "$scratch/elastic_worker/elastic_worker" "$scratch/checkpoint" 3 0 >"$scratch/job.txt" 2>&1 ||
  fail "elastic_worker failed" "$scratch/job.txt"
grep -qx "the sum of 1 to 3000 is 4501500, as it has to be" "$scratch/job.txt" ||
  fail "elastic_worker did not finish:" "$scratch/job.txt"

# --- store_meeting alone.
participants="participant-0 participant-1 participant-2 participant-3"
"$example/store_meeting" >"$scratch/alone.txt" 2>&1 || fail "the example failed" "$scratch/alone.txt"
for rank in 0 1 2 3; do
  grep -qx "rank $rank met: $participants" "$scratch/alone.txt" ||
    fail "rank $rank did not meet all:" "$scratch/alone.txt"
done
grep -qx "all 4 have met" "$scratch/alone.txt" || fail "the meeting has no end:" "$scratch/alone.txt"

# --- And as two processes with the installed program.
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
