"""Blocks, statistics, streams, limits, errors, threads."""

import inspect
import os
import re
import subprocess
import sys
import threading
import warnings

import torch
from case import MIB, RELEASE, check_heap, helper, install, library, run_group, settle, shim, stat, state, tensor

install()


def test_waits_for_cuda():
    assert state() == 1 and not torch.cuda.is_initialized()
    torch.empty(1, device="cuda")
    assert state() == 2
    assert torch.cuda.get_allocator_backend() == "gapless"


def test_all_figures():
    keep = [tensor(n) for n in (1, 1000, 3 * MIB, 30 * MIB)]
    stats = torch.cuda.memory_stats()
    assert len(stats) == (122 if RELEASE < (2, 12) else 123), len(stats)
    assert all(value >= 0 or name == "max_split_size" for name, value in stats.items())
    for name in {n.split(".")[0] for n in stats if n.count(".") == 2}:
        for kind in ("current", "allocated", "freed"):
            parts = [stats[f"{name}.{pool}.{kind}"] for pool in ("small_pool", "large_pool")]
            assert stats[f"{name}.all.{kind}"] == sum(parts), (name, kind)
        assert stats[f"{name}.all.peak"] >= stats[f"{name}.all.current"], name
    assert stats["max_split_size"] == -1
    assert stats["allocation.all.current"] >= len(keep)
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"] > 33 * MIB
    assert stats["segment.all.current"] > 0 and stats["num_device_alloc"] > 0
    assert stats["num_ooms"] == 0 and stats["num_alloc_retries"] == 0


def test_figures_follow_blocks():
    settle()
    before = torch.cuda.memory_allocated(), stat("requested_bytes.all.current"), stat("allocation.all.current")
    x = tensor(5 * MIB + 100)
    assert torch.cuda.memory_allocated() - before[0] == 5 * MIB + 512
    assert stat("requested_bytes.all.current") - before[1] == 5 * MIB + 100
    assert stat("allocation.all.current") - before[2] == 1
    torch.cuda.reset_peak_memory_stats()
    y = tensor(50 * MIB)
    del y
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() + 50 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    del x
    assert torch.cuda.memory_allocated() == before[0]
    torch.cuda.reset_accumulated_memory_stats()
    assert stat("allocation.all.allocated") == 0 and stat("num_device_alloc") == 0


def test_empty_cache():
    settle()
    before = torch.cuda.memory_reserved()
    x = tensor(200 * MIB)
    assert torch.cuda.memory_reserved() >= before + 198 * MIB
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + 2 * MIB
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total


def test_summary_text():
    x = tensor(3 * MIB)
    text = torch.cuda.memory_summary()
    assert "PyTorch CUDA memory summary" in text and "GPU reserved memory" in text
    del x


def test_out_of_memory():
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *what: seen.append(what))
    total = torch.cuda.get_device_properties(0).total_memory
    settle()
    limit = torch.cuda.memory_reserved() + 64 * MIB
    torch.cuda.set_per_process_memory_fraction(limit / total)
    try:
        keep = tensor(40 * MIB)
        message = ""
        try:
            tensor(100 * MIB)
        except torch.OutOfMemoryError as error:
            message = str(error)
        pattern = (r"CUDA out of memory\. Tried to allocate 100\.00 MiB\. GPU 0 has a total capacity of [\d.]+ [GM]iB of which "
                   r"[\d.]+ [GM]iB is free\. .*allowed; Of the allocated memory [\d.]+ MiB is allocated by PyTorch, and "
                   r"[\d.]+ (MiB|KiB|bytes) is reserved by PyTorch but unallocated\.\ngapless: .+")
        assert re.search(pattern, message, re.S), message
        print(message)
        assert len(seen) == 1 and seen[0][0] == 0 and seen[0][1] == 100 * MIB, seen
        assert stat("num_ooms") == 1
        assert shim.gapless_torch_explain(0, None, 0) > 20
        small = tensor(10 * MIB)
        del keep, small
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    x = tensor(100 * MIB)
    del x


