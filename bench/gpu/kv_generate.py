#!/usr/bin/env python3
"""transformers' generate() at 8k tokens of context with a batch of 16, a random model: bench/gpu/kv_generate.py [--shape NAME] [--batch N] [--context N] [--new N]

Each cache in a process of its own, PyTorch on gapless' memory in all of them (PYTORCH_CUDA_ALLOC_CONF=backend:gapless): DynamicCache, gapless.hf.Cache, PagedCache with the paged
kernel, and that as a graph.  The context's K and V are made up, the same for all, so the steps are what is timed.  The peak of held bytes is from the context on.  JSON lines.

--logits: nothing is timed; the logits of one step over Cache beside those over DynamicCache, by each backend of SDPA that PyTorch has here (--batch 4 --context 4096).
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time

SHAPES = {  # hidden, MLP, layers, heads, KV heads
    "llama-3.1-8b": (4096, 14336, 32, 32, 8),
    "llama-2-7b": (4096, 11008, 32, 32, 32),
    "llama-3.2-1b": (2048, 8192, 16, 32, 8),
    "tiny": (512, 1024, 4, 8, 2),
}
CACHES = ("DynamicCache", "Cache", "PagedCache", "PagedCache+graph")


def make_model(shape, device, tokens):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, mlp, layers, heads, kv_heads = SHAPES[shape]
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=2 * tokens,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def make_cache(name, config, tokens):
    from gapless import hf
    from transformers import DynamicCache

    if name == "DynamicCache":
        return DynamicCache(config=config)
    return hf.Cache(config, max_tokens=2 * tokens) if name == "Cache" else hf.PagedCache(config, max_tokens=2 * tokens)


def fill(cache, config, batch, context, device):
    """K and V of all layers, in pieces so that nothing large is left behind."""
    import torch

    size = config.hidden_size // config.num_attention_heads
    shape = (batch, config.num_key_value_heads, 512, size)
    for piece in range(0, context, 512):
        count = min(512, context - piece)
        for layer in range(config.num_hidden_layers):
            torch.manual_seed(1000 * layer + piece)
            k, v = (torch.randn(shape, device=device).bfloat16()[:, :, :count] for _ in range(2))
            cache.update(k, v, layer)


def held(device):
    """Peak of bytes taken from the driver: by the allocator under PyTorch, which holds the cache's too."""
    import gapless
    import torch

    if not gapless.is_enabled():
        return torch.cuda.max_memory_reserved(device)
    return gapless.stats(0)["reserved_bytes.all.peak"]


def subject(name, options):
    import torch
    from gapless import hf

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = make_model(options.shape, device, options.context + options.new)
    model.set_attn_implementation("gapless" if name.startswith("PagedCache") else "sdpa")
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    torch.manual_seed(7)
    ids = torch.randint(3, 1000, (options.batch, options.context + 1), device=device)
    result = {"cache": name}
    for turn in ("warm-up", "timed"):
        cache = make_cache(name, model.config, options.context + options.new)
        with torch.no_grad():
            fill(cache, model.config, options.batch, options.context, device)
            cuda = device.type == "cuda"
            if cuda:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            begin = time.perf_counter()
            new = options.new if turn == "timed" else 4
            with hf.graphed(model, on=name.endswith("graph")):
                tokens = model.generate(
                    ids, attention_mask=torch.ones_like(ids), past_key_values=cache, max_new_tokens=new, do_sample=False
                )
            if cuda:
                torch.cuda.synchronize()
            seconds = time.perf_counter() - begin
        del cache
    size = model.config.hidden_size // model.config.num_attention_heads
    kv = (
        2
        * 2
        * size
        * model.config.num_key_value_heads
        * model.config.num_hidden_layers
        * options.batch
        * (options.context + options.new)
    )
    result.update(
        tokens_per_s=options.batch * options.new / seconds,
        ms_a_step=seconds / options.new * 1e3,
        weights=weights,
        kv=kv,
    )
    if device.type == "cuda":
        result.update(held=held(0), over_need=held(0) / (weights + kv))
    result["tokens"] = tokens[:, options.context + 1 :].tolist()
    return result


