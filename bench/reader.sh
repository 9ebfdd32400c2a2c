#!/usr/bin/env bash
# The reader beside Python's pickle.load on the same plain pickle, in turns, in one run:
#   bench/reader.sh READER FILE.pickle[.xz] [ROUNDS]
# READER is build/bench/reader.  Every turn is a fresh process on each side; the ratio is of the medians.
set -euo pipefail
reader=${1:?usage: reader.sh READER FILE.pickle[.xz] [ROUNDS]}
file=${2:?usage: reader.sh READER FILE.pickle[.xz] [ROUNDS]}
rounds=${3:-7}
case $file in
  *.xz)
    plain=$(mktemp)
    trap 'rm -f "$plain"' EXIT
    xz -dc "$file" > "$plain"
    ;;
  *) plain=$file ;;
esac
READER=$reader FILE=$plain ROUNDS=$rounds python3 - <<'PYTHON'
import json
import os
import statistics
import subprocess
import sys

reader, path, rounds = os.environ["READER"], os.environ["FILE"], int(os.environ["ROUNDS"])
LOAD = """
import gc, pickle, resource, sys, time
if sys.argv[2] == "off":
    gc.disable()
with open(sys.argv[1], "rb") as file:
    start = time.perf_counter()
    kept = pickle.load(file)
    print(1e3 * (time.perf_counter() - start), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def load(gc):
    out = subprocess.run([sys.executable, "-c", LOAD, path, gc], stdout=subprocess.PIPE, check=True, text=True).stdout
    return float(out.split()[0])


def read():
    out = subprocess.run([reader, "--json", "--rounds", "1", path], stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(out)


ours, on, off = [], [], []
for _ in range(rounds):
    ours.append(read())
    on.append(load("on"))
    off.append(load("off"))
times = [turn["median_ms"] for turn in ours]
warm = json.loads(subprocess.run([reader, "--json", path], stdout=subprocess.PIPE, check=True, text=True).stdout)
print(f"reader                {statistics.median(times):8.1f} ms  ({min(times):.1f} to {max(times):.1f}), "
      f"again in one process {warm['median_ms']:.1f} ms")
for name, values in (("pickle.load, gc on", on), ("pickle.load, gc off", off)):
    print(f"{name:<21} {statistics.median(values):8.1f} ms  ({min(values):.1f} to {max(values):.1f}), "
          f"ratio of medians {statistics.median(values) / statistics.median(times):.1f}, of the least "
          f"{min(values) / min(times):.1f}, against one process {statistics.median(values) / warm['median_ms']:.1f}")
print(f"peak memory of the reader: {max(t['peak_resident_per_file_byte'] for t in ours):.2f} x the file")
PYTHON