def test_memory_callbacks():
    """torch's callbacks are the last resort before the error."""
    total = torch.cuda.get_device_properties(0).total_memory
    settle()
    helper.help_keep_spare(60 * MIB)
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 20 * MIB) / total)
    try:
        x = tensor(50 * MIB)
        assert not helper.help_has_spare()
        del x
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_absurd_sizes():
    try:
        torch.empty(1 << 61, dtype=torch.uint8, device="cuda")
        raise AssertionError("served")
    except torch.OutOfMemoryError as error:
        assert "1EB" in str(error)
    assert tensor(0).data_ptr() == 0


def test_record_stream():
    side = torch.cuda.Stream()
    for _ in range(20):
        x = torch.full((8 * MIB,), 7, dtype=torch.uint8, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            y = x.clone()
        x.record_stream(side)
        del x
        z = torch.full((8 * MIB,), 9, dtype=torch.uint8, device="cuda")  # must not lie where x is still read
        side.synchronize()
        assert int(y.min()) == 7 and int(y.max()) == 7
        del y, z
    assert stat("active_bytes.all.current") >= stat("allocated_bytes.all.current")


def test_many_streams_and_threads():
    wrong = []

    def work(seed):
        stream = torch.cuda.Stream()
        generator = torch.Generator().manual_seed(seed)
        with torch.cuda.stream(stream):
            live = []
            for step in range(150):
                size = int(2 ** (9 + 14 * float(torch.rand(1, generator=generator))))
                value = (seed * 31 + step) % 251
                live.append((torch.full((size,), value, dtype=torch.uint8, device="cuda"), value))
                if len(live) > 12:
                    x, value = live.pop(int(torch.randint(12, (1,), generator=generator)))
                    if int((x != value).sum()):
                        wrong.append((seed, step))
            stream.synchronize()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]


def test_storages():
    x = torch.arange(1000, device="cuda")
    y = x.clone()
    x.untyped_storage().resize_(80_000)
    assert torch.equal(x, y)
    x.resize_(10_000)
    assert torch.equal(x[:1000], y)
    pointer = torch.cuda.caching_allocator_alloc(12345)
    torch.cuda.caching_allocator_delete(pointer)


def test_deterministic_fill():
    torch.use_deterministic_algorithms(True)
    try:
        assert bool(torch.empty(1000, device="cuda").isnan().all())
    finally:
        torch.use_deterministic_algorithms(False)


