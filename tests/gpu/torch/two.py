"""Only without a card: two devices in one process."""

import threading

import torch
from case import MIB, install, run_group, settle

install(b"page_maker:False")


def on(device, bytes_):
    return torch.empty(bytes_, dtype=torch.uint8, device=f"cuda:{device}")


def test_each_has_its_own_figures():
    x, y = on(0, 3 * MIB), on(1, 5 * MIB)
    assert x.device.index == 0 and y.device.index == 1
    assert torch.cuda.memory_allocated(0) == 3 * MIB and torch.cuda.memory_allocated(1) == 5 * MIB
    devices = {s["device"]: s["allocated_size"] for s in torch.cuda.memory_snapshot()}
    assert devices == {0: 3 * MIB, 1: 5 * MIB}
    del x
    assert torch.cuda.memory_allocated(0) == 0 and torch.cuda.memory_allocated(1) == 5 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(0) == 0 and torch.cuda.memory_reserved(1) == 6 * MIB


def test_the_current_device_is_a_threads_own():
    places = {}

    def work(device):
        torch.cuda.set_device(device)
        blocks = [torch.empty(MIB, dtype=torch.uint8, device="cuda") for _ in range(100)]
        places[device] = {x.device.index for x in blocks}

    threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert places == {0: {0}, 1: {1}}


def test_limits_and_history_of_one():
    torch.cuda.set_per_process_memory_fraction(0.05, 1)
    torch.cuda.memory._record_memory_history(max_entries=100)
    try:
        on(1, 200 * MIB)
        raise AssertionError("served")
    except torch.OutOfMemoryError as error:
        assert "GPU 1" in str(error)
    x = on(0, 200 * MIB)
    traces = torch.cuda.memory._snapshot()["device_traces"]
    assert len(traces) == 2
    assert [e["action"] for e in traces[1]] == ["oom"] and traces[0][-1]["action"] == "alloc"
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.set_per_process_memory_fraction(1.0, 1)
    del x


def test_pools_of_both():
    pools = []
    for device in (0, 1):
        with torch.cuda.device(device):
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                pools.append((pool, on(device, 3 * MIB), on(1 - device, MIB)))
    for pool, inside, outside in pools:
        addresses = [b["address"] for s in pool.snapshot() for b in s["blocks"]]
        assert inside.data_ptr() in addresses and outside.data_ptr() not in addresses
    del pools, pool, inside, outside
    settle()


if __name__ == "__main__":
    run_group()
