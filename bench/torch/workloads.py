"""Six programs that are hard on an allocator: sizes that change from step to step, models that come and go, several streams.

Each is a generator that takes the number of steps and yields after each the scalar that the step computed, so that results can be
compared.  Sizes come from a fixed seed: every run asks for the same tensors in the same order.  ALL has them by name; STEPS says
how many steps a measurement takes.
"""
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

GPU = "cuda"


def draw_lengths(rng, count, median, sigma, least, most):
    """Log-normal lengths, as those of texts are."""
    return [max(least, min(most, int(rng.lognormvariate(math.log(median), sigma)))) for _ in range(count)]


def seeded(seed):
    torch.manual_seed(seed)
    return random.Random(seed)


# ---- language models ----

VOCABULARY = 32000


def small_llama():
    """1.1 billion parameters or so, in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=2048, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=16,
                         intermediate_size=5632, vocab_size=VOCABULARY, max_position_embeddings=8192)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(GPU):
            return LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)


def llama_sft(steps, seed=0):
    """Fine-tuning on batches of up to 16,384 tokens, as many texts as fit."""
    rng = seeded(seed)
    model = small_llama()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in range(steps):
        lengths = draw_lengths(rng, 64, 600, 0.8, 64, 4096)
        batch = 1
        while batch < 64 and (batch + 1) * max(lengths[:batch + 1]) <= 16384:
            batch += 1
        tokens = torch.randint(0, VOCABULARY, (batch, max(lengths[:batch])), device=GPU)
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        yield loss.detach()


def log_likelihood(model, tokens):
    logits = model(input_ids=tokens, use_cache=False).logits.float()
    return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1))


def generate(model, tokens, count):
    """Greedy decoding with a cache that grows by one token a step."""
    pieces = [tokens]
    out = model(input_ids=tokens, use_cache=True, logits_to_keep=1)
    for _ in range(count):
        newest = out.logits[:, -1].argmax(-1, keepdim=True)
        pieces.append(newest)
        out = model(input_ids=newest, past_key_values=out.past_key_values, use_cache=True)
    return torch.cat(pieces, 1)


def rlhf(steps, seed=6):
    """Generation and training in turn: many small blocks that live long, then few large ones."""
    rng = seeded(seed)
    model = small_llama()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    for _ in range(steps):
        batch, length = rng.choice([8, 16, 24, 32]), rng.randint(64, 800)
        prompt = torch.randint(0, VOCABULARY, (batch, length), device=GPU)
        with torch.no_grad():
            texts = generate(model, prompt, rng.randint(24, 96))
            before = torch.cat([log_likelihood(model, part) for part in texts.split(4)])
        for part, old in zip(texts.split(4), before.split(4)):
            loss = -(log_likelihood(model, part) - old).exp().mean()
            loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        del texts, before
        yield loss.detach()


# ---- images ----

class Residual(nn.Module):
    def __init__(self, inward, outward):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inward), nn.Conv2d(inward, outward, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, outward), nn.Conv2d(outward, outward, 3, padding=1)
        self.skip = nn.Conv2d(inward, outward, 1) if inward != outward else nn.Identity()

    def forward(self, x):
        return self.skip(x) + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class UNet(nn.Module):
    def __init__(self, channels=128, factors=(1, 2, 4, 4)):
        super().__init__()
        widths = [channels * factor for factor in factors]
        self.first = nn.Conv2d(4, channels, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        width = channels
        for wide in widths:
            self.down.append(nn.ModuleList([Residual(width, wide), Residual(wide, wide)]))
            width = wide
        self.middle = Residual(width, width)
        for wide in reversed(widths):
            self.up.append(nn.ModuleList([Residual(width + wide, wide), Residual(wide, wide)]))
            width = wide
        self.last = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x):
        x = self.first(x)
        kept = []
        for one, two in self.down:
            x = two(one(x))
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for (one, two), skip in zip(self.up, reversed(kept)):
            x = F.interpolate(x, size=skip.shape[-2:])
            x = two(one(torch.cat([x, skip], 1)))
        return self.last(x)


def unet_multires(steps, seed=2):
    """Training on images of many sizes."""
    rng = seeded(seed)
    model = UNet().to(GPU)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        height, width = rng.choice(range(256, 769, 64)), rng.choice(range(256, 769, 64))
        x = torch.randn(max(1, min(16, 2_000_000 // (height * width))), 4, height, width, device=GPU)
        with torch.autocast(GPU, torch.bfloat16):
            loss = F.mse_loss(model(x), x)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        yield loss.detach()


def diffusion_serve(steps, seed=4):
    """Four models of which two are on the card at a time, for requests of all sizes."""
    rng = seeded(seed)
    models = [UNet(128 + 32 * i).to(torch.bfloat16) for i in range(4)]
    on_card = []
    for _ in range(steps):
        chosen = rng.randrange(4)
        if chosen not in on_card:
            if len(on_card) >= 2:
                leaving = rng.choice(on_card)
                models[leaving].to("cpu")
                on_card.remove(leaving)
            models[chosen].to(GPU)
            on_card.append(chosen)
        height, width, batch = rng.choice(range(64, 257, 8)), rng.choice(range(64, 257, 8)), rng.choice([1, 2, 4, 8, 16])
        x = torch.randn(batch, 4, height, width, device=GPU, dtype=torch.bfloat16)
        with torch.no_grad():
            for _ in range(4):
                x = x - 0.1 * models[chosen](x)
            y = F.interpolate(x.float(), scale_factor=8)
            y = F.conv2d(y, torch.randn(16, 4, 3, 3, device=GPU))
            mean = y.mean()
            mean.item()
        del x, y
        yield mean


# ---- graphs, and several streams ----

def gnn(steps, seed=7):
    """Message passing over a graph of another size each step."""
    rng = seeded(seed)
    layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(8)]).to(GPU)
    optimiser = torch.optim.Adam(layers.parameters())
    for _ in range(steps):
        nodes, edges = rng.randint(50_000, 400_000), rng.randint(300_000, 2_500_000)
        x = torch.randn(nodes, 256, device=GPU)
        source = torch.randint(0, nodes, (edges,), device=GPU)
        target = torch.randint(0, nodes, (edges,), device=GPU)
        for layer in layers:
            x = F.relu(layer(torch.zeros_like(x).index_add(0, target, x[source]))) + x
        loss = x.mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        del x, source, target
        yield loss.detach()


def prefetch_streams(steps, seed=8):
    """Sharded weights: each layer's is gathered on a side stream ahead of its use, with record_stream."""
    rng = seeded(seed)
    side = torch.cuda.Stream()
    count, wide = 24, 4096
    shards = [torch.randn(8, wide * wide // 8 // 4, device=GPU, dtype=torch.bfloat16) for _ in range(count)]

    def gather(layer):
        with torch.cuda.stream(side):
            weight = shards[layer].reshape(-1).repeat(4).view(4 * wide, wide // 4) * 0.01
            return weight, side.record_event()

    for _ in range(steps):
        rows = draw_lengths(rng, 1, 4000, 0.6, 256, 16000)[0]
        x = torch.randn(rows, wide // 4, device=GPU, dtype=torch.bfloat16)
        coming = gather(0)
        for layer in range(count):
            weight, ready = coming
            if layer + 1 < count:
                coming = gather(layer + 1)
            torch.cuda.current_stream().wait_event(ready)
            weight.record_stream(torch.cuda.current_stream())
            hidden = F.gelu(x @ weight.t())
            x = x + (hidden @ weight) * 0.01
            del weight, hidden
        mean = x.float().mean()
        del x, coming
        yield mean


ALL = {one.__name__: one for one in (llama_sft, unet_multires, diffusion_serve, rlhf, gnn, prefetch_streams)}
STEPS = {"llama_sft": 24, "unet_multires": 24, "diffusion_serve": 40, "rlhf": 8, "gnn": 16, "prefetch_streams": 20}
