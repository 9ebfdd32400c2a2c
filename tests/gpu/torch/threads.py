"""Threads of autograd and of the program: what one allocates and another frees, and what is left when one ends."""

import concurrent.futures

import torch
from case import MIB, check_heap, install, run_group, settle, tensor

install()


class OnItsOwnStream(torch.autograd.Function):
    """Its backward allocates and computes on a stream of its own, in a thread of autograd's."""

    @staticmethod
    def forward(context, x):
        return x * 3

    @staticmethod
    def backward(context, grad):
        here, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            out = grad * 3 + torch.zeros_like(grad)
        here.wait_stream(side)
        grad.record_stream(side)
        out.record_stream(here)
        return out


def together(work, count):
    """Runs work(0) to work(count - 1) in threads of their own; their results, or the first exception."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_backward_on_other_streams():
    for step in range(20):
        x = torch.full((MIB,), float(step), device="cuda", requires_grad=True)
        y = OnItsOwnStream.apply(OnItsOwnStream.apply(x))
        y.sum().backward()
        assert float(x.grad.min()) == float(x.grad.max()) == 9.0
    check_heap()


def test_backward_in_many_threads():
    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.full((MIB // 4,), float(number), device="cuda", requires_grad=True)
            for _ in range(20):
                x.grad = None
                (OnItsOwnStream.apply(x) ** 2).sum().backward()
            stream.synchronize()
            return float((x.grad - 18.0 * number).abs().max())

    assert together(work, 6) == [0.0] * 6
    check_heap()


def test_blocks_freed_by_another_thread():
    """Allocated in one thread and freed in another, of the same stream: never handed out twice."""
    handed = []

    def make(number):
        for _ in range(200):
            handed.append((torch.full((50_000 + number,), number, dtype=torch.uint8, device="cuda"), number))

    def drop(_number):
        for _ in range(400):
            while handed and len(handed) > 20:
                x, value = handed.pop(0)
                assert int(x.min()) == int(x.max()) == value

    together(lambda number: make(number) if number < 3 else drop(number), 4)
    for x, value in handed:
        assert int(x.min()) == int(x.max()) == value
    handed.clear()


def test_memory_of_threads_that_have_ended():
    """Each on a stream of its own: what the ended ones held serves the next."""
    settle()

    def work(_number):
        with torch.cuda.stream(torch.cuda.Stream()):
            tensor(64 * MIB)

    work(0)
    settle()
    before = torch.cuda.memory_allocated()
    for _ in range(40):
        together(work, 1)
    assert torch.cuda.memory_allocated() == before
    settle()
    assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < 100 * MIB


if __name__ == "__main__":
    run_group()
