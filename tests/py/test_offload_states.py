"""States of optimizers that leave the device and come back, on the processor: results are the same, bit for bit."""

import copy
import ctypes
import gc
import glob
import os
import pickle
import random

import pytest

torch = pytest.importorskip("torch")

import gapless  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)
MIB = 1 << 20
CPU = torch.device("cpu")


def host_heap(tiers, bytes_of_device=256 * MIB):
    return gapless.Heap("host", device_bytes=bytes_of_device, conf=f"tiers:{tiers}", environment=False, threads=False)


@pytest.fixture
def heap():
    with host_heap("host=256M") as made:
        yield made
        gc.collect()
        assert made.tiers()["host_used_bytes"] == 0
        made.check(0)


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "one by one": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False, amsgrad=True),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
    "groups": lambda p: torch.optim.AdamW(
        [{"params": list(p)[:5], "lr": 1e-2}, {"params": [], "lr": 1}, {"params": [torch.nn.Parameter(torch.ones(3))]}]
    ),
}


def optimize(make, heap, between=None, **options):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(128, 128) for _ in range(5)))
    optimizer, calls = make(net.parameters()), []
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    states = gapless.offload_optimizer(optimizer, least=1024, heap=heap, **options) if heap else None
    for step in range(5):
        net(torch.randn(16, 128)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if between:
            between(step, optimizer, states)
    assert len(calls) == 5
    kept = copy.deepcopy(optimizer.state_dict()["state"])
    if states:
        states.close()
        states.close()
        net(torch.randn(16, 128)).square().mean().backward()
        optimizer.step()
        assert len(calls) == 6
    else:
        net(torch.randn(16, 128)).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in net.parameters()], kept


def same_states(a, b):
    found = [torch.equal(v, b[k][n]) for k, s in a.items() for n, v in s.items() if isinstance(v, torch.Tensor)]
    return found and all(found)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("window", (1, 200_000, 1 << 30))
def test_optimizers(heap, name, window, recwarn):
    params, states = optimize(OPTIMIZERS[name], None)
    away = []
    ours, our_states = optimize(
        OPTIMIZERS[name], heap, lambda step, optimizer, states: away.append(states.stats()["away_bytes"]), window=window
    )
    assert all(torch.equal(a, b) for a, b in zip(params, ours)) and same_states(states, our_states)
    assert min(away) == max(away) >= 128 * 128 * 4
    assert not [w for w in recwarn if "overridden" in str(w.message)]


def test_states_that_are_saved_and_loaded(heap):
    def between(step, optimizer, states):
        if step == 2:
            saved = copy.deepcopy(optimizer.state_dict())
            if states:
                assert states.stats()["away_bytes"] == 0
            optimizer.load_state_dict(saved)

    a, b = optimize(OPTIMIZERS["adamw"], None, between), optimize(OPTIMIZERS["adamw"], heap, between)
    assert all(torch.equal(x, y) for x, y in zip(a[0], b[0])) and same_states(a[1], b[1])


def test_loaded_while_they_are_away(heap):
    def between(step, optimizer, states):
        if step == 1:
            between.saved = copy.deepcopy(optimizer.state_dict())
        if step == 3:
            optimizer.load_state_dict(between.saved)

    a, b = optimize(OPTIMIZERS["adamw"], None, between), optimize(OPTIMIZERS["adamw"], heap, between)
    assert all(torch.equal(x, y) for x, y in zip(a[0], b[0])) and same_states(a[1], b[1])


def test_memory_between_steps_is_given_back(heap):
    parameter = nn.Parameter(torch.ones(1024, 256))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    states = gapless.offload_optimizer(optimizer, heap=heap)  # of states that are there
    average = optimizer.state[parameter]["exp_avg"]
    assert average.untyped_storage().nbytes() == 0 and states.stats()["away_bytes"] == 2 * parameter.nbytes
    with pytest.raises(ValueError, match="already"):
        gapless.offload_optimizer(optimizer, heap=heap)
    states.bring_back()
    assert average is optimizer.state[parameter]["exp_avg"] and torch.allclose(average, torch.full_like(average, 0.1))
    states.close()


