"""Tensors whose memory is host memory at device addresses (overflow:on): what is done with them elsewhere works here, or is refused in words."""

import ctypes
import os
import tempfile

import torch
import torch.multiprocessing as multiprocessing
from case import MIB, check_heap, install, library, run_group, shim, tensor

CAP = 64 * MIB
install(f"overflow:on,max_memory:{CAP},page_maker:False".encode())
library.gap_stat.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]


def out_there():
    """Bytes of live blocks in host memory."""
    found = ctypes.c_int64()
    assert library.gap_stat(shim.gapless_torch_heap(), 0, b"overflow_live_bytes", ctypes.byref(found)) == 0
    return found.value


def beyond(bytes_=96 * MIB):
    """A tensor that the cap has no room for."""
    before = out_there()
    x = tensor(bytes_)
    assert out_there() >= before + bytes_ - 2 * MIB, (before, out_there())
    return x


def test_where_they_lie():
    x, y = tensor(20 * MIB), beyond()
    assert torch.cuda.memory_allocated() >= x.numel() + y.numel()
    del x, y
    check_heap()


def test_copies():
    far, near = beyond(), tensor(32 * MIB)
    host = torch.randint(0, 255, (32 * MIB,), dtype=torch.uint8).pin_memory()
    side = torch.cuda.Stream()
    far[: 32 * MIB].copy_(host, non_blocking=True)
    near.copy_(far[: 32 * MIB])
    assert torch.equal(near.cpu(), host)
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.current_stream())
        far[32 * MIB : 64 * MIB].copy_(near)
        far[64 * MIB :].copy_(far[: 32 * MIB], non_blocking=True)
    far.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(far.view(3, -1)[1].cpu(), host) and torch.equal(far.view(3, -1)[2].cpu(), host)
    another = torch.empty_like(host).pin_memory()
    another.copy_(far[64 * MIB :], non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(another, host)


def test_kernels():
    x = beyond().view(torch.float32)
    x.normal_()
    a = x[: 1 << 20].view(1024, 1024)
    near = a.clone()
    assert torch.equal(a @ a, near @ near) and torch.equal(a.sort()[0], near.sort()[0])
    x[: 1 << 20].index_add_(0, torch.arange(1 << 20, device="cuda"), near.view(-1))  # atomics
    assert torch.equal(a, near * 2)


def test_dlpack():
    x = beyond().fill_(7)
    y = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert y.data_ptr() == x.data_ptr()
    y[5] = 9
    assert int(x[5]) == 9
    try:
        import cupy
    except ImportError:
        print("no CuPy")
        return
    z = cupy.from_dlpack(x)
    z += 1
    cupy.cuda.get_current_stream().synchronize()
    assert int(x[5]) == 10 and int(x.sum(dtype=torch.int64)) == 8 * x.numel() + 2


def test_collectives():
    """One rank: the kernels of NCCL read and write there."""
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(os.path.join(folder, "store"), 1)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
        try:
            x = beyond().view(torch.float32).fill_(3.0)
            y = torch.zeros(x.numel(), device="cuda")
            dist.all_reduce(x)
            dist.all_gather_into_tensor(y, x)
            dist.broadcast(x, 0)
            assert float(x.min()) == float(x.max()) == float(y.min()) == float(y.max()) == 3.0
        finally:
            dist.destroy_process_group()


def look(requests, answers):
    x = requests.get()
    answers.put((int(x.min()), int(x.max())))
    del x


def test_other_processes():
    """gap_export refuses it, so what is shared is a copy, as of all that cannot be exported."""
    x = beyond(80 * MIB).fill_(11)
    context = multiprocessing.get_context("spawn")
    requests, answers = context.Queue(), context.Queue()
    process = context.Process(target=look, args=(requests, answers))
    process.start()
    requests.put(x)
    assert answers.get(timeout=120) == (11, 11)
    process.join(60)
    assert process.exitcode == 0


if __name__ == "__main__":
    run_group()
