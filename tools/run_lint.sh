#!/bin/bash
# The format, clang-tidy, and the rules of the tree: tools/run_lint.sh BUILD-FOLDER
set -u
cd "$(dirname "$0")/.."
build=$1
status=0
mapfile -t sources < <(git ls-files -- '*.c' '*.h')
clang-format --dry-run -Werror "${sources[@]}" || status=1
mapfile -t units < <(git ls-files -- 'src/*.c' 'cli/*.c')
printf '%s\0' "${units[@]}" | xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p "$build" 2>/dev/null || status=1
ctest --test-dir "$build" -L '^lint$' --output-on-failure || status=1
exit $status