def test_training_with_cudnn_benchmark():
    torch.backends.cudnn.benchmark = True
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for size in (32, 48, 64):
        loss = net(torch.randn(8, 3, size, size, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert bool(loss.isfinite())


def test_loader_workers_and_fork():
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    total = sum(float(batch.cuda(non_blocking=True).sum()) for (batch,) in loader)
    assert total == 2016.0
    x = tensor(3 * MIB)
    child = os.fork()
    if child == 0:
        del x  # frees do nothing there
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_profiler():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as prof:
        x = torch.zeros(4 * MIB, dtype=torch.uint8, device="cuda")
        y = x + 1
        del x, y
    used = [getattr(e, "device_memory_usage", 0) for e in prof.key_averages()]
    assert max(used) >= 4 * MIB, used


def test_uncached():
    torch.cuda.caching_allocator_enable(False)
    try:
        before = stat("allocation.all.allocated")
        x = tensor(MIB)
        x.fill_(3)
        assert int(x.sum()) == 3 * MIB
        assert stat("allocation.all.allocated") <= before + 3  # of the sum: not of x
        del x
        before = stat("requested_bytes.all.allocated")
        raw = torch._C._cuda_cudaCachingAllocator_raw_alloc(MIB, 0)
        assert raw and stat("requested_bytes.all.allocated") == before
    finally:
        torch.cuda.caching_allocator_enable(True)


def test_accelerator():
    assert helper.help_is_registered() == 1
    if RELEASE < (2, 9):
        return  # torch.accelerator says nothing about memory
    x = tensor(20 * MIB)
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() >= 20 * MIB
    assert torch.accelerator.memory_reserved() == torch.cuda.memory_reserved()
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.max_memory_reserved() == torch.cuda.max_memory_reserved()
    assert torch.accelerator.memory_stats()["allocation.all.current"] == stat("allocation.all.current")
    if hasattr(torch.accelerator, "get_memory_info"):
        free, total = torch.accelerator.get_memory_info()
        assert 0 < free <= total and total == torch.cuda.mem_get_info()[1]
    del x
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated()
    torch.accelerator.reset_accumulated_memory_stats()
    assert stat("allocation.all.allocated") == 0


def ignore_old_names(test):
    """PyTorch warns of functions that it has renamed."""

    def quiet():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            test()

    quiet.source = inspect.getsource(test)
    return quiet


# Of torch.cuda.memory: those that other tests call, or that are not about this allocator's memory.
ELSEWHERE = {
    "CUDAPluggableAllocator", "change_current_allocator", "MemPool", "use_mem_pool", "caching_allocator_enable", "list_gpu_processes",
    "host_memory_stats", "host_memory_stats_as_nested_dict", "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats",
}


@ignore_old_names
def test_every_function():
    """None of torch.cuda.memory is left out; each gives a figure of ours."""
    memory, x = torch.cuda.memory, tensor(7 * MIB)
    live, held = memory.memory_allocated(), memory.memory_reserved()
    pointer = memory.caching_allocator_alloc(3 * MIB)
    assert memory.memory_allocated() == live + 3 * MIB
    memory.caching_allocator_delete(pointer)
    assert memory.max_memory_allocated() >= live + 3 * MIB
    for reset in (memory.reset_peak_memory_stats, memory.reset_max_memory_allocated, memory.reset_max_memory_cached):
        reset()
        assert memory.max_memory_allocated() == memory.memory_allocated() == live
    memory.reset_accumulated_memory_stats()
    nested = memory.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == live == memory.memory_stats()["allocated_bytes.all.current"]
    assert nested["allocation"]["all"]["allocated"] == 0
    assert memory.memory_cached() == memory.memory_reserved() >= held >= live
    assert memory.max_memory_cached() == memory.max_memory_reserved() >= memory.memory_reserved()
    memory.set_per_process_memory_fraction(0.5)
    assert memory.get_per_process_memory_fraction() == 0.5
    memory.set_per_process_memory_fraction(1.0)
    assert memory.get_allocator_backend() == "gapless" and "Allocated memory" in memory.memory_summary()
    assert sum(s["allocated_size"] for s in memory.memory_snapshot()) == live
    memory.empty_cache()
    assert memory.mem_get_info()[0] > 0
    tried = set(re.findall(r"\bmemory\.(\w+)", test_every_function.source))
    assert set(memory.__all__) - tried - ELSEWHERE == set() or RELEASE > (2, 11), set(memory.__all__) - tried - ELSEWHERE
    del x


def test_exit_with_live_tensors():
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import case, torch; case.install(); "
            "x = torch.ones(1 << 20, device='cuda'); t = {'x': x, 'me': sys.modules[__name__]}; print(int(x.sum()))")
    done = subprocess.run([sys.executable, "-c", code, os.path.dirname(os.path.abspath(__file__))], capture_output=True,
                          text=True)
    assert done.returncode == 0 and "1048576" in done.stdout, done.stderr[-2000:]


def test_sanitizer():
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import torch.cuda._sanitizer as s; s.enable_cuda_sanitizer(); "
            "import case, torch; case.install(); x = torch.ones(1 << 20, device='cuda'); y = x + 1; del x; "
            "z = torch.ones(1 << 20, device='cuda'); print(int((y + z).sum()))")
    done = subprocess.run([sys.executable, "-c", code, os.path.dirname(os.path.abspath(__file__))], capture_output=True,
                          text=True)
    assert done.returncode == 0 and "3145728" in done.stdout, done.stderr[-2000:]


def test_latency():
    """Figures, not limits: the machine may be busy."""
    for size in (512, 65536, 1 << 20, 1 << 25):
        print("pair %9d B: %.0f ns" % (size, helper.help_pair_ns(size, 200000)))
    print("churn of 2000 live blocks: %.0f ns" % helper.help_churn_ns(2000, 200000))
    for threads in (1, 4, 16):
        print("%2d threads: %.0f ns a pair" % (threads, helper.help_threads_ns(threads, 65536, 50000)))
    check_heap()


if __name__ == "__main__":
    run_group()
