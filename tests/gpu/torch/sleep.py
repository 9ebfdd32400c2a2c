"""Pools that sleep and wake under PyTorch: contents, parts, graphs captured with their memory, and another process that fills the card meanwhile."""

import ctypes
import os
import subprocess
import sys

import torch
from case import MIB, check_heap, install, library, run_group, settle, shim, tensor

install(b"page_maker:False")  # what is held changes with calls only
library.gap_sleep.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p]
library.gap_wake.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
library.gap_wake_block.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
library.gap_get_tiers.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
PRIVATE, SHARED, DROP, ENOMEM = 0, 1, 1, -2
CARD = "NOCARD_DEVICES" not in os.environ


class Tiers(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64)
        for name in ("locked", "used", "more", "disk", "asleep", "sleeps", "wakes", "saved", "restored", "spared", "time")
    ]


def tiers():
    found = Tiers(size=ctypes.sizeof(Tiers))
    assert library.gap_get_tiers(shim.gapless_torch_heap(), 0, ctypes.byref(found)) == 0
    return found


def sleep(tag, flags=0):
    freed = ctypes.c_uint64()
    rc = library.gap_sleep(shim.gapless_torch_heap(), 0, tag, flags, ctypes.byref(freed))
    assert rc == 0, rc
    return freed.value


def wake(tag):
    return library.gap_wake(shim.gapless_torch_heap(), 0, tag, 0)


def fill(x, value):
    if CARD:
        x.fill_(value)
    else:
        ctypes.memset(x.data_ptr(), value, x.numel())
    return x


def holds(x, value):
    if CARD:
        return int(x.min()) == int(x.max()) == value
    return ctypes.string_at(x.data_ptr(), x.numel()) == bytes([value]) * x.numel()


def pool_of(tag, flags=SHARED):
    tensor(1)
    pool = torch.cuda.MemPool()
    assert shim.gapless_torch_pool_flags(*pool.id, flags, tag) == 0
    return pool


def made(pool, sizes):
    """Tensors of the pool, each filled with its number from 1 on."""
    with torch.cuda.use_mem_pool(pool):
        return [fill(tensor(size), number) for number, size in enumerate(sizes, 1)]


def test_what_torch_sees():
    """The memory is gone from what is held; tensors, their addresses and the figures of what lives are what they were."""
    pool = pool_of(b"weights")
    live = made(pool, (30 * MIB, 700, 5 * MIB))
    where, allocated = [x.data_ptr() for x in live], torch.cuda.memory_allocated()
    for _ in range(3):
        held = torch.cuda.memory_reserved()
        freed = sleep(b"weights")
        assert freed >= 35 * MIB and torch.cuda.memory_reserved() == held - freed
        assert torch.cuda.memory_allocated() == allocated and tiers().asleep == freed
        try:
            made(pool, (MIB,))
            raise AssertionError("served from a pool that sleeps")
        except RuntimeError:
            pass
        other = fill(tensor(30 * MIB), 99)
        assert wake(b"weights") == 0
        assert [x.data_ptr() for x in live] == where
        assert all(holds(x, number) for number, x in enumerate(live, 1)) and holds(other, 99)
        assert tiers().asleep == tiers().used == 0
        del other
        settle()
    del live, pool


def test_block_by_block():
    """Layers wake as they are needed."""
    pool = pool_of(b"layers")
    layers = made(pool, [6 * MIB] * 5)
    freed = sleep(b"layers")
    for awake, at in enumerate((3, 0, 4, 1, 2), 1):
        assert library.gap_wake_block(shim.gapless_torch_heap(), layers[at].data_ptr()) == 0
        assert holds(layers[at], at + 1) and tiers().asleep == freed - awake * 6 * MIB
    more = made(pool, (MIB,))  # all of it is awake, and so is the pool
    del layers, more, pool


def test_freed_while_it_sleeps():
    pool = pool_of(b"gone")
    live = made(pool, (10 * MIB, 10 * MIB))
    sleep(b"gone")
    del live[0]
    assert wake(b"gone") == 0 and holds(live[0], 2)
    del live, pool
    settle()
    assert tiers().asleep == tiers().used == 0


def test_graphs_survive():
    """A graph that reads weights and writes to memory of its own pool, captured before, replayed after each wake."""
    weights_pool, graph = pool_of(b"model", PRIVATE), torch.cuda.CUDAGraph()
    with torch.cuda.use_mem_pool(weights_pool):
        weights = torch.arange(8 * MIB, device="cuda", dtype=torch.float32)
    x = torch.ones(8 * MIB, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (weights * x).sum()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, pool=weights_pool.id):
        out = (weights * x + 1) * 2
    for round_ in range(3):
        x.fill_(float(round_))
        expected = (weights * x + 1) * 2
        sleep(b"model")
        noise = [tensor(32 * MIB).fill_(255) for _ in range(8)]
        assert wake(b"model") == 0
        del noise
        graph.replay()
        assert torch.equal(out, expected), round_
    check_heap()


NEIGHBOUR = """
import sys, torch
for line in sys.stdin:
    if line == "take\\n":
        taken, least = [], 64 << 20
        piece = 1 << 34
        while piece >= least:
            try:
                taken.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                piece //= 2
    else:
        del taken
        torch.cuda.empty_cache()
    print("done", flush=True)
"""


def test_another_process_fills_the_card():
    """Pattern 19 of public reports: 50 times a part is saved and a part dropped, a neighbour takes the card, waking fails and changes nothing, the
    neighbour leaves, waking works; nothing of it adds up."""
    settle()
    weights_pool, cache_pool = pool_of(b"weights"), pool_of(b"cache")
    weights, cache = made(weights_pool, [256 * MIB] * 4), made(cache_pool, [256 * MIB] * 12)
    where = [x.data_ptr() for x in weights + cache]
    held, locked = torch.cuda.memory_reserved(), None
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(word):
        neighbour.stdin.write(word + "\n")
        neighbour.stdin.flush()
        assert neighbour.stdout.readline() == "done\n"

    for cycle in range(50):
        assert sleep(b"weights") == 1024 * MIB and sleep(b"cache", DROP) == 3072 * MIB
        assert torch.cuda.memory_reserved() == held - 4096 * MIB
        tell("take")
        assert wake(None) == ENOMEM, cycle
        assert tiers().asleep == 4096 * MIB and torch.cuda.memory_reserved() == held - 4096 * MIB
        tell("leave")
        assert wake(None) == 0, cycle
        assert torch.cuda.memory_reserved() == held and [x.data_ptr() for x in weights + cache] == where
        assert all(holds(x, number) for number, x in enumerate(weights, 1)), cycle
        locked = locked or tiers().locked
        assert tiers().locked == locked and tiers().used == 0, cycle
    neighbour.stdin.close()
    assert neighbour.wait(60) == 0


if __name__ == "__main__":
    run_group()
