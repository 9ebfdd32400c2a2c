"""Tensors of one process in another: from each device to processes on each, closed in either order, and processes that are killed."""
import gc
import os
import signal
import time

import torch
import torch.multiprocessing as multiprocessing

from report import MIB, assert_allocator, attempt, begin, fill, holds

BYTES = (4096, 3 * MIB + 512, 200 * MIB)  # in a page with others, in two, in many
PATIENCE_S = 45


def make(device, seed):
    tensors = [torch.empty(bytes_ // 4, dtype=torch.int32, device=f"cuda:{device}") for bytes_ in BYTES]
    for tensor in tensors:
        fill(tensor, seed)
    torch.cuda.synchronize(device)
    return tensors


def hold(tensors, seed, added=0):
    return all(holds(tensor - added, seed) for tensor in tensors)


def settle():
    gc.collect()
    for device in range(2):
        torch.cuda.synchronize(device)
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()


# ---- the other process ----

class Obeying:
    """Does with the tensors that it was sent what it is told; each method is a word of the conversation."""

    def __init__(self, device):
        self.device, self.taken = device, {}

    def take(self, name, tensors):
        self.taken[name] = tensors
        return len(tensors)

    def look(self, name, seed, added):
        return hold(self.taken[name], seed, added)

    def add(self, name):
        """In place, by its owner's device."""
        for tensor in self.taken[name]:
            tensor.add_(1)
        settle()

    def add_elsewhere(self, name):
        """Copied to this process's own device, and back."""
        for tensor in self.taken[name]:
            tensor.copy_(tensor.to(f"cuda:{self.device}", copy=True).add_(1))
        settle()

    def drop(self, name):
        del self.taken[name]
        settle()

    def lend(self, name, device, seed):
        """The way back: a tensor of this process's."""
        self.taken[name] = make(device, seed)
        return self.taken[name]


def obey(pipe, device):
    begin()
    torch.cuda.set_device(device)
    torch.zeros(1, device="cuda")
    assert_allocator()
    obeying = Obeying(device)
    pipe.send((0, None, "ready"))
    while True:
        try:
            number, word, *rest = pipe.recv()
        except EOFError:
            return
        if word == "end":
            return
        try:
            pipe.send((number, None, getattr(obeying, word)(*rest)))
        except Exception as error:  # pylint: disable=broad-except
            pipe.send((number, f"{type(error).__name__}: {error}", None))


class Other:
    """A process on a device."""

    def __init__(self, device):
        context = multiprocessing.get_context("spawn")
        self.device, self.number = device, 0
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=obey, args=(theirs, device), daemon=True)
        self.process.start()
        theirs.close()

    def hear(self):
        """The answer to what was said last; one that comes too late belongs to no check."""
        begun = time.monotonic()
        while self.pipe.poll(max(0.0, PATIENCE_S - (time.monotonic() - begun))):
            number, error, answer = self.pipe.recv()
            if number == self.number:
                assert error is None, error
                return answer
        raise AssertionError(f"no answer within {PATIENCE_S} s")

    def say(self, *words):
        self.number += 1
        self.pipe.send((self.number, *words))
        return self.hear()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(PATIENCE_S)
        assert self.process.exitcode == -signal.SIGKILL, self.process.exitcode

    def end(self):
        self.pipe.send((0, "end"))
        self.process.join(PATIENCE_S)
        assert self.process.exitcode == 0, f"exit code {self.process.exitcode}"


# ---- the checks ----

def live(device):
    return torch.cuda.memory_allocated(device)


def to_and_fro(other, device):
    """Seen, written here, written there and at the other's own device; given back by the other process first."""
    where = "the same device" if device == other.device else "another device"
    with attempt(f"tensors of device {device} in a process on {where}, device {other.device}") as words:
        before = live(device)
        tensors = make(device, 5)
        other.say("take", "x", tensors)
        assert other.say("look", "x", 5, 0), "it sees other contents"
        for added, way in ((1, "add"), (2, "add_elsewhere")):
            other.say(way, "x")
            assert hold(tensors, 5, added), f"after {way} other contents are seen here"
        for tensor in tensors:
            tensor.add_(1)
        torch.cuda.synchronize(device)
        assert other.say("look", "x", 5, 3), "it does not see what is written here"
        other.say("drop", "x")
        assert hold(tensors, 5, 3)
        del tensors, tensor
        settle()
        assert live(device) == before, f"{live(device) - before} bytes are still allocated"
        words.append("read and written by both; closed there first")


def closed_here_first(other, device):
    with attempt(f"closed by the owner first, device {device} to {other.device}") as words:
        before = live(device)
        tensors = make(device, 8)
        other.say("take", "y", tensors)
        del tensors
        settle()
        noise = make(device, 9)
        assert other.say("look", "y", 8, 0), "its contents changed when the owner gave the tensor up"
        assert hold(noise, 9)
        del noise
        other.say("drop", "y")
        settle()
        assert live(device) == before, f"{live(device) - before} bytes are still allocated"
        words.append("contents stayed; the memory came back")


def killed_holder(other, witness, device):
    """The process that looks at a tensor is killed; the owner and another process go on with it."""
    with attempt(f"a process on device {other.device} killed while it holds a tensor of device {device}") as words:
        tensors = make(device, 12)
        other.say("take", "z", tensors)
        assert other.say("look", "z", 12, 0)
        other.kill()
        assert hold(tensors, 12), "the contents changed"
        witness.say("take", "z", tensors)
        witness.say("add", "z")
        assert hold(tensors, 12, 1), "another process's writing is not seen"
        witness.say("drop", "z")
        del tensors
        settle()
        rest = make(device, 13)
        assert hold(rest, 13)
        del rest
        settle()
        words.append("its owner and a third process went on")


def killed_owner(other, device):
    """The owner is killed; the memory lives as long as somebody maps it."""
    with attempt(f"the owner, on device {other.device}, killed while its tensor of device {device} is held here") as words:
        tensors = other.say("lend", "w", device, 21)
        assert hold(tensors, 21), "wrong contents before"
        other.kill()
        assert hold(tensors, 21), "the contents changed"
        tensors[0].add_(1)
        assert hold(tensors[:1], 21, 1)
        del tensors
        settle()
        rest = make(device, 22)
        assert hold(rest, 22)
        words.append("contents stayed until the last holder closed them")


def main():
    begin()
    torch.cuda.init()
    assert_allocator()
    stays = [Other(device) for device in range(2)]
    leaves = [Other(device) for device in range(2)]
    owners = [Other(device) for device in range(2)]
    with attempt("six processes start"):
        for other in stays + leaves + owners:
            assert other.hear() == "ready"
    for device in range(2):
        for other in stays:
            to_and_fro(other, device)
            closed_here_first(other, device)
    for device, other in enumerate(leaves):
        killed_holder(other, stays[1 - device], device)
    with attempt("the processes end"):
        for other in stays:
            other.end()
    for device, other in enumerate(owners):
        killed_owner(other, 1 - device)


if __name__ == "__main__":
    main()
