"""One rank of a training with FSDP, run by torchrun: a small Llama, told by files what to do.

TWO_ORDERS is a folder: N.json is an order with "do": build, round, record or end; each rank answers by N-RANK.json.  So two trainings,
one with each allocator, can take turns on the same cards.
"""
import gc
import json
import os
import random
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from report import DRY, begin_rank, end_rank, wants_gapless

VOCABULARY = 512 if DRY else 32000
BATCHES = 3 if DRY else 8
COUNTED = ("pages_stolen", "pages_grown", "stalls", "driver_calls")


def small_llama():
    """Half a billion parameters, without weights of anybody's."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=64 if DRY else 2048, num_hidden_layers=2 if DRY else 8, num_attention_heads=4 if DRY else 16,
                         num_key_value_heads=4 if DRY else 16, intermediate_size=128 if DRY else 5632, vocab_size=VOCABULARY,
                         max_position_embeddings=8192)
    config._attn_implementation = "sdpa"
    return LlamaForCausalLM(config)


def shapes_of(rank):
    """Texts of all lengths; the second rank's are longer, as a bad sampler makes them."""
    rng = random.Random(100 + rank)
    longest = 64 if DRY else 2400
    return [(rng.choice((2, 3, 4)), int(rng.uniform(0.3, 1.0) * longest * (1.25 if rank else 1.0))) for _ in range(BATCHES)]


class Training:
    def __init__(self, rank, device):
        self.rank, self.device = rank, device
        self.model = self.optimiser = None
        self.losses = []

    # ---- orders ----

    def build(self, deterministic=False, caps=None):
        """Afresh, from the same weights; `caps` in bytes, one for each rank."""
        self.model = self.optimiser = None
        self.losses = []
        self.forget(caps[self.rank] if caps else None)
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        torch.manual_seed(1)
        torch.set_default_dtype(torch.bfloat16)
        try:
            with self.device:
                self.model = small_llama()
        finally:
            torch.set_default_dtype(torch.float32)
        for layer in self.model.model.layers:
            fully_shard(layer)
        fully_shard(self.model)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=not DRY)
        return {"parameters": sum(p.numel() for p in self.model.parameters())}

    def round(self):
        """Each batch once; the seconds of every step."""
        generator = torch.Generator(self.device).manual_seed(50 + self.rank)
        before, seconds = self.figures(), []
        for shape in shapes_of(self.rank):
            begun = time.perf_counter()
            self.losses.append(self.step(torch.randint(0, VOCABULARY, shape, device=self.device, generator=generator)))
            self.synchronize()
            seconds.append(time.perf_counter() - begun)
        after = self.figures()
        losses = [float(loss) for loss in self.losses]
        return {"seconds": seconds, "losses": losses, **self.peaks(), **{name: after[name] - before[name] for name in after}}

    def record(self, path):
        """A round of a new model, with PyTorch's own recorder on."""
        self.forget(None)
        if not DRY:
            torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=1_000_000)
        self.build()
        found = self.round()
        path = path.format(rank=self.rank)
        if not DRY:
            torch.cuda.memory._dump_snapshot(path)
            torch.cuda.memory._record_memory_history(None)
        return {"path": path, **found}

    # ---- its parts ----

    def step(self, tokens):
        loss = self.model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    def synchronize(self):
        if not DRY:
            torch.cuda.synchronize(self.device)

    def forget(self, cap):
        """All memory is given back, the peaks begin anew, and no more than `cap` may be held."""
        self.model = self.optimiser = None
        gc.collect()
        self.synchronize()
        if DRY:
            return
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        total = torch.cuda.get_device_properties(self.device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total) if cap else 1.0, self.device)

    def peaks(self):
        if DRY:
            return {"active": 1 << 30, "held": 1 << 30, "retries": 0}
        found = torch.cuda.memory_stats(self.device)
        return {"active": found["active_bytes.all.peak"], "held": found["reserved_bytes.all.peak"], "retries": found["num_alloc_retries"]}

    def figures(self):
        if not wants_gapless():
            return {}
        import gapless

        found = gapless.stats(self.device)
        return {name: found[name] for name in COUNTED}


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.002)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def answer(path, /, **words):
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(words, file)
    os.rename(path + ".part", path)


def main():
    if "TWO_TRACE" in os.environ:  # before CUDA starts: each rank's history in a file of its own
        os.environ["GAPLESS_CONF"] = "trace:" + os.environ["TWO_TRACE"].format(rank=os.environ["LOCAL_RANK"])
    rank, device = begin_rank()
    if DRY:
        torch.set_num_threads(1)
    training = Training(rank, device)
    folder = os.environ["TWO_ORDERS"]
    for number in range(1_000_000):
        order = wait_for(f"{folder}/{number}.json")
        do = order.pop("do")
        if do == "end":
            break
        try:
            answer(f"{folder}/{number}-{rank}.json", **getattr(training, do)(**order))
        except Exception:
            answer(f"{folder}/{number}-{rank}.json", failed=traceback.format_exc())
            raise
    training.forget(None)
    end_rank()


if __name__ == "__main__":
    main()
