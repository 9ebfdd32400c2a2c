"""torch.cuda.MemPool: ours, tagged and contiguous ones, ones with an allocator of their own."""

import ctypes
import os

import torch
from case import BUILD, MIB, helper, install, run_group, settle, shim, stat, tensor

install(b"page_maker:False")  # what is held changes with calls only


def pool_bytes(pool):
    return sum(s["total_size"] for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(pool.id))


def test_use_mem_pool():
    tensor(1)
    pool = torch.cuda.MemPool()
    assert pool.use_count() == 1
    with torch.cuda.use_mem_pool(pool):
        x = tensor(30 * MIB)
        assert pool.use_count() == 2
    y = tensor(30 * MIB)
    inside = [b["address"] for s in pool.snapshot() for b in s["blocks"] if b["state"] == "active_allocated"]
    assert x.data_ptr() in inside and y.data_ptr() not in inside, (x.data_ptr(), inside)
    assert pool_bytes(pool) >= 30 * MIB
    del x
    torch.cuda.empty_cache()
    assert pool_bytes(pool) >= 30 * MIB  # a pool in use keeps its pages
    with torch.cuda.use_mem_pool(pool):
        held = torch.cuda.memory_reserved()
        z = tensor(30 * MIB)
        assert torch.cuda.memory_reserved() == held
    number = pool.id
    del z, y, pool
    settle()
    assert not [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(number)]


def test_live_tensor_outlives_its_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((MIB,), 5, dtype=torch.uint8, device="cuda")
    del pool
    settle()
    noise = [tensor(MIB).fill_(1) for _ in range(10)]
    assert int(x.min()) == 5
    del x, noise
    settle()


def test_other_threads_stay_outside():
    import threading

    pool = torch.cuda.MemPool()
    out = []
    with torch.cuda.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: out.append(tensor(3 * MIB)))
        thread.start()
        thread.join()
    inside = [b["address"] for s in pool.snapshot() for b in s["blocks"]]
    assert out[0].data_ptr() not in inside
    del out[:]


def test_use_on_oom():
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        x = tensor(200 * MIB)
    del x
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 10 * MIB) / total)
    try:
        y = tensor(150 * MIB)
        assert y.data_ptr() in [b["address"] for s in pool.snapshot() for b in s["blocks"]]
        del y
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    del pool
    settle()


def test_out_of_memory_names_pools():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = tensor(200 * MIB)
    del x
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 10 * MIB) / total)
    try:
        tensor(150 * MIB)
        raise AssertionError("served")
    except torch.OutOfMemoryError as error:
        assert "with 200.00 MiB allocated in private pools" in str(error), error
        assert "pool" in str(error).split("gapless:")[1], error
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    del pool
    settle()


def test_flags_and_tag():
    pool = torch.cuda.MemPool()
    contiguous = 2
    assert shim.gapless_torch_pool_flags(*pool.id, contiguous, b"network") == 0
    with torch.cuda.use_mem_pool(pool):
        x = tensor(10 * MIB).fill_(4)
    assert shim.gapless_torch_pool_flags(*pool.id, 0, b"late") != 0
    assert int(x.sum()) == 40 * MIB
    del x, pool
    settle()


def test_own_allocator():
    plugin = torch.cuda.memory.CUDAPluggableAllocator(os.path.join(BUILD, "help.so"), "help_plugin_alloc", "help_plugin_free")
    pool = torch.cuda.MemPool(plugin.allocator())
    before = helper.help_plugin_calls()
    with torch.cuda.use_mem_pool(pool):
        x, y = tensor(3 * MIB).fill_(1), tensor(3 * MIB).fill_(2)
    assert helper.help_plugin_calls() == before + 1, "one segment is split"
    assert helper.help_plugin_live() == 20 * MIB
    assert torch.cuda.memory_reserved() >= 20 * MIB and torch.cuda.memory_allocated() >= 6 * MIB
    inside = [b["address"] for s in pool.snapshot() for b in s["blocks"]]
    assert x.data_ptr() in inside and y.data_ptr() in inside
    side = torch.cuda.Stream()
    x.record_stream(side)
    z = tensor(3 * MIB)
    assert z.data_ptr() not in inside
    assert int(x.sum()) == 3 * MIB and int(y.sum()) == 6 * MIB
    del x, y, z, pool
    settle()
    torch.cuda.empty_cache()
    assert helper.help_plugin_live() == 0
    del plugin


CARD = "NOCARD_DEVICES" not in os.environ


def refused(bytes_):
    try:
        tensor(bytes_)
    except torch.OutOfMemoryError:
        return True
    return False


def test_one_fraction_for_both_allocators():
    """What a pool with an allocator of its own holds counts, too; and what is idle in one that may be used on OOM is."""
    plugin = torch.cuda.memory.CUDAPluggableAllocator(os.path.join(BUILD, "help.so"), "help_plugin_alloc", "help_plugin_free")
    apart, lent = torch.cuda.MemPool(plugin.allocator()), torch.cuda.MemPool(plugin.allocator(), use_on_oom=True)
    settle()
    fraction = (torch.cuda.memory_reserved() + 80 * MIB) / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(fraction)
    try:
        with torch.cuda.use_mem_pool(apart):
            a = tensor(40 * MIB)
        with torch.cuda.use_mem_pool(lent):
            b = tensor(40 * MIB)
        where = b.data_ptr()
        assert refused(40 * MIB) and torch.cuda.get_per_process_memory_fraction() == fraction
        del a, b
        c = tensor(30 * MIB)
        assert c.data_ptr() == where and refused(30 * MIB)
        if CARD:
            c.record_stream(torch.cuda.Stream())
        del c
        torch.cuda.empty_cache()  # PyTorch's own looks at events of such blocks outside pools only
        with torch.cuda.use_mem_pool(lent):
            e = tensor(20 * MIB)
        assert e.data_ptr() == where
        del e, apart
        settle()
        x = tensor(40 * MIB)  # of what `apart` had
        del x
        if CARD:  # PyTorch's own message needs one
            with torch.cuda.use_mem_pool(lent):
                y, z = tensor(40 * MIB), tensor(40 * MIB)  # our idle memory makes room
            del y, z
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    del lent
    settle()
    assert helper.help_plugin_live() == 0
    del plugin


if __name__ == "__main__":
    run_group()