def test_no_room_for_states(capfd):
    with host_heap("host=2M", 64 * MIB) as small:
        a, b = optimize(OPTIMIZERS["adamw"], None), optimize(OPTIMIZERS["adamw"], small, window=1)
        assert all(torch.equal(x, y) for x, y in zip(a[0], b[0])) and same_states(a[1], b[1])
        assert capfd.readouterr().err.count("what finds no room stays on the device") == 1


def offloaded(heap):
    """An optimizer after one step, its states away."""
    parameter = nn.Parameter(torch.ones(256, 1024))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones_like(parameter)
    states = gapless.offload_optimizer(optimizer, heap=heap)
    optimizer.step()
    assert states.stats()["away_tensors"] == 2
    return optimizer


def test_items_go_with_the_optimizer(heap):
    before = heap.tiers()["host_used_bytes"]
    for _ in range(3):
        optimizer = offloaded(heap)
        del optimizer
        gc.collect()
        assert heap.tiers()["host_used_bytes"] == before


@pytest.mark.parametrize("make", (copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))))
def test_copies_of_an_optimizer_have_its_states(heap, make):
    optimizer = offloaded(heap)
    made = make(optimizer)
    for state in made.state.values():
        assert torch.allclose(state["exp_avg"], torch.full((256, 1024), 0.1))
    made.param_groups[0]["params"][0].grad = torch.ones(256, 1024)
    made.step()
    optimizer.step()
    optimizer._gapless_states.close()
    assert same_states(optimizer.state_dict()["state"], made.state_dict()["state"])
    assert "__getstate__" not in vars(optimizer)


def test_closures_and_refusals(heap):
    parameter = nn.Parameter(torch.ones(64, 64))
    optimizer = torch.optim.Adam([parameter])
    states = gapless.offload_optimizer(optimizer, least=1024, heap=heap)

    def closure():
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4096
    assert states.stats()["away_bytes"] == 2 * parameter.nbytes
    states.close()
    with pytest.raises(TypeError, match="LBFGS"):
        gapless.offload_optimizer(torch.optim.LBFGS([parameter]))
    with pytest.raises(TypeError, match="Linear is no torch.optim.Optimizer"):
        gapless.offload_optimizer(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="window"):
        gapless.offload_optimizer(optimizer, window="1G")


# ---- by parts, on a made-up card ----


class Card:
    """Stands for a card: three streams (work, out, in) and when each has done what it was given; calls, counted.  Bytes move in join() and not
    before, out of and into memory that must be as it was when the copy was asked for."""

    has_disk, rate = False, 1000.0  # bytes a unit of time, each way

    def __init__(self):
        self.now = self.out = self.back = 0.0
        self.items, self.next, self.calls, self.wrong = {}, 1, 0, []

    def stream(self):
        return None

    def put_all(self, storages, stream):
        self.calls += 1
        self.out = max(self.out, self.now) + sum(s.nbytes() for s in storages) / self.rate
        item, self.next = self.next, self.next + 1
        self.items[item] = {"from": [(s, s.nbytes()) for s in storages], "to": [], "end": self.out}
        return item

    def get_all(self, item, start, storages, stream):
        self.calls += 1
        kept = self.items[item]
        self.back = max(self.back, self.now, kept["end"]) + sum(s.nbytes() for s in storages) / self.rate
        kept["end"] = self.back
        for storage in storages:
            ctypes.memset(storage.data_ptr(), 0xFE, storage.nbytes())
            kept["to"].append((start, storage, storage.nbytes()))
            start += storage.nbytes()

    def join(self, item, stream):
        self.calls += 1
        kept = self.items[item]
        self.now = max(self.now, kept["end"])
        if "from" in kept:
            kept["bytes"] = b"".join(self.of(storage, size) for storage, size in kept.pop("from"))
        for start, storage, size in kept["to"]:
            self.of(storage, size)
            ctypes.memmove(storage.data_ptr(), kept["bytes"][start : start + size], size)
        kept["to"] = []

    def of(self, storage, size):
        if storage.nbytes() == size:
            return ctypes.string_at(storage.data_ptr(), size)
        self.wrong.append("memory was given away before it was copied")
        return bytes(size)

    def used_on(self, tensor, stream):
        pass

    def drop(self, item):
        self.calls += 1
        kept = self.items.pop(item)
        if "from" in kept or kept["to"]:
            self.wrong.append("dropped before it was joined")


