#!/usr/bin/env python3
"""CuPy on gapless' memory beside CuPy's own pools, in turns: bench/gpu/cupy_pools.py

  pair     allocate and free one size, through CuPy, while others stay live
  churn    free a random one of 2,000 live blocks (512 B to 16 MiB, log-uniform) and allocate a fresh size
  held     bytes taken from the driver at the end of the churn over the bytes that were live at its peak

JSON lines go to standard output, as those of the programs beside this one.  77: CuPy or gapless is not installed.
"""
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time

try:
    import cupy
    import gapless
    import gapless.cupy
except ImportError as reason:
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(77)

REPEAT, PAIRS, LIVE, TURNS = 7, 2000, 2000, 6000
SIZES = (512, 64 << 10, 1 << 20, 32 << 20)


class Subject:
    """An allocator under CuPy; `pairs`: of one measurement."""

    def __init__(self, name, malloc, pairs, held, give_back):
        self.name, self.malloc, self.pairs, self.held, self.give_back = name, malloc, pairs, held, give_back


def plain(size):
    """cudaMalloc and cudaFree each time."""
    memory = cupy.cuda.Memory(size)
    return cupy.cuda.MemoryPointer(memory, 0)


def subjects():
    pool, pool_async = cupy.cuda.MemoryPool(), cupy.cuda.MemoryAsyncPool()
    pool_async.set_limit(size=0)
    heap = gapless.default_heap()
    gapless.cupy.enable()  # its malloc takes the short way from then on
    return (
        Subject("gapless", gapless.cupy.malloc, PAIRS, lambda: heap.usage().held_bytes, heap.trim),
        Subject("CuPy's pool", pool.malloc, PAIRS, pool.total_bytes, pool.free_all_blocks),
        Subject("CuPy's pool over cudaMallocAsync", pool_async.malloc, PAIRS, pool_async.total_bytes, pool_async.free_all_blocks),
        Subject("cudaMalloc", plain, 20, None, lambda: None),
    )


def commit():
    """Of the tree, or what GAP_COMMIT says where there is no history."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return os.environ.get("GAP_COMMIT") or done.stdout.strip() or "unknown"


def tell(**line):
    print(json.dumps(line), flush=True)


def put(what, unit, values):
    tell(what=what, unit=unit, median=round(statistics.median(values), 3), least=round(min(values), 3), most=round(max(values), 3))


def pair_ns(subject, size):
    malloc = subject.malloc
    begun = time.perf_counter_ns()
    for _ in range(subject.pairs):
        block = malloc(size)
        del block
    return (time.perf_counter_ns() - begun) / subject.pairs


def sizes(seed):
    draw = random.Random(seed)
    return [int(math.exp(draw.uniform(math.log(512), math.log(16 << 20)))) for _ in range(LIVE + TURNS)]


def churn(subject, seed):
    """(ns a turn, held over the peak of the live bytes)."""
    asked, draw = sizes(seed), random.Random(seed + 1)
    live, lengths = [subject.malloc(size) for size in asked[:LIVE]], asked[:LIVE]
    total = peak = sum(lengths)
    begun = time.perf_counter_ns()
    for size in asked[LIVE:]:
        at = draw.randrange(LIVE)
        live[at] = None
        live[at] = subject.malloc(size)
        total += size - lengths[at]
        lengths[at] = size
        peak = max(peak, total)
    ns = (time.perf_counter_ns() - begun) / TURNS
    held = subject.held() if subject.held else 0
    live.clear()
    subject.give_back()
    return ns, held / peak


def main():
    everyone = subjects()
    tell(device=cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), cupy=cupy.__version__, gapless=gapless.__version__, commit=commit())
    keep = [[subject.malloc(3 << 20) for _ in range(8)] for subject in everyone[:3]]
    for size in SIZES:
        found = {subject.name: [] for subject in everyone}
        for _ in range(REPEAT + 1):
            for subject in everyone:
                found[subject.name].append(pair_ns(subject, size))
        for name, values in found.items():
            put(f"pair of {size} B through CuPy, {name}", "ns", values[1:])
    del keep
    for subject in everyone[:3]:
        subject.give_back()
    rounds = {subject.name: [churn(subject, seed) for seed in range(3)] for subject in everyone[:3]}
    for name, values in rounds.items():
        put(f"churn of {LIVE:,} live through CuPy, {name}", "ns", [ns for ns, _ in values])
        put(f"held at the end of the churn over the peak of live, {name}", "x", [held for _, held in values])


if __name__ == "__main__":
    main()
