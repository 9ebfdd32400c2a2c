"""strategy:caching_allocator: what torch.cuda.MemPool asks of PyTorch's segments, and limits from two sides."""

import torch
from case import MIB, install, run_group, settle, stat, tensor

install(b"strategy:caching_allocator,max_memory:600MiB")
TOTAL = torch.cuda.get_device_properties(0).total_memory


def segments(pool):
    return sorted(s["total_size"] for s in pool.snapshot())


def served(bytes_):
    try:
        return tensor(bytes_)
    except torch.OutOfMemoryError:
        return None


def test_whole_blocks():
    split, whole = torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True)
    live = []
    for pool in (split, whole):
        with torch.cuda.use_mem_pool(pool):
            live += [tensor(4 * MIB), tensor(4 * MIB)]
    assert segments(split) == [20 * MIB] and segments(whole) == [20 * MIB, 20 * MIB]
    assert all(len(s["blocks"]) == 1 for s in whole.snapshot())
    assert len(split.snapshot()[0]["blocks"]) == 3
    del live, split, whole, pool
    settle()


def test_last_resort():
    own, lent = torch.cuda.MemPool(), torch.cuda.MemPool(use_on_oom=True)
    for pool in (own, lent):
        with torch.cuda.use_mem_pool(pool):
            x = tensor(100 * MIB)
        del x
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 10 * MIB) / TOTAL)
    try:
        retries = stat("num_alloc_retries")
        x = served(90 * MIB)
        assert x is not None and x.data_ptr() in [b["address"] for s in lent.snapshot() for b in s["blocks"]]
        assert stat("num_alloc_retries") == retries, "the pool serves before anything is given back"
        assert served(90 * MIB) is None
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    del x, own, lent, pool
    settle()


def test_two_limits():
    """The fraction and max_memory are two limits: taking one back leaves the other."""
    assert served(700 * MIB) is None
    torch.cuda.set_per_process_memory_fraction(300 * MIB / TOTAL)
    assert served(400 * MIB) is None and served(200 * MIB) is not None
    settle()
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert served(400 * MIB) is not None
    settle()
    assert served(700 * MIB) is None, "max_memory still holds"


if __name__ == "__main__":
    run_group()
