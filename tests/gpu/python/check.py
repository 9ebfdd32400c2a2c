#!/usr/bin/env python3
"""The Python package on a card, where its wheel is installed beside PyTorch: check.py [--example FILE] [NAME...]

Each case is a program of its own, started the way a user would start it, several at a time but for those that take times or
compile; those for CuPy and Numba are skipped where they are not installed.  --example runs a program that sets its word by os.environ after the import, unchanged.  The
last line reads "N passed, N failed".
"""

import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback

STAYS = "PyTorch's own allocator stays"
VARIABLES = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "GAPLESS_CONF",
    "GAPLESS",
    "GAPLESS_DOOR",
    "GAPLESS_CACHE",
    "GAPLESS_LIBRARY",
    "GAPLESS_COMMAND",
    "NUMBA_CUDA_MEMORY_MANAGER",
)
AT_ONCE = 6
cases, alone, example = [], [], []
cache = tempfile.TemporaryDirectory(prefix="gapless-check-")


def case(function):
    cases.append(function)
    return function


def case_alone(function):
    """It runs before all others, with nothing beside it."""
    alone.append(function)
    return function


def run(code, *, command=(sys.executable, "-c"), status=0, **variables):
    """Runs a text of Python, or with `command` anything; returns its output and its messages."""
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environ.update({"XDG_CACHE_HOME": cache.name, **variables})
    words = [*command, textwrap.dedent(code)] if code is not None else list(command)
    result = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=300, check=False)
    said = "\n".join(line for line in result.stderr.splitlines() if "Warning" not in line and not line.startswith("  "))
    if result.returncode != status:
        raise AssertionError(f"status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout, said


def need(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise Skip(f"{module} is not installed")


class Skip(Exception):
    """The case cannot run here."""


WORK = """
import gapless, torch
def work():
    torch.manual_seed(0)
    x = torch.randn(1000, 1000, device="cuda")
    return torch.matmul(x + x.t(), x).double().sum().item()
"""


# ---- how it is switched on ----


@case_alone
def first_start_compiles_the_shim_once():
    begin = time.monotonic()
    out, said = run(WORK + "work(); print(gapless.info()['open_door'])", GAPLESS="1")
    first = time.monotonic() - begin
    assert out == "a\n" and said.count("\n") == 0 and "compiling the shim" in said, (out, said)
    begin = time.monotonic()
    out, said = run(WORK + "work(); print(gapless.info()['open_door'])", GAPLESS="1")
    print(f"    first start {first:.1f} s, second {time.monotonic() - begin:.1f} s")
    assert out == "a\n" and said == ""


@case_alone
def cost_of_a_start():
    code = "import time; t = time.perf_counter(); import torch; torch.cuda.init(); print(time.perf_counter() - t)"
    native = sorted(float(run(code, GAPLESS="0")[0]) for _ in range(5))[2]
    ours = sorted(float(run(code, GAPLESS="1")[0]) for _ in range(5))[2]
    print(f"    import and start of CUDA: native {native:.2f} s, gapless {ours:.2f} s")
    assert ours < native + 0.5


@case
def one_variable():
    string = "backend:gapless,max_memory:50%,pinned_num_register_threads:4"
    code = (
        WORK
        + """
result = work()
stats = torch.cuda.memory_stats()
settings = torch.cuda.memory._snapshot()["allocator_settings"]
threads = settings["pinned_num_register_threads"]
print(torch.cuda.get_allocator_backend(), len(stats), settings["PYTORCH_CUDA_ALLOC_CONF"], threads)
total = torch.cuda.get_device_properties(0).total_memory
cap = gapless._torch.state.door.heap().usage().cap_bytes
assert abs(cap - total / 2) < total / 50, (cap, total)
torch.empty(1 << 20, pin_memory=True)
"""
    )
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        out, said = run(code, **{variable: string})
        assert out == f"gapless 122 {string} 4\n" and said == "", (out, said)


@case
def each_word_of_the_article():
    for word in (
        "caching_allocator",
        "pooled",
        "heuristic",
        "gapless",
        "heuristic:1,nmalloc:3",
        "caching_allocator:1,pooled:1",
    ):
        out, said = run(WORK + "work(); print(gapless.is_enabled())", PYTORCH_CUDA_ALLOC_CONF=word)
        assert out == "True\n" and STAYS not in said, (word, out, said)


@case
def the_word_after_the_import():
    code = """
        import os, torch
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "caching_allocator"
        x = torch.randn(500, 500).cuda()
        y = x @ x.t()
        assert torch.cuda.memory_allocated() > 0 and torch.cuda.get_allocator_backend() == "gapless"
        import gapless
        print(gapless._torch.state.door.heap().conf_value("strategy"))
        del x, y
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ""
        print(gapless._torch.state.door.heap().conf_value("strategy"), torch.ones(3, device="cuda").sum().item())
    """
    out, said = run(code)
    assert out == "caching_allocator\ngapless 3.0\n" and said == "", (out, said)


@case
def a_popular_example_unchanged():
    if not example:
        raise Skip("--example names no program")
    out, said = run(None, command=(sys.executable, example[0]))
    assert said == "", (out, said)
    run(None, command=(sys.executable, example[0]), GAPLESS="0", status=1)  # a stock PyTorch refuses it


@case
def launcher():
    gapless = [sys.executable, "-m", "gapless", "run"]
    out, _ = run(WORK + "work(); print(gapless.is_enabled())", command=(*gapless, "-c"))
    assert out == "True\n"
    out, _ = run(
        WORK + "work(); print(gapless._torch.state.door.heap().conf_value('max_memory'))",
        command=(*gapless, "--conf", "max_memory:20G", sys.executable, "-c"),
    )
    assert out == "20 GiB\n"


@case
def each_first_word_to_cuda():
    """Whatever a program asks of CUDA first, gapless is there by then, and the answer is the one that PyTorch gives."""
    block = "x = torch.empty(1 << 20, dtype=torch.uint8, device='cuda')"
    for first, wanted in (
        (f"p = torch.cuda.MemPool()\nwith torch.cuda.use_mem_pool(p):\n    {block}\nprint(p.use_count())", "1"),
        ("torch.cuda.memory._record_memory_history()", "True"),
        ("torch.cuda.set_per_process_memory_fraction(0.5)\nprint(torch.cuda.get_per_process_memory_fraction())", "0.5"),
        ("torch._C._cuda_attach_out_of_memory_observer(lambda *_: print('told'))", "told"),
        ("print(len(torch.cuda.memory_snapshot()))", "0"),
        ("print(torch.accelerator.memory_allocated())", "0"),
    ):
        code = f"import torch\n{first}\n{block}\n"
        if wanted == "True":
            code += "print(len(torch.cuda.memory._snapshot()['device_traces'][0]) > 0)\n"
        if wanted == "told":
            code += "try:\n    torch.empty(1 << 50, device='cuda')\nexcept torch.OutOfMemoryError:\n    pass\n"
        code += "print(torch.cuda.get_allocator_backend())"
        out, said = run(code, GAPLESS="1")
        assert out == f"{wanted}\ngapless\n" and said == "", (first, out, said)


@case
def switched_off_is_native():
    out, said = run(WORK + "work(); print(torch.cuda.get_allocator_backend())", GAPLESS="0")
    assert out == "native\n" and said == ""
    out, said = run(WORK + "work(); print(torch.cuda.get_allocator_backend())")
    assert out == "native\n" and said == ""


@case
def torchs_own_settings_reach_torch():
    """Without a word of ours, os.environ after the import works as it always did."""
    code = """
        import os, torch
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:64"
        torch.ones(1, device="cuda")
        print(torch.cuda.get_allocator_backend(), torch.cuda.memory._snapshot()["allocator_settings"]["max_split_size"])
    """
    assert run(code)[0] == f"native {64 << 20}\n"


@case
def enable_and_disable():
    code = (
        WORK
        + """
assert gapless.enable() and not torch.cuda.is_initialized()
first = work()
x = torch.full((1 << 20,), 7.0, device="cuda")
assert gapless.is_enabled() and gapless.disable() and not gapless.is_enabled()
ours = gapless.stats()["allocated_bytes.all.current"]
y = torch.full((1 << 20,), 8.0, device="cuda")
assert gapless.stats()["allocated_bytes.all.current"] == ours
assert (x.sum() + y.sum()).item() == 15.0 * (1 << 20)
z = x.clone(); del x
assert gapless.enable() and gapless.is_enabled()
assert work() == first and z[5].item() == 7.0
del y, z
torch.cuda.synchronize(); torch.cuda.empty_cache()
print("fine")
"""
    )
    out, said = run(code)
    assert out == "fine\n" and said == "", (out, said)


@case
def enable_comes_too_late():
    code = """
        import torch
        torch.ones(1, device="cuda")
        import gapless
        print(gapless.enable(), torch.ones(2, device="cuda").sum().item())
    """
    out, said = run(code)
    assert out == "False 2.0\n" and "too late" in said and said.count("\n") == 0


@case
def the_programs_own_allocator_wins():
    code = """
        import torch, gapless
        from gapless import _library
        a = torch.cuda.memory.CUDAPluggableAllocator(_library.path(), "gap_torch_alloc", "gap_torch_free")
        torch.cuda.memory.change_current_allocator(a)
        print(torch.ones(4, device="cuda").sum().item(), torch.cuda.get_allocator_backend(), gapless.is_enabled())
    """
    out, said = run(code, GAPLESS="1")
    assert out == "4.0 pluggable False\n" and "chose the allocator 'pluggable' itself" in said, (out, said)


@case
def setters():
    code = (
        WORK
        + """
work()
heap = gapless._torch.state.door.heap()
torch.cuda.memory._set_allocator_settings("max_memory:20G,expandable_segments:True")
print(heap.conf_value("max_memory"), torch.cuda.memory._snapshot()["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"])
try:
    torch.cuda.memory._set_allocator_settings("max_memory:plenty")
except ValueError as error:
    print("refused", "plenty" in str(error))
gapless.configure("")
print(heap.conf_value("max_memory"), work() != 0)
"""
    )
    out, _ = run(code, GAPLESS="1")
    assert out.splitlines() == ["20 GiB max_memory:20G,expandable_segments:True", "refused True", "not set True"], out


@case
def os_environ_while_cuda_runs():
    code = (
        WORK
        + """
import os
work()
heap = gapless._torch.state.door.heap()
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "gapless,max_memory:10G"
print(heap.conf_value("max_memory"))
os.environ["GAPLESS_CONF"] = "max_memory:8G"
print(heap.conf_value("max_memory"), work() != 0)
"""
    )
    assert run(code, GAPLESS="1")[0].splitlines() == ["10 GiB", "8 GiB True"]


@case
def info():
    out, _ = run(None, command=(sys.executable, "-m", "gapless", "info"), GAPLESS_CONF="max_memory:90%")
    assert "door: a" in out and "max_memory = 90% (from GAPLESS_CONF)" in out, out


# ---- what it offers ----


@case
def same_results_as_native():
    out = [run(WORK + "print(work())", GAPLESS=switch)[0] for switch in ("0", "1")]
    assert out[0] == out[1] and out[0]


@case
def out_of_memory_is_explained():
    code = (
        WORK
        + """
keep = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    text = str(error)
print("Tried to allocate" in text, len(gapless.explain()) > 40, gapless.stats()["num_ooms"])
print(gapless.explain())
assert "live" in gapless.memory_summary()
"""
    )
    out, _ = run(code, GAPLESS="1", GAPLESS_CONF="max_memory:4G")
    assert out.startswith("True True 1\n"), out
    print(textwrap.indent("".join(out.splitlines(True)[1:3]), "    "), end="")


@case
def pools():
    code = (
        WORK
        + """
pool = gapless.pool(tag="kv cache")
with pool:
    x = torch.full((64 << 20,), 3, dtype=torch.uint8, device="cuda")
block = gapless._torch.state.door.heap().find(x.data_ptr())[1]
assert block.pool == pool.id, (block, pool.id)
assert "kv cache" in gapless.memory_summary(), gapless.memory_summary()
with gapless.pool(contiguous=True) as flat:
    y = torch.full((64 << 20,), 4, dtype=torch.uint8, device="cuda")
block = gapless._torch.state.door.heap().find(y.data_ptr())[1]
assert block.pool == flat.id and block.segment_bytes >= 64 << 20
from ctypes import CDLL, byref, c_char, c_uint64
handle = (c_char * 64)()
assert CDLL("libcuda.so.1").cuIpcGetMemHandle(handle, c_uint64(y.data_ptr())) == 0
assert x.sum().item() == 3 * (64 << 20) and y.sum().item() == 4 * (64 << 20)
del x, y, pool, flat
print("fine")
"""
    )
    out, said = run(code, GAPLESS="1")
    assert out == "fine\n", (out, said)


@case
def workers_and_exit():
    code = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        def main():
            data = TensorDataset(torch.arange(64.0))
            total = torch.zeros((), device="cuda")
            for method in ("fork", "spawn"):
                for (batch,) in DataLoader(data, 8, num_workers=2, pin_memory=True, multiprocessing_context=method):
                    total += batch.cuda(non_blocking=True).sum()
            print(total.item(), torch.cuda.get_allocator_backend())
            global live
            live = torch.ones(1 << 24, device="cuda")
        if __name__ == "__main__":
            main()
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.py"
        path.write_text(textwrap.dedent(code))
        out, said = run(None, command=(sys.executable, str(path)), GAPLESS="1")
    assert out == "4032.0 gapless\n" and said == "", (out, said)


@case
def one_rank_of_torchrun():
    code = """
        import torch, torch.distributed as dist
        dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
        x = torch.full((1 << 20,), 5.0, device="cuda")
        dist.all_reduce(x)
        import gapless
        print(int(x.sum()) == 5 << 20, torch.cuda.get_allocator_backend(), gapless.info()["open_door"])
        dist.destroy_process_group()
    """
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.py"
        path.write_text(textwrap.dedent(code))
        out, _ = run(None, command=(sys.executable, "-m", "gapless", "run", sys.executable, *torchrun, str(path)))
    assert out == "True gapless a\n", out


@case
def a_fork_before_cuda_starts():
    code = (
        WORK
        + """
import os
child = os.fork()
found = work() != 0, torch.cuda.get_allocator_backend(), gapless.info()["open_door"]
if child == 0:
    os._exit(3 if found == (True, "gapless", "a") else 4)
print(*found, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    out, _ = run(code, GAPLESS="1")
    assert out == "True gapless a 3\n", out


@case
def identical_bits():
    """A few steps of training with deterministic algorithms: every bit of the parameters as natively."""
    code = """
        import hashlib, torch
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        torch.manual_seed(3)
        n = torch.nn
        net = n.Sequential(n.Conv2d(3, 8, 3), n.BatchNorm2d(8), n.ReLU(), n.Flatten(), n.Linear(8 * 30 * 30, 10)).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        for step in range(8):
            x = torch.randn(16 + step, 3, 32, 32, device="cuda")
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        flat = torch.cat([p.detach().flatten() for p in net.parameters()]).cpu()
        print(hashlib.sha256(flat.numpy().tobytes()).hexdigest())
    """
    variables = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    native = [run(code, GAPLESS="0", **variables)[0] for _ in range(2)]
    if native[0] != native[1]:
        raise Skip("two native runs differ")
    assert run(code, GAPLESS="1", **variables)[0] == native[0]


@case
def snapshots_are_read_by_all():
    """What is dumped opens in PyTorch's viewer and in gapless' own reader."""
    code = (
        WORK
        + """
import sys
torch.cuda.memory._record_memory_history(max_entries=10000)  # the program's first word to CUDA
keep = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (1, 30, 5)]
work()
torch.cuda.memory._dump_snapshot(sys.argv[1])
from torch.cuda import _memory_viz
import pickle
snapshot = pickle.load(open(sys.argv[1], "rb"))
for page in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
    assert "viz" in page.lower() and len(page) > 1000
assert "MiB" in _memory_viz.segsum(snapshot) and "alloc" in _memory_viz.trace(snapshot)
"""
    )
    with tempfile.TemporaryDirectory() as folder:
        program, path = pathlib.Path(folder) / "program.py", pathlib.Path(folder) / "snapshot.pickle"
        program.write_text(textwrap.dedent(code))
        run(None, command=(sys.executable, str(program), str(path)), GAPLESS="1")
        out, _ = run(None, command=(sys.executable, "-m", "gapless", "explain", str(path)))
        assert "Is the file complete? Yes" in out, out
        out, _ = run(None, command=(sys.executable, "-m", "gapless", "replay", str(path), "--policy", "gapless"))
        assert "gapless" in out, out


@case
def a_heap_by_hand():
    code = """
        import gapless
        with gapless.Heap("cuda", environment=False) as heap:
            blocks = [heap.alloc(n << 20) for n in (1, 3, 20, 300)]
            usage = heap.usage()
            assert usage.live_bytes == 324 << 20 and usage.held_bytes >= usage.live_bytes
            for block in blocks:
                heap.free(block)
            heap.check()
            assert heap.trim() >= 320 << 20
        print("fine")
    """
    assert run(code)[0] == "fine\n"


# ---- door (b) ----


@case
def door_b_works():
    code = (
        WORK
        + """
first = work()
x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    y = x * 2
x.record_stream(side)
del x
torch.cuda.synchronize()
assert y[100].item() == 200
heap = gapless.default_heap()
held = heap.usage().held_bytes
z = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"); del z
torch.cuda.empty_cache()
assert heap.usage().held_bytes < held + (1 << 30)
torch.cuda.set_per_process_memory_fraction(0.25)
assert 0 < heap.usage().cap_bytes < heap.usage().card_total_bytes / 3
assert work() == first
print(torch.cuda.get_allocator_backend(), gapless.is_enabled(), gapless.stats()["allocated_bytes.all.current"] > 0)
"""
    )
    out, said = run(code, GAPLESS="1", GAPLESS_DOOR="b")
    assert out == "pluggable True True\n", (out, said)


@case
def door_b_says_what_is_lost():
    out, said = run(
        WORK + "work(); print(gapless.is_enabled())",
        GAPLESS="1",
        CXX="/nowhere/c++",
        XDG_CACHE_HOME=cache.name + "/none",
    )
    assert (
        out == "True\n"
        and "no C++ compiler is found" in said
        and "without memory statistics" in said
        and said.count("\n") == 0
    )


@case
def door_b_out_of_memory():
    code = (
        WORK
        + """
for _ in range(3):
    try:
        torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:
        print("out of memory" in str(error), "8192.00 MiB" in str(error))
assert work() != 0
"""
    )
    out, _ = run(code, GAPLESS="1", GAPLESS_DOOR="b", GAPLESS_CONF="max_memory:4G")
    assert out == "True True\n" * 3, out


@case
def door_b_graphs():
    code = """
        import gapless, torch
        x = torch.zeros(1 << 20, device="cuda")
        def step():
            t = x + 1
            u = t * 2
            del t
            return u + x
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
        outs = []
        with torch.cuda.graph(graphs[0]):
            outs.append(step())
        with torch.cuda.graph(graphs[1], pool=graphs[0].pool()):
            outs.append(step())
        heap = gapless.default_heap()
        pools = {heap.find(out.data_ptr())[1].pool for out in outs}
        assert len(pools) == 1 and pools != {(0, 0)}, pools
        noise = [torch.full((1 << 20,), 99.0, device="cuda") for _ in range(20)]
        del noise
        for value in (1.0, 5.0):
            x.fill_(value)
            for graph, out in zip(graphs, outs):
                graph.replay()
                torch.cuda.synchronize()
                assert (out == (value + 1) * 2 + value).all().item()
        del outs
        for graph in graphs:
            graph.reset()
        torch.cuda.empty_cache()
        heap.check()
        print("fine")
    """
    out, said = run(code, GAPLESS="1", GAPLESS_DOOR="b")
    assert out == "fine\n", (out, said)


@case
def door_b_threads():
    code = """
        import threading, torch
        def work(seed):
            with torch.cuda.stream(torch.cuda.Stream()):
                for step in range(200):
                    n = (seed * 7919 + step * 104729) % (4 << 20) + 1
                    assert torch.full((n,), 2, dtype=torch.uint8, device="cuda")[-1].item() == 2
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        import gapless
        gapless.default_heap().check()
        print("fine")
    """
    out, said = run(code, GAPLESS="1", GAPLESS_DOOR="b")
    assert out == "fine\n" and "Exception" not in said, (out, said)


# ---- others ----


@case
def cupy_alone():
    need("cupy")
    code = """
        import cupy, gapless, gapless.cupy
        gapless.cupy.enable()
        x = cupy.arange(1 << 20, dtype=cupy.float32)
        assert gapless.default_heap().find(x.data.ptr) is not None
        cupy.cuda.runtime.deviceSynchronize()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            y = x * 2
            stream.synchronize()
        assert float(y.sum()) == float(1 << 20) * ((1 << 20) - 1), float(y.sum())
        for n in range(1, 300):
            assert int(cupy.full(n * 1000, 3, dtype=cupy.uint8)[-1]) == 3
        live = gapless.stats()["allocated_bytes.all.current"]
        del x, y
        assert gapless.stats()["allocated_bytes.all.current"] < live
        try:
            cupy.empty(1 << 45, dtype=cupy.uint8)
        except MemoryError as error:
            print("refused", len(str(error)) > 40)
        gapless.default_heap().check()
        z = cupy.ones(10)  # alive at exit
    """
    out, said = run(code)
    assert out == "refused True\n" and said == "", (out, said)


def need_numba():
    """Numba may lag behind the NumPy that is installed."""
    need("numba", "numba.cuda")
    kernel = "from numba import cuda\n@cuda.jit\ndef nothing(): pass\nnothing[1, 1](); cuda.synchronize()"
    try:
        run(kernel)
    except AssertionError as reason:
        raise Skip(f"Numba alone fails here: {str(reason).splitlines()[-1]}") from None


@case
def numba_alone():
    need_numba()
    code = """
        import numpy as np, gapless
        from numba import cuda
        import os
        if "NUMBA_CUDA_MEMORY_MANAGER" not in os.environ:
            import gapless.numba
            gapless.numba.enable()
        @cuda.jit
        def add(x, y):
            i = cuda.grid(1)
            if i < x.size:
                x[i] += y[i]
        for stream in (0, cuda.stream()):
            for n in (1, 1000, 1 << 20):
                x = cuda.to_device(np.arange(n, dtype=np.float32), stream=stream)
                y = cuda.to_device(np.ones(n, dtype=np.float32), stream=stream)
                add[(n + 255) // 256, 256, stream](x, y)
                del y
                back = x.copy_to_host(stream=stream)
                cuda.synchronize()
                assert back[-1] == n, (back[-1], n)
        heap = gapless.default_heap()
        assert heap.find(int(x.device_ctypes_pointer.value)) is not None
        free, total = cuda.current_context().get_memory_info()
        assert 0 < free <= total
        del x
        cuda.synchronize()
        heap.check()
        print("fine")
    """
    for variables in ({}, {"NUMBA_CUDA_MEMORY_MANAGER": "gapless.numba"}):
        out, said = run(code, **variables)
        assert out == "fine\n", (out, said)


@case
def three_share_one_heap():
    need("cupy", "numba.cuda")
    code = """
        import cupy, gapless, gapless.cupy, gapless.numba, torch
        import numpy as np
        from numba import cuda
        gapless.enable()
        gapless.cupy.enable()
        gapless.numba.enable()
        a = torch.full((1 << 20,), 1.0, device="cuda")
        b = cupy.full(1 << 20, 2.0, dtype=cupy.float32)
        c = cuda.to_device(np.full(1 << 20, 3.0, dtype=np.float32))
        heap = gapless.default_heap()
        found = [heap.find(int(p)) for p in (a.data_ptr(), b.data.ptr, c.device_ctypes_pointer.value)]
        assert all(found), found
        total = a + torch.as_tensor(b, device="cuda") + torch.as_tensor(c, device="cuda")
        assert total.sum().item() == 6.0 * (1 << 20)
        del total
        big = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
        del big
        torch.cuda.synchronize()
        x = cupy.empty(7 << 30, dtype=cupy.uint8)  # from the idle memory of the tensor: both do not fit under the cap
        x[:] = 5
        assert int(x[-1]) == 5
        del x
        cupy.cuda.runtime.deviceSynchronize()
        y = cuda.device_array(6 << 30, dtype=np.uint8)  # and Numba's from CuPy's
        del y
        heap.check()
        print(heap.usage().peak_held_bytes <= 10 << 30, gapless.is_enabled())
    """
    out, said = run(code, GAPLESS_CONF="max_memory:10G")
    assert out == "True True\n", (out, said)


def try_case(function):
    """(outcome, what to print)."""
    try:
        function()
    except Skip as reason:
        return "skipped", f"skip {function.__name__}: {reason}"
    except Exception:  # pylint: disable=broad-except
        return "failed", f"FAIL {function.__name__}\n{textwrap.indent(traceback.format_exc(), '    ')}"
    return "passed", f"ok   {function.__name__}"


def results(names):
    """As they come."""
    first, rest = ([one for one in group if not names or one.__name__ in names] for group in (alone, cases))
    yield from map(try_case, first)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(try_case, function) for function in rest]
        yield from (one.result() for one in concurrent.futures.as_completed(running))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--example", help="a program to run unchanged")
    parser.add_argument("names", nargs="*", help="cases to run (all)")
    arguments = parser.parse_args()
    example.extend([arguments.example] if arguments.example else [])
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for outcome, text in results(arguments.names):
        count[outcome] += 1
        print(text, flush=True)
    print(f"{count['passed']} passed, {count['failed']} failed" + (f", {count['skipped']} skipped" if count["skipped"] else ""))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
