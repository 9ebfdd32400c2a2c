#!/usr/bin/env python3
"""Activations beyond the card on fine-tuning (llama_sft of workloads.py): bench/torch/offload.py [--steps N] [--disk FOLDER] [--dry]

  link       pinned copies of 1 GiB, out and in; with it and with steps that keep all on the card a bound for the others:
             max(compute, bytes out / link + bytes in / link), step by step
  budgets    75, 50, 25 and 0 % of what a step saves stay on the card, beside torch.autograd.graph.save_on_cpu(pin_memory=True), which takes
             all of it off, each tensor by itself: time that is added to a step for each byte taken off
  bits       the same with deterministic algorithms: losses are the same
  disk       a process whose host memory is 25 % of what a step saves, with 25 % on the card: the rest goes through the disk
  states     an AdamW step whose states are in host memory between steps, beside one that has them on the card

Host memory is pinned beforehand, by a run that is not counted.  Of each run the first two steps do not count: one builds the model and records, the
next is the first with a plan.  --dry runs all of it on the processor with a small model; its figures mean nothing.  JSON lines.
"""

import argparse
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "gpu")]
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "backend:gapless")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic algorithms

GIB = 1 << 30
BUDGETS = (0.75, 0.5, 0.25)
UNCOUNTED = 2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--disk", default=tempfile.gettempdir(), metavar="FOLDER", help="on a disk; default: the temporary one")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--through-disk", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


options = arguments()
try:
    import gapless
    import torch
    from common import finish, missed, need_card, tell

    if options.dry:
        torch.set_num_threads(1)
    else:
        import workloads
except ImportError as reason:
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(77)

if not options.dry:
    need_card()
DEVICE = torch.device("cpu" if options.dry else "cuda")
LEAST = 4096 if options.dry else 1 << 20


def settle():
    if not options.dry:
        torch.cuda.synchronize()


# ---- what is run ----


def small_sft(steps, seed=0):
    """For a dry run: a small transformer over batches of changing length."""
    torch.manual_seed(seed)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for step in range(steps):
        x = torch.randn(4, 48 + 8 * (step % 3), 64)
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


def steps_of(count):
    return small_sft(count) if options.dry else workloads.llama_sft(count)


class Play:
    """A run in a context that is entered for each step: seconds, losses, bytes that moved."""

    def __init__(self, context, steps=None):
        self.seconds, self.losses, self.away, self.back, self.saved = [], [], [], [], []
        gc.collect()
        if not options.dry:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self.context, running = context, steps_of(steps or options.steps)
        before = self._stats()
        while True:
            settle()
            begin = time.perf_counter()
            with context:
                loss = next(running, None)
            if loss is None:
                break
            settle()
            self.seconds.append(time.perf_counter() - begin)
            self.losses.append(loss.item())
            now = self._stats()
            for name, found in (("away", self.away), ("back", self.back), ("saved", self.saved)):
                found.append(now.get(name + "_bytes", 0) - before.get(name + "_bytes", 0))
            before = now
        self.peak = 0 if options.dry else torch.cuda.max_memory_allocated()

    def _stats(self):
        return self.context.stats() if hasattr(self.context, "stats") else {}

    def counted(self, figures):
        return figures[UNCOUNTED:]


class Count(torch.autograd.graph.saved_tensors_hooks):
    """Adds up what save_on_cpu would move, and moves nothing."""

    def __init__(self):
        self.bytes = 0
        super().__init__(self.see, lambda tensor: tensor)

    def see(self, tensor):
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor

    def stats(self):
        return {"away_bytes": self.bytes, "back_bytes": self.bytes}


heap = None  # for a dry run: of host memory, with tiers


def offload(budget):
    return gapless.offload_activations(budget, DEVICE, least=LEAST, name=f"bench {budget}", heap=heap)


# ---- the parts ----


def link():
    """GB/s of pinned copies, out and in."""
    if options.dry:
        return 1.0, 1.0
    card = torch.empty(GIB, dtype=torch.uint8, device=DEVICE)
    host = torch.empty(GIB, dtype=torch.uint8, pin_memory=True)
    found = []
    for to, source in ((host, card), (card, host)):
        times = []
        for _ in range(5):
            settle()
            begin = time.perf_counter()
            to.copy_(source, non_blocking=True)
            settle()
            times.append(time.perf_counter() - begin)
        found.append(GIB / statistics.median(times) / 1e9)
    return tuple(found)


