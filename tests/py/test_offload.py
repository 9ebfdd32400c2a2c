"""Activations that leave the device and come back, on the processor: results are the same, bit for bit."""

import ctypes
import gc
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import gapless  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

torch.set_num_threads(1)
MIB = 1 << 20
LEAST = 4096
BUDGETS = (0, 3 * MIB, 0.0, 0.25, 0.5, 0.75, 1.0)


@pytest.fixture
def heap():
    with gapless.Heap("host", device_bytes=256 * MIB, conf="tiers:host=256M", environment=False, threads=False) as made:
        yield made
        gc.collect()
        assert made.tiers()["host_used_bytes"] == 0
        made.check(0)


def offload(budget, heap):
    return gapless.offload_activations(budget, "cpu", least=LEAST, heap=heap)


class Net(nn.Module):
    """Residual blocks over views that are not contiguous; `how` wraps a block's call."""

    def __init__(self, layers=4, wide=128, how=lambda block, x: block(x)):
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleList([nn.LayerNorm(wide), nn.Linear(wide, 3 * wide)]) for _ in range(layers))
        self.how = how

    def forward(self, x):
        for norm, linear in self.blocks:
            x = x + self.how(lambda y, n=norm, l=linear: self.mix(n, l, y), x)
        return x

    @staticmethod
    def mix(norm, linear, x):
        q, k, v = linear(norm(x)).view(4, -1, 4, 96).transpose(1, 2).chunk(3, -1)
        return F.dropout(F.scaled_dot_product_attention(q, k, v), 0.1).transpose(1, 2).reshape(x.shape)


def train(context, steps=4, make=Net, rows=lambda step: 256 + 64 * step):
    """Losses and parameters after some steps; `context` is entered for each forward."""
    torch.manual_seed(0)
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    losses = []
    for step in range(steps):
        x = torch.randn(rows(step), 128, requires_grad=True)
        with context:
            loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in net.parameters()]


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def equal(a, b):
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1]))


@pytest.mark.parametrize("budget", BUDGETS)
def test_same_results(heap, budget):
    context = offload(budget, heap)
    assert equal(train(context), train(Nothing()))
    stats = context.stats()
    assert stats["device_bytes"] == 0 and stats["planned"] > 10 and stats["refused"] == 0
    assert stats["back_bytes"] <= stats["away_bytes"]  # what is used while there is room need not come back


def test_a_budget_is_kept_and_costs_what_it_must(heap):
    whole = offload(1 << 40, heap)
    train(whole, rows=lambda step: 256)
    peak = whole.stats()["device_bytes_peak"]
    assert whole.stats()["away_bytes"] == 0 and whole.stats()["saved_bytes"] == 4 * peak
    for part in (0.75, 0.5, 0.25):
        context = offload(int(part * peak), heap)
        train(context, rows=lambda step: 256)
        stats = context.stats()
        most = 0.5 * MIB  # what is being saved, or is needed at once
        assert stats["device_bytes_peak"] <= part * peak + most
        assert (1 - part) * 4 * peak - most <= stats["away_bytes"] <= (1 - 0.9 * part) * 4 * peak + 4 * most
        assert stats["evicted"] > 0 and stats["late"] <= 4  # evicted in the first step, which has no plan


def test_evicted_in_the_first_step_only(heap):
    context = offload(MIB, heap)
    train(context, steps=1, rows=lambda step: 256)
    first = context.stats()["evicted"]
    train(context, steps=3, rows=lambda step: 256)
    assert context.stats()["evicted"] == first > 0


def test_views_are_copied_once(heap):
    context = offload(0, heap)
    x = torch.randn(64, 64, requires_grad=True) * 1.0
    with context:
        loss = sum((x.view(shape) ** 2).sum() + x.view(shape).t().exp().sum() for shape in ((64, 64), (32, 128), (1, 4096)))
    assert context.stats()["away_bytes"] == 4 * x.nbytes  # x, and each of three exp
    loss.backward()
    assert context.stats()["back_bytes"] == context.stats()["away_bytes"]


