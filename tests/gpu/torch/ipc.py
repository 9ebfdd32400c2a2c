"""Memory shared between processes."""

import os

import torch
import torch.multiprocessing as multiprocessing
from case import MIB, check_heap, install, run_group, settle, shim, tensor

install()


def looker(requests, answers):
    """Says what it sees, or what went wrong."""
    x = requests.get()
    answers.put(f"{int(x.min())} {int(x.max())}")
    del x


def consumer(requests, answers):
    """Adds one to every tensor it is sent, and says what it saw."""
    while True:
        x = requests.get()
        if x is None:
            return
        answers.put((int(x.min()), int(x.max()), x.numel()))
        x.add_(1)
        torch.cuda.synchronize()
        del x
        answers.put("done")


def keeper(requests, answers):
    """Keeps a tensor, and says what it sees of it whenever it is asked."""
    x = requests.get()
    while requests.get() == "look":
        answers.put((int(x.min()), int(x.max()), x.numel()))
    del x


class Other:
    def __init__(self, work=consumer):
        self.work = work

    def __enter__(self):
        context = multiprocessing.get_context("spawn")
        self.requests, self.answers = context.Queue(), context.Queue()
        self.process = context.Process(target=self.work, args=(self.requests, self.answers))
        self.process.start()
        return self

    def __exit__(self, *_):
        self.requests.put(None)
        self.process.join(60)
        assert self.process.exitcode == 0, self.process.exitcode

    def roundtrip(self, x, value):
        self.requests.put(x)
        seen = self.answers.get(timeout=120)
        assert seen == (value, value, x.numel()), seen
        assert self.answers.get(timeout=120) == "done"
        torch.cuda.synchronize()
        assert int(x.min()) == int(x.max()) == value + 1, (int(x.min()), int(x.max()))


def test_blocks_of_many_sizes():
    with Other() as other:
        for size in (1, 100, 700_000, 3 * MIB, 50 * MIB, 400 * MIB):
            below = tensor(MIB + 512)
            x = torch.full((size,), 10, dtype=torch.uint8, device="cuda")
            other.roundtrip(x, 10)
            other.roundtrip(x, 11)  # the same handle again
            del x, below
        view = torch.full((8 * MIB,), 3, dtype=torch.uint8, device="cuda")[3 * MIB + 7 : 5 * MIB]
        other.roundtrip(view, 3)
        check_heap()


def test_memory_comes_back():
    settle()
    before = torch.cuda.memory_reserved()
    with Other() as other:
        x = torch.full((100 * MIB,), 1, dtype=torch.uint8, device="cuda")
        other.roundtrip(x, 1)
        del x
    settle()
    torch.cuda.ipc_collect()
    settle()
    assert torch.cuda.memory_reserved() <= before + 4 * MIB, (torch.cuda.memory_reserved(), before)


def test_pages_of_others_stay():
    """Neither want of memory nor the exporter's own free moves or reuses what another process looks at."""
    total = torch.cuda.get_device_properties(0).total_memory
    size = 5 * MIB + 512

    def look():
        other.requests.put("look")
        seen = other.answers.get(timeout=120)
        assert seen == (7, 7, size), seen

    def squeeze():
        """Takes all that may be held, in other sizes than before, and writes to it."""
        settle()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 20 * MIB) / total)
        try:
            noise = []
            while len(noise) < 500:
                noise.append(torch.full((3 * MIB + 4096,), 255, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            pass
        finally:
            torch.cuda.synchronize()
            noise.clear()
            torch.cuda.set_per_process_memory_fraction(1.0)

    with Other(keeper) as other:
        around = [tensor(size) for _ in range(21)]
        x = around[10].fill_(7)
        other.requests.put(x)
        look()
        del around
        squeeze()
        look()
        del x  # PyTorch keeps the block until the other process lets it go
        squeeze()
        look()
    settle()
    torch.cuda.ipc_collect()
    check_heap()


def seen_by_another(x, way):
    """What another process sees of a tensor, with one way of sharing; or the error that it met."""
    context = multiprocessing.get_context("spawn")
    requests, answers = context.Queue(), context.Queue()
    os.environ["GAPLESS_IPC"] = way
    try:
        process = context.Process(target=looker, args=(requests, answers))
        process.start()
        requests.put(x)
        process.join(60)
        return answers.get(timeout=1) if process.exitcode == 0 else "failed"
    finally:
        del os.environ["GAPLESS_IPC"]


def test_other_ways():
    x = torch.full((3 * MIB,), 17, dtype=torch.uint8, device="cuda")
    assert seen_by_another(x, "socket") == "17 17"
    assert seen_by_another(x.clone(), "copy") == "17 17"
    pidfd = seen_by_another(x.clone(), "pidfd")  # a container may forbid it: then there is an error, not a hang
    print("pidfd_getfd:", pidfd)
    assert pidfd in ("17 17", "failed")


def test_segments():
    """Blocks of the caching strategy lie in driver allocations: torch's own kind of handle."""
    assert shim.gapless_torch_configure(b"strategy:caching_allocator") == 0
    try:
        with Other() as other:
            first = torch.full((3 * MIB,), 5, dtype=torch.uint8, device="cuda")
            second = torch.full((3 * MIB,), 6, dtype=torch.uint8, device="cuda")
            other.roundtrip(second, 6)
            other.roundtrip(first, 5)
    finally:
        assert shim.gapless_torch_configure(b"") == 0


if __name__ == "__main__":
    run_group()
