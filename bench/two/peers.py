"""One process, two devices: who reaches whose memory, and how fast it is copied.  Leaves a history of both devices (TWO_HISTORY)."""
import os
import random
import statistics

import torch

from churn import Churn
from report import KINDS, MIB, assert_allocator, attempt, begin, check, fill, holds, memory_of, own_figures

LEAST = 0.97
SIZES = {16: 30, 256: 6, 1024: 3}  # MiB: how many in a row
ROUNDS = 21
SHAPES = (1000, 700_000, 3 * MIB, 64 * MIB + 512, 300 * MIB)  # bytes: in one page, in several, in many
PAIRS = ((0, 1), (1, 0))


def on(device, bytes_):
    return torch.zeros(bytes_ // 4, dtype=torch.int32, device=f"cuda:{device}")


def copies_whole(source, target, seed):
    """By a copy engine."""
    fill(source, seed)
    target.copy_(source)
    return holds(target, seed)


def copies_pieces(source, target, seed):
    """By a kernel of the source's device that writes to the other's memory: every other word."""
    even = source.numel() // 2 * 2
    fill(source, seed)
    target.zero_()
    target[:even].view(-1, 2)[:, 0].copy_(source[:even].view(-1, 2)[:, 0])
    back = target[:even].to(source.device).view(-1, 2)
    return torch.equal(back[:, 0], source[:even].view(-1, 2)[:, 0]) and not back[:, 1].any()


def wrong_copies(blocks):
    return [f"{way.__name__} {bytes_} B {source} to {target}"
            for source, target in PAIRS
            for number, bytes_ in enumerate(SHAPES)
            for way in (copies_whole, copies_pieces)
            if not way(blocks[source][number], blocks[target][number], 3 * number + source)]


def reach():
    """Blocks that were there when the access was opened; then blocks whose pages are mapped afterwards."""
    for when in ("before", "after"):
        with attempt(f"chunks mapped {when} peer access") as words:
            torch.cuda.empty_cache()
            blocks = [[on(device, bytes_) for bytes_ in SHAPES] for device in range(2)]
            torch.cuda.synchronize(0)
            torch.cuda.synchronize(1)
            wrong = wrong_copies(blocks)
            assert not wrong, f"wrong contents: {wrong[:4]}"
            words.append(f"{2 * len(PAIRS) * len(SHAPES)} copies, by engines and by kernels")
            del blocks


def copies_beside_stealing():
    """Pages that move are open to the other device too."""
    rng = random.Random(11)
    with attempt("copies while pages move on both devices") as words, Churn("cuda:0") as one, Churn("cuda:1") as two:
        for number in range(120):
            source, target = rng.choice(PAIRS)
            bytes_ = rng.randrange(4096, 24 * MIB)
            way = rng.choice((copies_whole, copies_pieces))
            assert way(on(source, bytes_), on(target, bytes_), number), f"wrong contents at turn {number}: {way.__name__} {bytes_} B"
        moved = [one.stolen(), two.stolen()]
        assert all(moved), f"pages stolen {moved}: nothing moved"
        words.append(f"120 copies, pages stolen {moved}, requests refused {[one.refused, two.refused]}")


def seconds(source, target, count):
    with torch.cuda.device(source.device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            target.copy_(source, non_blocking=True)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000 / count


def measure(blocks, source, target, mib, rounds):
    """Seconds of each kind, in turns."""
    found = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind in KINDS if number % 2 else reversed(KINDS):
            views = [blocks[kind][device][:mib * MIB // 4] for device in (source, target)]
            taken = seconds(*views, SIZES[mib])
            if number:  # the first warms up
                found[kind].append(taken)
    return found


def link(blocks, source, target, mib):
    """GB/s; a ratio that misses is measured once more, and all rounds count."""
    found = measure(blocks, source, target, mib, ROUNDS)
    if statistics.median(found["cudaMalloc"]) < LEAST * statistics.median(found["gapless"]):
        more = measure(blocks, source, target, mib, 2 * ROUNDS)
        found = {kind: found[kind] + more[kind] for kind in KINDS}
    return {kind: mib * MIB / statistics.median(found[kind]) / 1e9 for kind in KINDS}


def speed():
    blocks = {}
    for kind in KINDS:
        with memory_of(kind):
            blocks[kind] = [on(device, max(SIZES) * MIB) for device in range(2)]
    for source, target in PAIRS:
        for mib in SIZES:
            found = link(blocks, source, target, mib)
            ratio = found["gapless"] / found["cudaMalloc"]
            check(f"copy {mib} MiB from {source} to {target}", ratio >= LEAST,
                  f"{ratio:.3f} of cudaMalloc ({found['gapless']:.1f} GB/s beside {found['cudaMalloc']:.1f})", ratio=ratio, asked=LEAST,
                  gapless_gbs=found["gapless"], cudamalloc_gbs=found["cudaMalloc"])


def main():
    begin()
    torch.cuda.init()
    assert_allocator()
    check("the devices can reach each other", torch.cuda.can_device_access_peer(0, 1) and torch.cuda.can_device_access_peer(1, 0))
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=1_000_000)
    reach()
    copies_beside_stealing()
    torch.cuda.memory._dump_snapshot(os.environ["TWO_HISTORY"])
    torch.cuda.memory._record_memory_history(None)
    speed()
    own = [own_figures(device)["pages_stolen"] for device in range(2)]
    check("figures of both devices", all(own), f"pages stolen {own}")


if __name__ == "__main__":
    main()
