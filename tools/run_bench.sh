#!/bin/sh
# Runs every benchmark program of a folder: tools/run_bench.sh FOLDER
set -eu
found=0
for program in "$1"/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  found=1
  echo "== ${program##*/}"
  "$program"
done
[ $found = 1 ] || { echo "no benchmarks in $1" >&2 && exit 1; }
