"""NCCL's collectives on gapless memory beside memory of cudaMalloc, in one process of two ranks, while pages move beside them.

Run by torchrun: collectives.py figures | captured | registered
"""
import statistics
import sys

import torch
import torch.distributed as dist

from churn import Churn
from report import DRY, KINDS, MIB, begin_rank, check, end_rank, fill, holds, memory_of, of_all_ranks, pattern, slices

LEAST = 0.97
SIZES = {16: 40, 256: 8, 1024: 3}  # MiB: how many in a row
ROUNDS = 21


class Bench:
    """Two blocks of each kind, of the largest size, on one rank."""

    def __init__(self, rank, device):
        self.rank, self.device = rank, device
        self.blocks = {}
        for kind in KINDS:
            with memory_of(kind):
                self.blocks[kind] = [torch.zeros(max(SIZES) * MIB // 4, device=device) for _ in range(2)]

    def views(self, kind, mib):
        return [block[:mib * MIB // 4] for block in self.blocks[kind]]

    def all_reduce(self, x, _y):
        dist.all_reduce(x)

    def all_gather(self, x, y):
        dist.all_gather_into_tensor(y, x[:len(x) // 2])

    def send_recv(self, x, y):
        if self.rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(y, 0)

    def seconds(self, work, x, y, count):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        start.record()
        for _ in range(count):
            work(x, y)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000 / count


NAMES = ("all_reduce", "all_gather", "send_recv")


def sums(tensor):
    """Whether it holds the sum of both ranks' patterns."""
    return all(torch.equal(tensor[first:first + count],
                           pattern(4 * count, 0, tensor.device, first) + pattern(4 * count, 1, tensor.device, first))
               for first, count in slices(tensor.numel()))


def came_out(name, rank, x, y):
    """Whether a rank has what it has to have, if x of rank r held pattern r."""
    if name == "all_reduce":
        return sums(x)
    if name == "all_gather":
        return all(holds(half, seed) for seed, half in enumerate(y.chunk(2)))
    return rank == 0 or holds(y, 0)


def is_right(bench, name, x, y):
    """Runs it once on patterns, as words: floats would round."""
    x, y = x.view(torch.int32), y.view(torch.int32)
    fill(x, bench.rank)
    y.zero_()
    getattr(bench, name)(x, y)
    right = came_out(name, bench.rank, x, y)
    x.zero_()
    y.zero_()
    return all(flag == 1 for (flag,) in of_all_ranks(bench.device, float(right)))


def measure(bench, name, mib, rounds):
    """Seconds of each kind, in turns."""
    found = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind in KINDS if number % 2 else reversed(KINDS):
            taken = bench.seconds(getattr(bench, name), *bench.views(kind, mib), SIZES[mib])
            if number:  # the first connects and warms up
                found[kind].append(taken)
    return found


def compare(bench, name, mib):
    """Rank 0's clock decides, for both; a ratio that misses is measured once more, and all rounds count."""
    found = measure(bench, name, mib, ROUNDS)
    ratio = statistics.median(found["cudaMalloc"]) / statistics.median(found["gapless"])
    if of_all_ranks(bench.device, ratio)[0][0] < LEAST:
        more = measure(bench, name, mib, 2 * ROUNDS)
        found = {kind: found[kind] + more[kind] for kind in KINDS}
    return {kind: mib * MIB / statistics.median(found[kind]) / 1e9 for kind in KINDS}


def stolen_of(churn, device):
    return [int(one) for (one,) in of_all_ranks(device, churn.stolen())]


def one_collective(bench, churn, name, mib):
    before = stolen_of(churn, bench.device)
    right = all([is_right(bench, name, *bench.views(kind, mib)) for kind in KINDS])
    speeds = compare(bench, name, mib)
    moved = [after - old for after, old in zip(stolen_of(churn, bench.device), before)]
    ratio = speeds["gapless"] / speeds["cudaMalloc"]
    if bench.rank == 0:
        words = f"{ratio:.3f} of cudaMalloc ({speeds['gapless']:.1f} GB/s beside {speeds['cudaMalloc']:.1f}), pages stolen {moved}"
        check(f"{name} {mib} MiB", right and ratio >= LEAST, words if right else "wrong contents; " + words, ratio=ratio,
              gapless_gbs=speeds["gapless"], cudamalloc_gbs=speeds["cudaMalloc"], asked=LEAST, pages_stolen=moved)


def figures(rank, device):
    bench = Bench(rank, device)
    dist.all_reduce(torch.ones(1, device=device))
    with Churn(device) as churn:
        for name in NAMES:
            for mib in SIZES:
                one_collective(bench, churn, name, mib)
        moved, refused = zip(*of_all_ranks(device, churn.stolen(), churn.refused))
    if rank == 0:
        check("stealing went on beside", all(moved), f"pages {[int(one) for one in moved]}, requests refused {[int(one) for one in refused]}")


# ---- user buffers ----

def nccl_of(device):
    return dist.distributed_c10d._get_default_group()._get_backend(device)


def settle():
    torch.cuda.synchronize()
    dist.barrier()


class Plain(Bench):
    """Blocks of one kind only."""

    def __init__(self, rank, device, blocks):  # pylint: disable=super-init-not-called
        self.rank, self.device, self.blocks = rank, device, {"gapless": blocks}


def right_in_all_sizes(rank, device, blocks):
    """Small first: what is registered must serve a larger piece afterwards."""
    bench = Plain(rank, device, blocks)
    return [f"{name} {mib} MiB" for mib in (1, 64, 256) for name in NAMES if not is_right(bench, name, *bench.views("gapless", mib))]


def registered(rank, device):
    """In a contiguous pool every block is one driver allocation: NCCL takes it as a user buffer.  Any other pool, whose blocks lie in
    many, works too or is refused in words."""
    import gapless

    dist.all_reduce(torch.ones(1, device=device))
    contiguous = gapless.pool(tag="nccl", contiguous=True)
    with contiguous:
        blocks = [torch.zeros(64 * MIB, device=device) for _ in range(2)]
    register(rank, device, contiguous.mem_pool, blocks, "a contiguous pool registered with NCCL", may_refuse=False)
    other = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(other):
        blocks = [torch.zeros(64 * MIB, device=device) for _ in range(2)]
    register(rank, device, other, blocks, "another pool registered with NCCL", may_refuse=True)


def register(rank, device, pool, blocks, name, may_refuse):
    refusal = ""
    try:
        nccl_of(device).register_mem_pool(pool)
    except (RuntimeError, ValueError) as error:
        refusal = str(error).splitlines()[0]
    wrong = right_in_all_sizes(rank, device, blocks)
    settle()
    if not refusal:
        nccl_of(device).deregister_mem_pool(pool)
        wrong += right_in_all_sizes(rank, device, blocks)
    if rank == 0:
        words = f"wrong: {wrong}" if wrong else f"refused: {refusal}" if refusal else "contents right, and after it was taken back"
        check(name, not wrong and (may_refuse or not refusal), words)


def captured(rank, device):
    """In a CUDA graph NCCL registers the buffers by itself."""
    bench = Plain(rank, device, [torch.zeros(64 * MIB, device=device) for _ in range(2)])
    wrong = [mib for mib in (1, 64, 256) if not is_right_captured(bench, *bench.views("gapless", mib))]
    if rank == 0:
        check("collectives in a CUDA graph", not wrong, f"wrong at {wrong} MiB" if wrong else "contents right")


def is_right_captured(bench, x, y):
    x, y = x.view(torch.int32), y.view(torch.int32)
    for work in (bench.all_reduce, bench.all_gather):
        work(x, y)
    settle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bench.all_reduce(x, y)
        bench.all_gather(x, y)
    fill(x, bench.rank)
    graph.replay()
    torch.cuda.synchronize()
    right = sums(x) and all(sums(half) for half in y.chunk(2))
    return all(flag == 1 for (flag,) in of_all_ranks(bench.device, float(right)))


def dry(rank, device):
    """The start, the exchange of numbers, and the collectives themselves."""
    assert of_all_ranks(device, rank, 2.0) == [[0.0, 2.0], [1.0, 2.0]]
    bench = Plain(rank, device, [torch.zeros(MIB, device=device) for _ in range(2)])
    wrong = [name for name in NAMES if not is_right(bench, name, *bench.views("gapless", 4))]
    if rank == 0:
        check("dry collectives", not wrong, wrong)


def main():
    rank, device = begin_rank()
    if DRY:
        dry(rank, device)
    else:
        {"figures": figures, "registered": registered, "captured": captured}[sys.argv[1]](rank, device)
    end_rank()


if __name__ == "__main__":
    main()
