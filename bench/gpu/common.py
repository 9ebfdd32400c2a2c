"""What the benchmarks in Python share: lines of JSON, times by the card's events, a device copy to compare with."""

import json
import os
import statistics
import subprocess
import sys

import torch

DEVICE = torch.device("cuda", 0)
MIB, GIB = 1 << 20, 1 << 30


def commit():
    """Of the tree, or what GAP_COMMIT says where there is no history."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=os.path.dirname(__file__) or ".", capture_output=True, text=True, check=False)
    return os.environ.get("GAP_COMMIT") or done.stdout.strip() or "unknown"


def need_card():
    """Ends the program where there is none."""
    if not torch.cuda.is_available():
        print("skipped: no card", file=sys.stderr)
        sys.exit(77)


missed = []


def tell(what, figure, unit, asked=None, at_most=False, **more):
    """One line; `asked`: what the figure should be at least (or at most)."""
    line = {"what": what, "figure": round(figure, 4), "unit": unit}
    if asked is not None:
        met = figure <= asked if at_most else figure >= asked
        line.update({"asked": asked, "met": met})
        if not met:
            missed.append(what)
    card = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    line.update(more, card=card, torch=torch.__version__, commit=commit())
    print(json.dumps(line), flush=True)


def milliseconds(call, repeat=9, inner=10):
    """Median time of a call on the card, in runs of `inner` calls between two events."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(inner):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / inner)
    return statistics.median(times)


def copy_bandwidth(size=3 * GIB // 2):
    """GB/s, read and written, of a device copy."""
    a, b = (torch.empty(size, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    a.random_()
    time = milliseconds(lambda: b.copy_(a))
    assert torch.equal(a, b)
    return 2 * size / time / 1e6


def finish():
    """Says which figures were missed."""
    if missed:
        print("missed: " + "; ".join(missed), file=sys.stderr)
    return 0