def bound(base, play, rates):
    """Of each counted step: what compute or the link take at least."""
    moved = [(out / rates[0] + back / rates[1]) / 1e9 for out, back in zip(play.away, play.back)]
    return [max(pair) for pair in zip(play.counted(base.seconds), play.counted(moved))]


def added(play, base):
    """Seconds a GiB taken off the card, beyond those of the same steps without; of compute's at least a hundredth, which is noise."""
    more = sum(play.counted(play.seconds)) - sum(play.counted(base.seconds))
    return max(more, 0.01 * sum(play.counted(base.seconds))) / (sum(play.counted(play.away)) / GIB)


def of_budget(base, rates, budget, theirs):
    context = offload(budget)
    play = Play(context)
    best = bound(base, play, rates)
    stats = context.stats()
    tell(
        f"offload: time with {budget:.0%} of what is saved on the card, over max(compute, bytes / link)",
        sum(play.counted(play.seconds)) / sum(best),
        "1",
        1.10 if budget in BUDGETS else None,
        at_most=True,
        step_ms=round(statistics.mean(play.counted(play.seconds)) * 1e3, 1),
        compute_ms=round(statistics.mean(play.counted(base.seconds)) * 1e3, 1),
        bound_ms=round(statistics.mean(best) * 1e3, 1),
        moved_gib_a_step=round(sum(play.counted(play.away) + play.counted(play.back)) / len(best) / GIB, 2),
        saved_gib_a_step=round(sum(play.counted(play.saved)) / len(best) / GIB, 2),
        peak_gib=round(play.peak / GIB, 2),
        peak_gib_without=round(base.peak / GIB, 2),
        late=stats["late"],
        evicted=stats["evicted"],
        refused=stats["refused"],
        step_over_bound=[round(s / b, 3) for s, b in zip(play.counted(play.seconds), best)],
    )
    tell(
        f"offload: added time of save_on_cpu(pin_memory=True) a byte taken off the card, over ours with {budget:.0%} on it",
        added(theirs, base) / added(play, base),
        "1",
        3 if budget in BUDGETS else None,
        step_ms=round(statistics.mean(play.counted(play.seconds)) * 1e3, 1),
        step_ms_save_on_cpu=round(statistics.mean(theirs.counted(theirs.seconds)) * 1e3, 1),
        off_gib_a_step=round(sum(play.counted(play.away)) / len(best) / GIB, 2),
        off_gib_a_step_save_on_cpu=round(sum(theirs.counted(theirs.away)) / len(best) / GIB, 2),
        peak_gib=round(play.peak / GIB, 2),
        peak_gib_save_on_cpu=round(theirs.peak / GIB, 2),
    )


def budgets(base, rates):
    """Ours at each budget, beside torch's own way, which takes all that is saved."""
    counted = Play(Count())
    theirs = Play(torch.autograd.graph.save_on_cpu(pin_memory=not options.dry))
    theirs.away = counted.away
    give_host_memory = getattr(torch._C, "_host_emptyCache", None)  # pylint: disable=protected-access
    if give_host_memory and not options.dry:
        give_host_memory()
    for budget in (*BUDGETS, 0.0):
        of_budget(base, rates, budget, theirs)


@contextlib.contextmanager
def deterministic(strict):
    """Where `strict` an operation that cannot be raises; else it warns, and attention by cuDNN goes on as it likes."""
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


BIT_STEPS = 4


def can_be_strict():
    try:
        with deterministic(True):
            Play(contextlib.nullcontext(), 1)
    except RuntimeError as reason:
        print(f"not strictly deterministic: {reason}", file=sys.stderr)
        return False
    return True


