#!/usr/bin/env bash
# Formats the C++ files in place. With --check it only prints which ones differ, and ends with status 1 if any does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

FORMAT=${CLANG_FORMAT:-clang-format}  # Debian 12's, version 14; other versions may format differently.
mode=(-i)
case ${1:-} in
  "") ;;
  --check) mode=(--dry-run -Werror) ;;
  *) echo "usage: tools/format.sh [--check]" >&2; exit 2 ;;
esac

folders=()
for folder in src include lab tests examples python; do
  [[ -d $folder ]] && folders+=("$folder")
done
find "${folders[@]}" -name 'build*' -prune -o \( -name '*.h' -o -name '*.cc' \) -type f -print0 |
  xargs -0 --no-run-if-empty "$FORMAT" "${mode[@]}" || exit 1