class Momentum(torch.optim.SGD):
    """Takes time on a card, and notes how many bytes of states are there."""

    def __init__(self, params, card, speed=1e9):
        super().__init__(params, 0.1, momentum=0.9)
        self.card, self.speed, self.most = card, speed, 0

    def step(self, closure=None):
        self.card.now += sum(p.nbytes for g in self.param_groups for p in g["params"] if p.grad is not None) / self.speed
        super().step()
        there = sum(v.untyped_storage().nbytes() for s in self.state.values() for v in s.values())
        self.most = max(self.most, there)


def on_card(sizes, window, speed=1e9):
    torch.manual_seed(0)
    card, params = Card(), [nn.Parameter(torch.randn(size)) for size in sizes]
    optimizer = Momentum(params, card, speed)
    states = gapless.offload_optimizer(optimizer, window=window, least=1)
    states._stores[CPU] = card
    return card, params, optimizer, states


def make_gradients(params, step, chosen=lambda p: True):
    torch.manual_seed(step)
    for p in params:
        gradient = torch.randn(p.shape)
        p.grad = gradient if chosen(p) else None


def plain(sizes, steps, chosen=lambda step, index: True):
    """The same without a card."""
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(size)) for size in sizes]
    optimizer = torch.optim.SGD(params, 0.1, momentum=0.9)
    index = {id(p): n for n, p in enumerate(params)}
    for step in range(steps):
        make_gradients(params, step, lambda p, s=step: chosen(s, index[id(p)]))
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize("each", (1, 4, 20))
def test_calls_are_by_part_and_not_by_tensor(each):
    """One put, one get, two joins and one drop."""
    sizes = [256] * 60
    card, params, optimizer, states = on_card(sizes, 1024 * each)
    for step in range(4):
        make_gradients(params, step)
        before = card.calls
        optimizer.step()
        assert step < 2 or card.calls - before == 5 * 60 // each
    assert states.stats() == {"away_bytes": 60 * 1024, "away_tensors": 60}
    before = card.calls
    states.close()
    assert card.calls - before == 3 * 60 // each and card.wrong == [] and card.items == {}
    assert all(torch.equal(a, b) for a, b in zip(params, plain(sizes, 4)[0]))


@pytest.mark.parametrize("speed", (1e9, 1100.0))
def test_both_ways_at_once(speed):
    """A step takes hardly longer than one way over the link, and three parts at most are there."""
    card, params, optimizer, _states = on_card([256] * 60, 3 * 1024, speed)
    for step in range(4):
        make_gradients(params, step)
        begin, optimizer.most = card.now, 0
        optimizer.step()
    one_way, part = 60 * 1024 / card.rate, 3 * 1024 / card.rate
    work = 3 * 1024 / speed
    assert card.now - begin <= one_way + part + work + 1e-6
    assert optimizer.most <= 3 * 3 * 1024 and card.wrong == []