def test_parameters_and_small_tensors_stay(heap):
    context = offload(0, heap)
    linear = nn.Linear(128, 128)
    with context:
        loss = F.linear(torch.ones(4, 128), linear.weight.t().contiguous().t(), linear.bias).sum() + (linear.weight.t() ** 2).sum()
    saved = context.stats()["saved_bytes"]
    loss.backward()
    assert saved in (0, linear.weight.nbytes)  # the copy that contiguous() made, where it is saved
    assert linear.weight.grad is not None


def test_a_little_of_much(heap):
    """A small view does not keep a large storage on the device."""
    context = offload(0, heap)
    x = torch.randn(512, 512, requires_grad=True)
    with context:
        large = x * 2
        loss = (large[:, :1] ** 2).sum() + (large**2).sum()
        origin = torch.multiprocessing.reductions.StorageWeakRef(large.untyped_storage())
        del large
        (torch.randn(64, 64, requires_grad=True) ** 2).sum()  # room is made at the next save
    assert origin.expired()
    loss.backward()
    assert torch.allclose(x.grad, 8 * x + torch.cat([8 * x[:, :1], torch.zeros(512, 511)], 1))


def test_what_lives_anyway_is_learnt(heap):
    """What the program holds itself is not copied again from the second step on."""
    context, held = offload(0.0, heap), []
    for _ in range(3):
        x = torch.randn(128, 128, requires_grad=True)
        with context:
            y = x * 2
            held.append(y)
            loss = (y**2).sum()
        loss.backward()
        held.append(context.stats()["away_bytes"])
        del loss
    assert held[1] == held[3] == held[5] == held[0].nbytes


def test_step_of_another_shape(heap):
    """The plan of one network, then of another: kept budgets, same results, and a plan of its own later."""
    context = offload(MIB, heap)
    train(context)
    expected = train(Nothing(), make=lambda: Net(layers=7))
    assert equal(train(context, make=lambda: Net(layers=7)), expected)
    assert context.stats()["device_bytes_peak"] <= 2 * MIB


