"""One side of a comparison: a process with PyTorch's own allocator or with gapless, told on standard input what to do.

Each line is a JSON object with "do": run, record or latency; the answer is a line on the file descriptor that the first argument names.
The process keeps what a program keeps (libraries, kernels, autotuning), and gives all its memory back after each run.
"""
import gc
import hashlib
import json
import os
import sys
import time
import traceback

import torch

import workloads

COUNTED = ("driver_calls", "driver_time_us", "background_time_us", "stalls", "stall_us", "pages_grown", "pages_stolen", "pages_made_ahead",
           "rung.overflow.count", "overflow_placed_bytes", "overflow_out_bytes", "overflow_back_bytes")
PEAKS = ("overflow_bytes_peak",)
TAKEN = ("active_bytes.all.peak", "reserved_bytes.all.peak", "num_alloc_retries", "num_sync_all_streams", "num_ooms", "num_device_alloc",
         "num_device_free")


def own_figures():
    """gapless' counters; {} on the other side."""
    gapless = sys.modules.get("gapless")
    figures = gapless.stats() if gapless is not None and gapless.is_enabled() else {}
    return {name: figures[name] for name in COUNTED if name in figures}


def own_peaks():
    gapless = sys.modules.get("gapless")
    figures = gapless.stats() if gapless is not None and gapless.is_enabled() else {}
    return {name: figures[name] for name in PEAKS if name in figures}


def cool_optimisers():
    """Their states are used once a step: they are to go first when memory lacks."""
    import gapless

    for one in gc.get_objects():
        if issubclass(type(one), torch.optim.Optimizer):  # a proxy of something that is gone does not like isinstance
            gapless.hint_cold(one)


def start_afresh(cap):
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total) if cap else 1.0)


def play(name, seconds, digest, steps=None, cold=False):
    """Runs a workload; appends each step's time.  `cold`: a safe point between two steps, and optimisers' states may go."""
    last = None
    begun = time.perf_counter()
    for last in workloads.ALL[name](steps or workloads.STEPS[name]):
        torch.cuda.synchronize()
        if cold:
            if not seconds:
                cool_optimisers()
            sys.modules["gapless"].defragment()
        now = time.perf_counter()
        seconds.append(now - begun)
        begun = now
        if digest:
            digest.update(last.float().cpu().numpy().tobytes())


def run(name, cap=None, bits=False, steps=None, cold=False):
    """The first step's time includes what is built before it."""
    torch.use_deterministic_algorithms(bits, warn_only=True)
    start_afresh(cap)
    before = own_figures()
    seconds, error = [], None
    digest = hashlib.sha256() if bits else None
    try:
        play(name, seconds, digest, steps, cold)
    except torch.OutOfMemoryError as refused:
        error = str(refused)
    after, taken = own_figures(), torch.cuda.memory_stats()
    figures = {one: after[one] - before[one] for one in after}
    figures.update({one: taken.get(one) for one in TAKEN}, **own_peaks())
    start_afresh(None)
    return {"ok": error is None, "error": error, "seconds": seconds, "digest": digest and digest.hexdigest(), "figures": figures}


def record(name, path):
    """A history of a run without a cap, for the replayer."""
    start_afresh(None)
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=4_000_000)
    play(name, [], None)
    torch.cuda.memory._dump_snapshot(path)
    torch.cuda.memory._record_memory_history(None)
    start_afresh(None)
    return {"path": path}


_latency = None


def latency():
    """One round."""
    global _latency
    if _latency is None:
        from torch.utils.cpp_extension import load

        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "latency.cpp")
        _latency = load("gapless_latency", [source], extra_cflags=["-O2"], with_cuda=True)
    torch.empty(1, device="cuda")
    found = {f"pair of {size} B": _latency.pair_ns(size, 200_000) for size in (512, 1 << 16, 1 << 20, 1 << 25, 1 << 29)}
    found["churn of 2,000 live blocks"] = _latency.churn_ns(2000, 200_000, 24)
    found["churn of 20,000 live blocks"] = _latency.churn_ns(20000, 200_000, 20)
    for threads in (1, 4, 16):
        found[f"{threads} threads on one stream"] = _latency.threads_ns(threads, 65536, 50_000)
    start_afresh(None)
    return found


def main():
    answers = os.fdopen(int(sys.argv[1]), "w")
    actions = {"run": run, "record": record, "latency": latency}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = actions[asked.pop("do")](**asked)
        except Exception:  # pylint: disable=broad-except
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
