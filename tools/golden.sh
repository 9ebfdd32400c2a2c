#!/bin/bash
# Writes the expected tables and outputs anew, for review as a diff: tools/golden.sh [COMMAND]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
command=$(realpath "${1:-$root/build/gapless}")
bash "$root/tests/golden/replay.sh" "$command" --write
python3 "$root/tests/golden/article.py" "$command" --write
for script in "$root"/tests/cli/*.sh; do bash "$script" "$command" --write; done
git -C "$root" --no-pager diff --stat -- tests/golden tests/cli docs/article.md