def test_parts_that_change():
    """Parameters without gradients, and a group that comes later: all is away after each step, in items of at most twice as many bytes."""
    choice = random.Random(1)
    sizes = [choice.randrange(1, 600) for _ in range(50)]
    dice = [[choice.random() < 0.4 or step < 2 for _ in sizes] for step in range(30)]
    card, params, optimizer, states = on_card(sizes[:40], 4000)
    kept = {}
    for step, works in enumerate(dice):
        if step == 10:
            torch.manual_seed(0)
            every = [nn.Parameter(torch.randn(size)) for size in sizes]
            optimizer.add_param_group({"params": every[40:], "lr": 0.2})
            params = params + every[40:]
        chosen = {id(p) for n, p in enumerate(params) if works[n]}
        make_gradients(params, step, lambda p, ids=chosen: id(p) in ids)
        optimizer.step()
        tensors = [v for s in optimizer.state.values() for v in s.values()]
        assert all(v.untyped_storage().nbytes() == 0 for v in tensors)
        items = {one.item for one in states._away.values()}
        assert {item.name for item in items} == set(card.items)
        assert sum(item.bytes for item in items) <= 2 * states.stats()["away_bytes"]
    kept = copy.deepcopy(optimizer.state_dict()["state"])
    assert card.wrong == [] and card.items == {}

    torch.manual_seed(0)
    every = [nn.Parameter(torch.randn(size)) for size in sizes]
    theirs = torch.optim.SGD(every[:40], 0.1, momentum=0.9)
    for step, works in enumerate(dice):
        if step == 10:
            theirs.add_param_group({"params": every[40:], "lr": 0.2})
        now = every if step >= 10 else every[:40]
        chosen = {id(p) for n, p in enumerate(now) if works[n]}
        make_gradients(now, step, lambda p, ids=chosen: id(p) in ids)
        theirs.step()
    assert all(torch.equal(a, b) for a, b in zip(params, every)) and same_states(theirs.state_dict()["state"], kept)


# ---- kinds of states ----


def test_types_side_by_side(heap):
    """Of odd sizes, in one item."""

    def run(heap):
        torch.manual_seed(0)
        kinds = (torch.bfloat16, torch.float64, torch.float32, torch.float16, torch.complex64, torch.float32)
        params = [nn.Parameter(torch.randn(1001 + n, dtype=kind)) for n, kind in enumerate(kinds)] + [nn.Parameter(torch.ones(0))]
        optimizer = torch.optim.Adam(params, lr=1e-2, eps=1e-3, amsgrad=True)
        states = gapless.offload_optimizer(optimizer, heap=heap, least=0) if heap else None
        for _ in range(3):
            for p in params:
                p.grad = torch.randn_like(p)
            optimizer.step()
            assert states is None or states.stats()["away_bytes"] >= 3 * sum(p.nbytes for p in params)
        return params, optimizer.state_dict()["state"]

    (a, a_states), (b, b_states) = run(None), run(heap)
    assert all(torch.equal(x, y) for x, y in zip(a, b)) and same_states(a_states, b_states)


def test_states_that_share_a_storage_stay(heap):
    """With each other, with a parameter, or the same tensor twice: in one part or in two."""

    def run(heap, window):
        torch.manual_seed(0)
        params = [nn.Parameter(torch.randn(1000)) for _ in range(6)]
        optimizer = torch.optim.SGD(params, 0.1, momentum=0.9)
        flat, twice = torch.zeros(2000), torch.zeros(1000)
        buffers = [flat[:1000].detach(), twice, torch.zeros(1000), flat[1000:].detach(), twice]
        for p, buffer in zip(params, buffers):
            optimizer.state[p]["momentum_buffer"] = buffer
        states = gapless.offload_optimizer(optimizer, heap=heap, least=1, window=window) if heap else None
        for step in range(3):
            make_gradients(params, step)
            optimizer.step()
            assert states is None or states.stats()["away_tensors"] == 2
        if states:
            states.close()
        return params, flat

    for window in (1, 1 << 20):
        (a, a_flat), (b, b_flat) = run(None, 0), run(heap, window)
        assert all(torch.equal(x, y) for x, y in zip(a, b)) and torch.equal(a_flat, b_flat)


