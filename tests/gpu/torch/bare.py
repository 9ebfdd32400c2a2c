"""Only without a card, where device addresses are host memory: how shared memory travels, threads beside a history, fork."""

import ctypes
import os
import threading

import torch
import torch.multiprocessing as multiprocessing
from case import MIB, check_heap, install, run_group, state, tensor

install()


def fill(x, value):
    ctypes.memset(x.data_ptr(), value, x.numel())
    return x


def bytes_of(x):
    return ctypes.string_at(x.data_ptr(), x.numel())


def looker(requests, answers):
    for x in iter(requests.get, None):
        seen = bytes_of(x)
        answers.put((len(seen), seen[0], seen.count(seen[0])))
        del x


class Other:
    def __init__(self, way=""):
        context = multiprocessing.get_context("spawn")
        self.requests, self.answers = context.Queue(), context.Queue()
        os.environ["GAPLESS_IPC"] = way
        self.process = context.Process(target=looker, args=(self.requests, self.answers))
        self.process.start()

    def seen(self, x):
        self.requests.put(x)
        return self.answers.get(timeout=60)

    def end(self):
        self.requests.put(None)
        self.process.join(60)
        del os.environ["GAPLESS_IPC"]
        return self.process.exitcode


def share(way, sizes):
    other = Other(way)
    for value, size in enumerate(sizes, 1):
        below = tensor(700)  # so that the block does not begin with its page
        x = fill(tensor(size), value)
        assert other.seen(x) == (size, value, size), (way, size)
        view = x[size // 3 :]
        assert other.seen(view) == (view.numel(), value, view.numel()), (way, size)
        del x, view, below
    assert other.end() == 0
    check_heap()


def test_by_socket():
    share("socket", (1, 5000, 3 * MIB, 300 * MIB))  # more pieces than one message takes


def test_by_pidfd():
    share("pidfd", (1, 5000, 3 * MIB, 100 * MIB))


def test_by_whatever_works():
    share("", (1000, 3 * MIB))


def test_descriptors_are_closed():
    before = len(os.listdir("/proc/self/fd"))
    share("socket", (2 * MIB, 20 * MIB))
    torch.cuda.ipc_collect()
    open_now = len(os.listdir("/proc/self/fd"))
    assert open_now <= before + 8, (before, open_now)  # pipes of the queues, the listening socket


def test_threads_beside_a_history():
    torch.cuda.memory._record_memory_history(max_entries=5000, stacks="python")

    def work(seed):
        live = []
        for step in range(1500):
            live.append(tensor(500 + (seed * 7919 + step * 104729) % 300000))
            if len(live) > 20:
                del live[(seed + step) % 20]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    threads.append(threading.Thread(target=lambda: [torch.cuda.memory._snapshot() for _ in range(15)]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(torch.cuda.memory._snapshot()["device_traces"][0]) == 5000
    torch.cuda.memory._record_memory_history(enabled=None)


def test_a_fork_can_only_free():
    x = tensor(3 * MIB)
    child = os.fork()
    if child == 0:
        del x
        refused = False
        try:
            torch.cuda.caching_allocator_alloc(1000)
        except RuntimeError:
            refused = True
        os._exit(7 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert state() == 2


if __name__ == "__main__":
    run_group()