BACKENDS = ("default", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")


def logits_by(backend, model, ids, options):
    """Of one step, by cache; fewer where the backend does not do it."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found = {}
    for name in ("DynamicCache", "Cache"):
        cache = make_cache(name, model.config, options.context + options.new)
        chosen = contextlib.nullcontext() if backend == "default" else sdpa_kernel(getattr(SDPBackend, backend))
        try:
            with torch.no_grad(), chosen:
                fill(cache, model.config, options.batch, options.context, ids.device)
                found[name] = model(ids[:, -1:], past_key_values=cache, attention_mask=torch.ones_like(ids)).logits.float()
        except RuntimeError as error:
            print(f"{backend}: {error}", file=sys.stderr)
            break
    return found


def compare_logits(options):
    import torch
    from common import tell

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = make_model(options.shape, device, options.context + options.new)
    model.set_attn_implementation("sdpa")
    torch.manual_seed(7)
    ids = torch.randint(3, 1000, (options.batch, options.context + 1), device=device)
    for backend in BACKENDS:
        found = logits_by(backend, model, ids, options)
        if len(found) == 2:
            apart = (found["DynamicCache"] - found["Cache"]).abs().max().item()
            same = torch.equal(found["DynamicCache"].argmax(-1), found["Cache"].argmax(-1))
            tell(f"logits over Cache and DynamicCache, {backend}: at most apart", apart, "1", same_token=same)


def run(name, options):
    words = [sys.executable, __file__, "--subject", name] + [
        w for k in ("shape", "batch", "context", "new", "conf") for w in (f"--{k}", str(getattr(options, k)))
    ]
    environ = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=",".join(filter(None, ("backend:gapless", options.conf))))
    done = subprocess.run(words, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=8064)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--conf", default="", help="further settings, the same for all: grow_limit:1.02")
    parser.add_argument("--caches", default=",".join(CACHES[1:]), help="beside DynamicCache, by commas")
    parser.add_argument("--logits", action="store_true", help="compare logits, time nothing")
    parser.add_argument("--subject")
    options = parser.parse_args()
    if options.subject:
        print(json.dumps(subject(options.subject, options)))
        return 0
    if options.logits:
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "backend:gapless")
        compare_logits(options)
        return 0
    try:
        import gapless.hf  # pylint: disable=unused-import
        from common import finish, need_card, tell
    except ImportError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    need_card()
    results = {name: run(name, options) for name in (CACHES[0], *options.caches.split(","))}
    base, setting = (
        results["DynamicCache"],
        f"generate, {options.shape}, {options.batch} x {options.context + options.new}",
    )
    best = max(results, key=lambda name: results[name]["tokens_per_s"])
    for name, r in results.items():
        same = sum(a == b for a, b in zip(sum(r["tokens"], []), sum(base["tokens"], []))) / (
            options.batch * options.new
        )
        asked = None if name == "DynamicCache" else 1.5
        tell(
            f"{setting}, {name}: tokens a second over DynamicCache",
            r["tokens_per_s"] / base["tokens_per_s"],
            "1",
            asked,
            tokens_per_s=round(r["tokens_per_s"], 1),
            ms_a_step=round(r["ms_a_step"], 3),
            same_tokens=round(same, 4),
        )
        tell(
            f"{setting}, {name}: held at the peak over weights and KV",
            r["over_need"],
            "1",
            None if asked is None else 1.05,
            at_most=True,
            held_gib=round(r["held"] / 2**30, 2),
        )
    if "Cache" in results and results["Cache"]["tokens"] != base["tokens"]:
        print("Cache: other tokens than DynamicCache", file=sys.stderr)
        return 1
    print(f"fastest: {best}", file=sys.stderr)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