# ---- room, the disk, and what goes wrong ----


def large(heap, steps=3, check=None, **options):
    """Parameters of 1 MiB, eight of them: 16 MiB of states."""
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(512, 512)) for _ in range(8)]
    optimizer = torch.optim.AdamW(params, lr=1e-2)
    states = gapless.offload_optimizer(optimizer, heap=heap, **options) if heap else None
    for step in range(steps):
        make_gradients(params, step)
        optimizer.step()
        if check:
            check(states, optimizer)
    kept = copy.deepcopy(optimizer.state_dict()["state"])
    return [p.detach() for p in params], kept


def test_a_part_for_which_there_is_little_room(capfd):
    """What finds room leaves."""
    away = []
    with host_heap("host=6M") as small:
        a, b = large(None), large(small, check=lambda states, _: away.append(states.stats()["away_bytes"]))
        assert small.tiers()["host_used_bytes"] == 0
    assert all(torch.equal(x, y) for x, y in zip(a[0], b[0])) and same_states(a[1], b[1])
    assert 4 * MIB <= min(away) and max(away) <= 6 * MIB
    assert capfd.readouterr().err.count("what finds no room stays on the device") == 1


def test_a_part_larger_than_the_blocks_of_the_heap():
    with host_heap("host=64M", 8 * MIB) as small:
        away = []
        a, b = large(None), large(small, check=lambda states, _: away.append(states.stats()["away_bytes"]))
    assert all(torch.equal(x, y) for x, y in zip(a[0], b[0])) and same_states(a[1], b[1])
    assert min(away) == 16 * MIB


def test_a_part_larger_than_host_memory(tmp_path):
    """As much as there is room for lies there, the rest on the disk."""
    places = []

    def check(states, _optimizer):
        places.append((states.stats()["away_bytes"], small.tiers()["disk_used_bytes"], len(states._items(states._away.values()))))

    with host_heap(f"host=38M,disk={tmp_path}:200M") as small:  # of these 32 MiB are the disk's buffers, from the first step on
        a, b = large(None), large(small, check=check, window=8 * MIB + 64)
        assert small.tiers()["disk_used_bytes"] == 0
    assert all(torch.equal(x, y) for x, y in zip(a[0], b[0])) and same_states(a[1], b[1])
    for away, disk, items in places[1:]:
        assert away == 16 * MIB and disk == 10 * MIB and items == 3


def test_a_disk_that_gives_back_what_is_wrong(tmp_path):
    """The step says so; states are where they were, whole, and come when the disk is well."""

    def check(states, optimizer):
        if states is None or len(spoiled) == 2:
            return
        file = next(n for n in glob.glob("/proc/self/fd/*") if os.path.exists(n) and str(tmp_path) in os.readlink(n))
        with open(file, "r+b", buffering=0) as disk:
            disk.seek(8192)
            spoiled.append(disk.read(3))
            disk.seek(8192)
            disk.write(bytes(255 - byte for byte in spoiled[-1]))
            os.fsync(disk.fileno())
            with pytest.raises(gapless.Error, match="checksum"):
                optimizer.step()
            with pytest.raises(gapless.Error, match="checksum"):
                states.bring_back()
            assert states.stats()["away_bytes"] == 16 * MIB
            assert all(s["exp_avg"].untyped_storage().nbytes() == 0 for s in optimizer.state.values())
            disk.seek(8192)
            disk.write(spoiled[-1])
            os.fsync(disk.fileno())

    spoiled = []
    with host_heap(f"disk={tmp_path}:200M") as small:
        a, b = large(None), large(small, check=check)
    assert len(spoiled) == 2
    assert all(torch.equal(x, y) for x, y in zip(a[0], b[0])) and same_states(a[1], b[1])
