#!/usr/bin/env bash
# Checks the shell scripts of this repository with shellcheck (Debian 12's, version 0.9).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts=(scripts/common.sh)  # It is sourced, and has no first line that names a shell.
while IFS= read -r -d '' file; do
  IFS= read -r first <"$file" || true
  if [[ $first =~ ^#!.*[/\ ](ba)?sh$ ]]; then scripts+=("$file"); fi
done < <(find .ci python scripts tests tools -name 'build*' -prune -o -type f -perm -u+x -print0)
shellcheck --external-sources "${scripts[@]}"
echo "shell: ${#scripts[@]} scripts, no findings"