def bits():
    """Losses without offload, for the disk's process too, and how they were had."""
    strict = can_be_strict()
    with deterministic(strict):
        expected = Play(contextlib.nullcontext(), BIT_STEPS).losses
        again = Play(contextlib.nullcontext(), BIT_STEPS).losses == expected
        same = [Play(offload(budget), BIT_STEPS).losses == expected for budget in (*BUDGETS, 0.0)]
    tell("offload: runs with the same losses as without", sum(same), "1", len(same), twice_without_is_the_same=again, strict=strict)
    return {"losses": expected, "strict": strict}


def through_disk(saved, expected):
    """In a process of its own, since tiers are said at the start."""
    host, disk = max(int(saved / 4), 36 << 20), 4 * int(saved) + (64 << 20)
    environ = dict(os.environ, GAPLESS_CONF=f"tiers:host={host},disk={options.disk}:{disk}", BENCH_LOSSES=json.dumps(expected))
    words = [sys.executable, os.path.abspath(__file__), "--through-disk", *(["--dry"] if options.dry else [])]
    done = subprocess.run(words, env=environ, check=False)
    if done.returncode:
        missed.append("the disk's process")


def in_disk_process():
    before = json.loads(os.environ["BENCH_LOSSES"])
    expected, context = before["losses"], offload(0.25)
    with deterministic(before["strict"]):
        play = Play(context, len(expected))
    stats = context.stats()
    tell(
        "offload: 25 % on the card, 25 % in host memory, the rest through the disk: steps with the same losses",
        sum(a == b for a, b in zip(play.losses, expected)),
        "1",
        len(expected),
        step_s=[round(s, 2) for s in play.seconds],
        disk_gib_a_step=round(stats["disk_bytes"] / len(expected) / GIB, 2),
        moved_gib_a_step=round((stats["away_bytes"] + stats["back_bytes"]) / len(expected) / GIB, 2),
        refused=stats["refused"],
        conf=os.environ["GAPLESS_CONF"].partition(",disk")[0],
    )
    if not stats["disk_bytes"]:
        missed.append("nothing went to the disk")


def states(rates):
    """AdamW steps over as many parameters as the model has, with made-up gradients."""
    shapes = [(64, 64)] * 8 if options.dry else [(2048, 5632)] * 90
    dtype = torch.float32 if options.dry else torch.bfloat16

    def run(away):
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(shape, device=DEVICE, dtype=dtype)) for shape in shapes]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
        kept = gapless.offload_optimizer(optimizer, heap=heap, least=LEAST) if away else None
        seconds = []
        for _ in range(6):
            settle()
            begin = time.perf_counter()
            optimizer.step()
            settle()
            seconds.append(time.perf_counter() - begin)
        moved = kept.stats()["away_bytes"] if kept else 0
        total = float(sum(p.detach().double().sum() for p in parameters))
        if kept:
            kept.close()
        return statistics.median(seconds[2:]), moved, total

    (compute, _, expected), (time_taken, moved, total) = run(False), run(True)
    best = max(compute, moved / min(rates) / 1e9)
    tell(
        "states: time of an AdamW step with its states in host memory, over max(compute, bytes one way / link)",
        time_taken / best,
        "1",
        step_ms=round(time_taken * 1e3, 1),
        compute_ms=round(compute * 1e3, 1),
        states_gib=round(moved / GIB, 2),
        same=total == expected,
    )
    if total != expected:
        missed.append("states: results differ")


def main():
    global heap  # pylint: disable=global-statement
    if options.dry:
        conf = os.environ.get("GAPLESS_CONF", "tiers:host=512M") if options.through_disk else "tiers:host=512M"
        heap = gapless.Heap("host", device_bytes=256 << 20, conf=conf, environment=False, threads=False)
    if options.through_disk:
        in_disk_process()
    else:
        rates = link()
        tell("link: pinned copies out", rates[0], "GB/s", allocator="gapless" if gapless.is_enabled() else "torch")
        tell("link: pinned copies in", rates[1], "GB/s")
        warm = Play(offload(0.0))
        base = Play(contextlib.nullcontext())
        budgets(base, rates)
        expected = bits()
        states(rates)
        through_disk(max(warm.saved), expected)
    finish()
    return 1 if options.dry and any("same" in what or "disk" in what or "differ" in what for what in missed) else 0


if __name__ == "__main__":
    sys.exit(main())
