"""Whole programs: one rank of torchrun, and the ways in which a program ends."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import torch
from case import install, run_group

install()
HERE = pathlib.Path(__file__).resolve().parent
START = f"import sys; sys.path.insert(0, {str(HERE)!r}); import case, os, torch; case.install()\n"


def program(code, *launcher, before="", status=0, **variables):
    """Runs `before`, START and a text of Python from a file; what it prints on both outputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.py"
        path.write_text(before + START + textwrap.dedent(code))
        done = subprocess.run([sys.executable, *launcher, str(path)], capture_output=True, text=True, timeout=150,
                              env=dict(os.environ, **variables))
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}{done.stderr[-3000:]}"
    return done.stdout, done.stderr


RANK = """
    import torch.distributed as dist
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    x = torch.full((1 << 20,), 2.0, device="cuda")
    for _ in range(10):
        dist.all_reduce(x)
        y = torch.empty_like(x)
        dist.all_gather_into_tensor(y, x)
        del y
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
    for _ in range(3):
        net(torch.randn(64, 512, device="cuda")).sum().backward()
    dist.barrier()
    assert torch.cuda.get_allocator_backend() == "gapless" and case.state() == 2
    print("sum", int(x.sum()))
    dist.destroy_process_group()
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")


def test_one_rank_of_torchrun():
    out, _ = program(RANK, *TORCHRUN)
    assert f"sum {2 << 20}" in out, out


def test_one_rank_with_the_hook_of_nccl():
    """NCCL is told of every segment, by a trace tracker of PyTorch's."""
    out, _ = program(RANK, *TORCHRUN, TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK="1")
    assert f"sum {2 << 20}" in out, out


def test_a_pool_of_ncclMemAlloc():
    """MemPool with NCCL's allocator: its memory is split, and never ours."""
    out, _ = program("""
        import torch.distributed as dist
        dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda", 0))
        try:
            allocator = backend.mem_allocator
        except RuntimeError as error:  # PyTorch's own word: multicast is off here
            print("fine without:", error)
            dist.destroy_process_group()
            raise SystemExit
        pool = torch.cuda.MemPool(allocator)
        with torch.cuda.use_mem_pool(pool):
            x, y = (torch.full((1 << 18,), 3.0, device="cuda") for _ in range(2))
        dist.all_reduce(x)
        assert len(pool.snapshot()) == 1 and int((x + y).sum()) == 6 << 18
        del x, y, pool
        dist.destroy_process_group()
        print("fine")
    """, *TORCHRUN)
    assert "fine" in out, out


def test_ends():
    """However a program ends, it does so in silence and with its own status."""
    graph = """
        x = torch.ones(1 << 20, device="cuda")
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.MemPool()
        with torch.cuda.graph(graph):
            y = x + 1
        with torch.cuda.use_mem_pool(pool):
            z = x + 2
        graph.replay()
        keep = {"all": [x, y, z, graph, pool]}
        keep["me"] = keep
    """
    thread = """
        import threading
        def work():  # no daemon: Python ends those inside torch's frames, which abort, whatever the allocator
            for _ in range(100000):
                torch.empty(1 << 22, device="cuda")
        threading.Thread(target=work).start()
    """
    late = """
        import atexit
        x = torch.ones(1 << 20, device="cuda")
        def last():
            y = x + 1
            assert int(y[0]) == 2
            del globals()["x"]
        atexit.register(last)
    """
    for code in (graph, thread, late, "x = torch.ones(9, device='cuda'); torch.cuda.empty_cache()"):
        out, said = program(code)
        assert out == "" and "gapless" not in said and "Error" not in said, (code, out, said)
    program("x = torch.ones(9, device='cuda'); sys.exit(7)", status=7)
    program("x = torch.ones(9, device='cuda'); os._exit(8)", status=8)
    program("x = torch.ones(9, device='cuda'); os.kill(os.getpid(), 15)", status=-15)


def test_children_before_cuda_starts():
    """A child that is forked before CUDA starts is free to use it; one forked later cannot, and says PyTorch's words."""
    out, _ = program("""
        def use():
            x = torch.full((1 << 20,), 3, dtype=torch.uint8, device="cuda")
            return int(x.sum()), torch.cuda.get_allocator_backend()
        def fork(work):
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if work() == (3 << 20, "gapless") else 1)
                except RuntimeError as error:
                    os._exit(5 if "forked subprocess" in str(error) else 6)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(fork(use), fork(use), use()[0] == 3 << 20, fork(use))
    """)
    assert out.split() == ["0", "0", "True", "5"], out


def test_installed_where_caching_is_off():
    """What was switched off before stays off until the program switches it on."""
    off = "import torch; torch.cuda.init(); torch.cuda.caching_allocator_enable(False)\n"
    out, _ = program("""
        x = torch.empty(1 << 20, device="cuda")
        print(torch.cuda.memory_allocated(), case.state())
        torch.cuda.caching_allocator_enable(True)
        y = torch.empty(1 << 20, device="cuda")
        print(torch.cuda.memory_allocated())
    """, before=off)
    assert out.split() == ["0", "2", str(4 << 20)], out


if __name__ == "__main__":
    run_group()