@pytest.mark.parametrize("reentrant", (False, True))
def test_checkpoints(heap, reentrant):
    def make():
        return Net(how=lambda block, x: checkpoint(block, x, use_reentrant=reentrant))

    def rows(step):
        return 256

    expected = train(Nothing(), make=make, rows=rows)
    assert equal(train(offload(0, heap), make=make, rows=rows), expected)

    class Whole(Nothing):  # the backward is inside, too
        pass

    def run(context):
        torch.manual_seed(0)
        net = make()
        out = []
        for _ in range(3):
            x = torch.randn(256, 128, requires_grad=True)
            with context:
                loss = net(x).square().mean()
                loss.backward()
            out.append(x.grad.clone())
        return out

    assert all(torch.equal(a, b) for a, b in zip(run(offload(MIB // 2, heap)), run(Whole())))


def test_autocast(heap):
    def run(context):
        torch.manual_seed(0)
        net = nn.Sequential(*(nn.Linear(128, 128) for _ in range(4)))
        x = torch.randn(256, 128)
        with context, torch.autocast("cpu", torch.bfloat16):
            loss = net(x).float().square().mean()
        loss.backward()
        return [p.grad for p in net.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(run(offload(0, heap)), run(Nothing())))


def test_retained_and_doubled(heap):
    """Two backward passes over one graph, and gradients of gradients."""

    def run(context):
        torch.manual_seed(0)
        x = torch.randn(128, 128, requires_grad=True)
        with context:
            y = (x.sin() * x.exp()).sigmoid().sum()
        y.backward(retain_graph=True)
        y.backward(retain_graph=True)
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        with context:
            z = (first**2).sum()
        z.backward()
        return x.grad

    context = offload(0, heap)
    assert torch.equal(run(context), run(Nothing()))
    gc.collect()
    assert context.stats()["device_bytes"] == 0


def test_modified_after_it_was_saved(heap):
    """What torch refuses is refused, while the bytes are on the device; and not where they are safe already."""
    x = torch.randn(64, 64, requires_grad=True)
    with offload(1.0, heap):
        y = x * 2
        z = (y**2).sum()  # without a plan all leaves at once
        y.mul_(3)
    z.backward()
    assert torch.equal(x.grad, 8 * x)
    with offload(1 << 40, heap):
        y = x * 2
        z = (y**2).sum()
        y.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_a_changed_storage_is_saved_again(heap):
    x = torch.ones(64, 64, requires_grad=True)
    with offload(0, heap):
        y = x.detach() * 1.0
        a = (x * y).sum()
        with torch.no_grad():
            y.add_(1)
        b = (x * y).sum()
    b.backward()
    assert torch.equal(x.grad, torch.full((64, 64), 2.0))
    del a


class Marked(torch.Tensor):
    """A subclass that does nothing."""


def test_other_kinds_of_tensors_pass(heap):
    context = offload(0, heap)
    x = torch.randn(64, 64, requires_grad=True)
    marked = torch.randn(64, 64).as_subclass(Marked)
    sparse = torch.eye(64).to_sparse()
    twisted = torch.randn(64, 64, dtype=torch.complex64).conj()
    with context:
        loss = (x * marked).as_subclass(torch.Tensor).sum() + torch.sparse.mm(sparse, x).sum() + (x * twisted).abs().sum()
    loss.backward()
    assert x.grad.isfinite().all()
    assert type((x * marked).grad_fn) is not None and context.stats()["refused"] == 0


def test_complex_and_other_types(heap):
    for dtype in (torch.float64, torch.complex64, torch.bfloat16):

        def run(context, dtype=dtype):
            torch.manual_seed(1)
            x = torch.randn(70, 70, dtype=dtype, requires_grad=True)
            with context:
                y = (x[3:, 5:].t() * x[3:, 5:].t()).exp()
            y.abs().float().sum().backward()
            return x.grad

        assert torch.equal(run(offload(0, heap)), run(Nothing()))


def test_exception_in_the_forward(heap):
    context = offload(0, heap)
    x = torch.randn(128, 128, requires_grad=True)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            with context:
                y = (x.exp() ** 2).sin()
                1 / 0
        y = None  # noqa: F841
    assert context.stats()["device_bytes"] == 0
    expected = train(Nothing())
    assert equal(train(context), expected)


def test_nested(heap):
    """The inner one has what is saved inside."""
    outer, inner = offload(0, heap), offload(0, heap)
    x = torch.randn(64, 64, requires_grad=True)
    with outer:
        y = x.exp()
        with inner, outer, inner:
            y = y.exp()
        y = y.exp()
    y.sum().backward()
    assert outer.stats()["away_bytes"] == 2 * x.nbytes and inner.stats()["away_bytes"] == x.nbytes
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), outer:
        x.exp().sum().backward()


def test_several_forwards_before_their_backwards(heap):
    def run(context):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128))
        for _ in range(2):
            losses = []
            for _ in range(3):
                with context:
                    losses.append(net(torch.randn(128, 128)).square().mean())
            losses[1].backward()
            (losses[0] + losses[2]).backward()
        return [p.grad for p in net.parameters()]

    context = offload(0.5, heap)
    assert all(torch.equal(a, b) for a, b in zip(run(context), run(Nothing())))
    assert context.stats()["device_bytes"] == 0


def test_threads(heap):
    context, wrong = offload(MIB, heap), []

    def work(seed):
        def run(context):
            generator = torch.Generator().manual_seed(seed)
            x = torch.randn(256, 128, generator=generator, requires_grad=True)
            for _ in range(4):
                with context:
                    y = (x.exp().sin() * x.cos()).tanh().sum()
                y.backward()
            return x.grad

        wrong.append(not torch.equal(run(context), run(Nothing())))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 4 and context.stats()["device_bytes"] == 0


# ---- copies that are late ----


class Late:
    """Stands for a card whose copies run as late as they may: bytes move in join() and not before, out of memory that must be there still, and
    into memory that holds something else until then."""

    has_disk, index = False, 0

    def __init__(self, patience):
        self.items, self.next, self.patience, self.wrong = {}, 1, patience, []

    def stream(self):
        return None

    def put(self, storage, begin, size, stream, place):
        item, self.next = self.next, self.next + 1
        alive = torch.multiprocessing.reductions.StorageWeakRef(storage)
        self.items[item] = {"from": (alive, storage.data_ptr() + begin, size), "asked": 0}
        return item

    def _take(self, item):
        kept = self.items[item]
        if kept.get("from"):
            alive, address, size = kept.pop("from")
            if alive.expired():
                self.wrong.append("memory was given away before it was copied")
            else:
                kept["bytes"] = ctypes.string_at(address, size)

    def get(self, item, storage, size, stream):
        self._take(item)
        ctypes.memset(storage.data_ptr(), 0xFE, size)
        alive = torch.multiprocessing.reductions.StorageWeakRef(storage)
        self.items[item].setdefault("to", []).append((alive, storage.data_ptr(), size))

    def join(self, item, stream):
        self._take(item)
        for alive, address, size in self.items[item].pop("to", []):
            if alive.expired():
                self.wrong.append("memory was given away before bytes came")
            else:
                ctypes.memmove(address, self.items[item]["bytes"], size)

    def wait(self, item):
        self.join(item, None)

    def used_on(self, tensor, stream):
        pass

    def copying(self, item):
        self.items[item]["asked"] += 1
        return self.items[item]["asked"] < self.patience or "from" in self.items[item]

    def on_disk(self, item):
        return False

    def drop(self, item):
        kept = self.items.pop(item)
        if kept.get("from") or kept.get("to"):
            self.wrong.append("dropped before it was joined")

    def host_bytes(self):
        return 1 << 40


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("patience", (1, 5))
def test_copies_that_are_late(heap, budget, patience):
    context = offload(budget, heap)
    context._store = store = Late(patience)
    assert equal(train(context), train(Nothing()))
    with pytest.raises(ZeroDivisionError), context:
        y = (torch.randn(128, 128, requires_grad=True).exp() ** 2).sin()
        1 / 0
    y = None  # noqa: F841
    x = torch.randn(128, 128, requires_grad=True)
    with context:
        y = (x.exp() ** 2).sin().sum()
    y.backward(retain_graph=True)
    first, x.grad = x.grad, None
    y.backward()
    assert torch.equal(first, x.grad)
    del y
    gc.collect()
    assert context.stats()["device_bytes"] == 0
    assert store.wrong == [] and store.items == {}


def test_modified_while_it_is_copied(heap):
    """The copy may have the new bytes: refused."""
    context = offload(20 << 10, heap)  # of two saves of 16 KiB one
    context._store = Late(1000)
    x = torch.randn(64, 64, requires_grad=True)
    for changes in (False, False, True):
        with context:
            y = x * 2
            z = (y**2).sum()
            if changes:
                y.mul_(3)
            del y
            w = x.exp().sum()  # makes the first wait for its copy
        w.backward()
        if changes:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.backward()
        else:
            z.backward()
    assert context.stats()["away_bytes"] == 3 * x.nbytes


# ---- how well copies are hidden, on a made-up time line ----


class Timeline:
    """Stands for a card: three streams (work, out, in) and when each has done what it was given.  Its host takes `pace` times as long to give work
    as the work takes: 0, it is far ahead; None, it waits for all of it."""

    has_disk, index, rate = False, 0, 55.0  # bytes a unit of time, each way

    def __init__(self, pace):
        self.pace, self.host = pace, 0.0
        self.now, self.out, self.back, self.ends = 0.0, 0.0, 0.0, {}

    def work(self, time):
        self.host += time * (self.pace or 0)
        self.now = max(self.now, self.host) + time

    def stream(self):
        return None

    def put(self, storage, begin, size, stream, place):
        item = len(self.ends) + 1
        self.ends[item] = self.out = max(self.out, self.now) + size / self.rate
        return item

    def get(self, item, storage, size, stream):
        self.ends[item] = self.back = max(self.back, self.now, self.ends[item]) + size / self.rate

    def join(self, item, stream):
        self.now = max(self.now, self.ends[item])

    def copying(self, item):
        return self.ends[item] > (self.now if self.pace is None else self.host)

    def on_disk(self, item):
        return False

    def host_bytes(self):
        return 1 << 40

    def used_on(self, *_):
        pass

    wait = drop = used_on


class Work(torch.autograd.Function):
    """Takes time, and saves bytes."""

    @staticmethod
    def forward(ctx, x, line, size, time):
        line.work(time)
        ctx.line, ctx.time = line, time
        ctx.save_for_backward(torch.empty(size, dtype=torch.uint8))
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.saved_tensors
        ctx.line.work(2 * ctx.time)
        return gradient, None, None, None


@pytest.mark.parametrize("compute", (6_000, 12_000, 24_000))
@pytest.mark.parametrize("budget", (0.75, 0.5, 0.25))
@pytest.mark.parametrize("pace", (0, 0.9, None))
def test_copies_behind_work(heap, pace, budget, compute):
    """Forward and backward take hardly longer than they must: by their work, or by the copies of what is over the budget.  No more than that is on
    the device."""
    context, sizes = offload(budget, heap), [6400, 19200, 12800, 25600] * 15
    for _ in range(3):
        line = context._store = Timeline(pace)
        before = context.stats()
        context._figures["device_bytes_peak"] = 0
        y = torch.ones(1, requires_grad=True)
        with context:
            for size in sizes:
                y = Work.apply(y, line, size, compute / 3 / len(sizes))
        y.backward()
        del y
        now = context.stats()
    least = (1 - budget) * sum(sizes)
    assert now["away_bytes"] - before["away_bytes"] >= 0.95 * least
    best = max(compute / 3, least / line.rate) + max(2 * compute / 3, least / line.rate)
    assert line.now <= 1.01 * best + 1.6 * max(sizes) / line.rate  # the first copy out has to wait for its save, the last use for its copy
    assert now["device_bytes_peak"] <= budget * sum(sizes) + max(sizes)


def calls_of_hooks(heap, count):
    """How many functions the hooks call for each tensor that is saved, in a step with a plan."""
    context, calls = offload(0.0, heap), 0

    def note(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    for step in range(3):
        context._store = Timeline(0)
        y = torch.ones(1, requires_grad=True)
        with context:
            for _ in range(count):
                y = Work.apply(y, context._store, LEAST, 1.0)
        if step == 2:
            sys.setprofile(note)
            try:
                y.sum().backward()
            finally:
                sys.setprofile(None)
    return calls / count


def test_work_of_hooks_is_by_tensor(heap):
    """And not by how many others there are, though each use lets go of one that was used."""
    few, many = calls_of_hooks(heap, 20), calls_of_hooks(heap, 200)
    assert many <= 1.2 * few


# ---- room, the disk, and what goes wrong ----


def test_to_the_disk_when_host_memory_is_full(tmp_path):
    conf = f"tiers:host=36M,disk={tmp_path}:200M"
    with gapless.Heap("host", device_bytes=256 * MIB, conf=conf, environment=False, threads=False) as small:
        context = offload(0, small)
        assert equal(train(context), train(Nothing()))
        stats = context.stats()
        assert 0 < stats["disk_bytes"] < stats["away_bytes"] and stats["refused"] == 0
        gc.collect()
        assert small.tiers()["disk_used_bytes"] == 0


def test_no_room(capfd):
    with gapless.Heap("host", device_bytes=256 * MIB, conf="tiers:host=4M", environment=False, threads=False) as small:
        context = offload(0, small)
        assert equal(train(context), train(Nothing()))
        assert context.stats()["refused"] > 0
        said = capfd.readouterr().err
        assert said.count("what finds no room stays on the device") == 1 and "the limit is that of tiers" in said


FULL_DISK = """
import resource, signal, sys
sys.path[:] = {path!r}
import test_offload as t, gapless
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with gapless.Heap("host", device_bytes=256 << 20, conf="tiers:host=34M,disk={folder}:900M", environment=False, threads=False) as heap:
    context = t.offload(0, heap)
    block = heap.alloc(1 << 20)
    item = heap.put([(block, 1 << 20)], place="disk")  # the file is there before the limit is
    heap.wait(item)
    heap.drop(item)
    heap.free(block)
    resource.setrlimit(resource.RLIMIT_FSIZE, (24 << 20, 24 << 20))
    same = t.equal(t.train(context), t.train(t.Nothing()))
    print(same, context.stats()["refused"] > 0, context.stats()["disk_bytes"] > 0)
"""


def test_full_disk(tmp_path):
    code = FULL_DISK.format(path=[str(__file__).rpartition("/")[0], *sys.path], folder=tmp_path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["True", "True", "True"], done.stderr
    assert "File too large" in done.stderr and "what finds no room stays on the device" in done.stderr


def test_corrupted_on_the_disk(tmp_path):
    """What a disk gives back wrong is an error in words, not a wrong gradient."""
    import glob
    import os

    conf = f"tiers:disk={tmp_path}:200M"
    with gapless.Heap("host", device_bytes=256 * MIB, conf=conf, environment=False, threads=False) as heap:
        context = offload(0, heap)
        x = torch.randn(512, 512, requires_grad=True)
        with context:
            y = x.exp().sum()
        assert context.stats()["disk_bytes"] > 0
        mine = [name for name in glob.glob("/proc/self/fd/*") if os.path.exists(name) and str(tmp_path) in os.readlink(name)]
        with open(mine[0], "r+b", buffering=0) as file:
            file.seek(8192)
            file.write(bytes([1, 2, 3]))
            os.fsync(file.fileno())
        with pytest.raises(gapless.Error, match="checksum"):
            y.backward()
        del y


def test_left_by_another_thread(heap):
    context, said = offload(0, heap), []

    def leave():
        with pytest.raises(RuntimeError, match="a thread that has not entered it"):
            context.__exit__(None, None, None)
        said.append(1)

    with context:
        other = threading.Thread(target=leave)
        other.start()
        other.join()
    assert said == [1]


def test_arguments(heap):
    for budget in (-1, 1.5, -0.5, float("nan"), float("inf"), 2e9):
        with pytest.raises(ValueError, match="budget .* bytes as a whole number, or as a float"):
            offload(budget, heap)
    for budget in ("4G", None, True, torch.tensor(0.5)):
        with pytest.raises(TypeError, match="budget"):
            offload(budget, heap)
    for name, value in (("least", "1M"), ("least", -1), ("least", float("nan"))):
        with pytest.raises(ValueError, match=f"{name} .* a number of bytes"):
            gapless.offload_activations(0.5, "cpu", **{name: value})
    assert gapless.offload_activations(0.5, "cpu", name="a") is gapless.offload_activations(0.5, "cpu", name="a")
    assert gapless.offload_activations(0.5, "cpu", name="a") is not gapless.offload_activations(0.5, "cpu", name="b")
    assert gapless.offload_activations(1, "cpu") is not gapless.offload_activations(1.0, "cpu")
