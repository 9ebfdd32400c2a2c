#!/bin/sh
# Fuzzes each target for some seconds: tools/run_fuzz.sh FOLDER SECONDS
#
# New inputs go to FOLDER/corpus; an input that crashes is kept in FOLDER and named by the fuzzer.
set -eu
corpus=$(cd "$(dirname "$0")/../tests/fuzz/corpus" && pwd)
cd "$1"
found=0
for program in fuzz_*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  found=1
  name=${program#fuzz_}
  mkdir -p "corpus/$name"
  echo "== $name"
  "./$program" -max_total_time="$2" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 "corpus/$name" "$corpus/$name"
done
[ $found = 1 ] || { echo "no fuzz targets in $1" >&2 && exit 1; }
