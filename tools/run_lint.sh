#!/bin/bash
# clang-tidy and the rules of the tree, the format among them: tools/run_lint.sh BUILD-FOLDER
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
status=0
find cli plugin src -name '*.c' -print0 | xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p "$build" 2>/dev/null || status=1
ctest --test-dir "$build" -L '^lint$' --output-on-failure || status=1
exit $status
