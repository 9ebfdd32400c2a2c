"""What the programs of this folder share: how they tell run.py what they found, and how they begin.

A line of JSON is appended to the file TWO_REPORT for each check; a program that hangs says where, and ends by itself (TWO_SECONDS).
TWO_DRY=1 runs what needs no card on the CPU: process start, FSDP, commands, figures.
"""
import contextlib
import faulthandler
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist

DRY = os.environ.get("TWO_DRY") == "1"
MIB = 1 << 20


def tell(**line):
    """One write to a file opened for appending: lines of several processes do not mix."""
    with open(os.environ["TWO_REPORT"], "ab", buffering=0) as file:
        file.write((json.dumps(line) + "\n").encode())


def check(name, ok, words="", **figures):
    tell(check=name, ok=bool(ok), words=str(words), figures=figures)
    return ok


@contextlib.contextmanager
def attempt(name):
    """A check that fails with the exception that leaves it, and passes with the words that are put into the list."""
    words = []
    try:
        yield words
    except Exception as error:  # pylint: disable=broad-except
        traceback.print_exc()
        check(name, False, f"{type(error).__name__}: {error}".splitlines()[0])
    else:
        check(name, True, "; ".join(words))


def begin():
    """Says who is running, so that nothing is left behind; errors go to a file of its own, and the alarm is set."""
    tell(pid=os.getpid())
    name = os.environ.get("LOCAL_RANK", os.getpid())
    with open(f"{os.environ['TWO_LOG']}.{name}", "ab", buffering=0) as file:
        os.dup2(file.fileno(), 2)
    faulthandler.dump_traceback_later(float(os.environ["TWO_SECONDS"]), exit=True, file=sys.stderr)


def wants_gapless():
    return os.environ.get("GAPLESS") == "1" and not DRY


def assert_allocator():
    backend = torch.cuda.get_allocator_backend()
    assert (backend == "gapless") == wants_gapless(), f"PyTorch's allocator is '{backend}'"


def begin_rank():
    """One rank of torchrun: its device, with the process group made."""
    begin()
    rank = int(os.environ["LOCAL_RANK"])
    if DRY:
        dist.init_process_group("gloo")
        return rank, torch.device("cpu")
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    assert_allocator()
    return rank, device


def end_rank():
    dist.barrier()
    dist.destroy_process_group()


def of_all_ranks(device, *numbers):
    """A list for each rank of its numbers."""
    mine = torch.tensor(numbers, dtype=torch.float64, device=device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return [one.tolist() for one in every]


def pattern(bytes_, seed, device, first=0):
    """Words that differ from place to place and from seed to seed, the same on every device; `first` words are left out."""
    words = torch.arange(first, first + bytes_ // 4, dtype=torch.int32, device=device)
    return words.mul_(2654435).add_(seed * 7919)


SLICE = 4 * MIB  # words that are made or compared at a time: little memory is left beside a measurement


def slices(words):
    return [(first, min(SLICE, words - first)) for first in range(0, words, SLICE)]


def fill(tensor, seed):
    """Writes a pattern into a tensor of words."""
    for first, count in slices(tensor.numel()):
        tensor[first:first + count].copy_(pattern(4 * count, seed, tensor.device, first))


def holds(tensor, seed, offset=0):
    """Whether a tensor of words is the pattern, from its word `offset` on."""
    return all(torch.equal(tensor[first:first + count], pattern(4 * count, seed, tensor.device, offset + first))
               for first, count in slices(tensor.numel()))


def own_figures(device):
    import gapless

    return gapless.stats(device)


@contextlib.contextmanager
def memory_of(kind):
    """New tensors inside come from gapless, or by PyTorch's own allocator from cudaMalloc."""
    import gapless

    if kind == "cudaMalloc":
        assert gapless.disable() and not gapless.is_enabled(), "gapless did not step aside"
    try:
        yield
    finally:
        if kind == "cudaMalloc":
            assert gapless.enable() and gapless.is_enabled(), "gapless did not come back"


KINDS = ("gapless", "cudaMalloc")
