#!/usr/bin/env python3
"""Continuous batching with gapless' KV cache: a randomly initialised Llama serves a trace of requests.

    python3 examples/serving.py                              # on a card if there is one, a small model
    python3 examples/serving.py --shape llama-3.1-8b --dtype bfloat16 --requests 200
    python3 examples/serving.py --trace examples/serving_trace.jsonl --check

Every step serves the oldest requests first (gap_kv_step): prompts that have arrived are prefilled, without what is cached of them, and each running sequence gets a token. Who finds no room is swapped to the
host, or starts again.  A trace has a line of JSON a request: {"at": s, "prompt": tokens, "new": tokens, "prefix": which common beginning, "shared": its tokens}.
--check compares every answer with generate() of the same model.  Needs PyTorch, transformers and gapless.
"""

import argparse
import json
import random
import statistics
import sys
import time

try:
    import torch
    import transformers
    from gapless import _paged, hf, kv
    from gapless._tensors import heap_for, index_of, stream_of
except ImportError as reason:
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(77)

SHAPES = {  # vocabulary, hidden, MLP, layers, heads, KV heads
    "tiny": (512, 256, 128, 2, 4, 4),
    "small": (32000, 1024, 2816, 8, 8, 2),
    "llama-3.1-8b": (128256, 4096, 14336, 32, 32, 8),
}


class Request:
    """One of the trace, and how far it is."""

    def __init__(self, at, prompt, new):
        self.at, self.prompt, self.new = at, prompt, new
        self.tokens = list(prompt)  # with what was generated
        self.seq = None
        self.placed = 0  # tokens that the cache has
        self.hit = 0
        self.first = self.end = None  # times

    @property
    def missing(self):
        return len(self.tokens) - self.placed

    @property
    def done(self):
        return len(self.tokens) - len(self.prompt) >= self.new


def made_up(count, vocabulary, seed):
    """Requests of a few applications, each with a system prompt of its own."""
    dice = random.Random(seed)
    lines, at = [], 0.0
    for _ in range(count):
        at += dice.expovariate(20)
        shared = dice.choice((0, 48, 96))
        lines.append(
            {
                "at": at,
                "prompt": shared + dice.randint(5, 120),
                "new": dice.randint(4, 60),
                "prefix": dice.randrange(3),
                "shared": shared,
            }
        )
    return requests_of(lines, vocabulary, seed)


def requests_of(lines, vocabulary, seed):
    dice = random.Random(seed + 1)
    commons = {}
    found = []
    for line in lines:
        shared = line.get("shared", 0)
        common = commons.setdefault(line.get("prefix", 0), [dice.randrange(3, vocabulary) for _ in range(100000)])
        own = [dice.randrange(3, vocabulary) for _ in range(line["prompt"] - shared)]
        found.append(Request(line["at"], common[:shared] + own, line["new"]))
    return sorted(found, key=lambda r: r.at)


class StepPages(_paged.Pages):
    """The sequences of one forward pass; who has places is the server's business."""

    def use(self, seqs, before):
        """`before`: tokens of the longest before this pass."""
        self.set_sequences(seqs)
        self.length = before
        self.missing = set()

    def advance(self, count):
        self.length += count
        self.missing = set(range(self.layers))


class Server:
    """The model, its cache, and the requests that run."""

    def __init__(self, model, options):
        config = model.config
        self.model, self.options, self.device = model, options, model.device
        model.set_attn_implementation("gapless")
        self.past = hf.PagedCache(config, max_tokens=options.tokens)
        self.pages = StepPages(config.num_hidden_layers, options.tokens, 16, options.cache << 20, options.batch)
        self.past._pages = self.pages
        for layer in self.past.layers:
            layer._pages = self.pages
        self.pages.sharing = "fast"
        head = config.hidden_size // config.num_attention_heads
        self.open_cache(
            torch.empty(0, config.num_key_value_heads, 1, head, dtype=model.dtype, device=self.device), options
        )
        self.waiting, self.running, self.preempted = [], [], 0
        self.batches, self.hits, self.asked = [], 0, 0

    def open_cache(self, like, options):
        pages = self.pages
        pages.device, pages.dtype, pages.heads, pages.size = like.device, like.dtype, like.shape[1], like.shape[3]
        pages.kv = kv.Cache(
            heap_for(like.device),
            pages.layers,
            pages.heads,
            pages.size,
            bytes=options.cache << 20,
            host_bytes=options.host << 20,
            dtype=str(like.dtype).removeprefix("torch."),
            sequences=options.batch,
            tokens=pages.tokens,
            device=index_of(like.device),
            stream=stream_of(like.device),
            sharing="fast",
            block_major=options.block_major,
        )
        pages.on_card = like.device.type == "cuda" and not pages.kv.why_no_kernels()
        shape = pages.kv.shape
        pages.table = pages._int32(shape.table, (shape.rows, shape.columns))
        pages.lengths = pages._int32(shape.lengths, (shape.rows,))

    def admit(self, now):
        """Opens what has arrived, as far as there are rows."""
        while self.waiting and self.waiting[0].at <= now and len(self.running) < self.options.batch:
            r = self.waiting.pop(0)
            r.seq, r.placed = self.pages.kv.open(r.tokens[:-1])
            r.hit = r.placed
            self.hits, self.asked = self.hits + r.hit, self.asked + len(r.tokens)
            self.running.append(r)

    def forward(self, requests, ids, positions, before):
        self.pages.use([r.seq for r in requests], before)
        with torch.no_grad():
            out = self.model(
                input_ids=torch.tensor(ids, device=self.device),
                position_ids=torch.tensor(positions, device=self.device),
                past_key_values=self.past,
                use_cache=True,
                logits_to_keep=1,
            )
        return out.logits[:, -1].argmax(-1).tolist()

    def plan(self):
        """Who gets places for what it is missing."""
        counts = [r.missing for r in self.running]
        ids = [r.tokens[r.placed :] for r in self.running]
        granted = []
        for r, outcome in zip(self.running, self.pages.kv.step([r.seq for r in self.running], counts, ids)):
            if outcome == kv.GRANTED:
                granted.append(r)
            elif outcome == kv.PREEMPTED:
                self.preempted += 1
                r.placed = self.pages.kv.about(r.seq).tokens
        self.pages.kv.flush()
        return granted

    def step(self, now):
        """One step; what it served."""
        self.admit(now)
        if not self.running:
            return 0
        granted = self.plan()
        decoding = [r for r in granted if r.missing == 1 and len(r.tokens) > len(r.prompt)]
        for r in granted:
            if r not in decoding:
                new = self.forward([r], [r.tokens[r.placed :]], [list(range(r.placed, len(r.tokens)))], r.placed)
                self.took([r], new)
        if decoding:
            ids, at = [[r.tokens[-1]] for r in decoding], [[r.placed] for r in decoding]
            self.took(decoding, self.forward(decoding, ids, at, max(r.placed for r in decoding)))
        self.batches.append(len(granted))
        return len(granted)

    def took(self, requests, new):
        for r, token in zip(requests, new):
            r.placed = len(r.tokens)
            r.tokens.append(token)
            r.first = r.first or time.perf_counter()
            if r.done:
                self.pages.kv.end(r.seq)
                r.end = time.perf_counter()
                self.running.remove(r)

    def serve(self, requests):
        """All of them, in the time of the trace."""
        self.waiting = list(requests)
        begin = time.perf_counter()
        while self.waiting or self.running:
            if not self.step((time.perf_counter() - begin) * self.options.speed):
                time.sleep(0.0005)
        return begin, time.perf_counter() - begin


def make_model(options, device):
    vocabulary, hidden, mlp, layers, heads, kv_heads = SHAPES[options.shape]
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=options.tokens,
        initializer_range=0.02 if hidden > 1000 else 0.3,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(options.seed)
    torch.set_default_dtype(getattr(torch, options.dtype))
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


def check(model, requests):
    """The share of tokens that generate() gives too, counted to the first other one of each request."""
    model.set_attn_implementation("sdpa")
    same = 0
    for r in requests:
        ids = torch.tensor([r.prompt], device=model.device)
        with torch.no_grad():
            whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=r.new, do_sample=False)
        expected = whole[0, len(r.prompt) :].tolist()
        ours = r.tokens[len(r.prompt) :]
        same += next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), len(expected))
    return same / sum(r.new for r in requests)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=SHAPES, default="small" if torch.cuda.is_available() else "tiny")
    parser.add_argument("--dtype", default="float16" if torch.cuda.is_available() else "float32")
    parser.add_argument("--trace", help="a file of JSON lines; else requests are made up")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--batch", type=int, default=64, help="sequences at once")
    parser.add_argument("--tokens", type=int, default=2048, help="of a sequence, at most")
    parser.add_argument("--cache", type=int, default=1024, help="MiB on the device")
    parser.add_argument("--host", type=int, default=256, help="MiB of pinned host memory for those that make room")
    parser.add_argument("--block-major", action="store_true")
    parser.add_argument("--speed", type=float, default=1.0, help="of the trace's clock")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = make_model(options, device)
    if options.trace:
        with open(options.trace, encoding="utf-8") as file:
            requests = requests_of(
                [json.loads(line) for line in file if line.strip()], model.config.vocab_size, options.seed
            )
    else:
        requests = made_up(options.requests, model.config.vocab_size, options.seed)
    server = Server(model, options)
    begin, seconds = server.serve(requests)
    stats = server.pages.kv.stats()
    server.pages.kv.check()
    waits = sorted(r.first - begin - r.at / options.speed for r in requests)
    result = {
        "requests": len(requests),
        "seconds": round(seconds, 3),
        "tokens_per_s": round(sum(r.new for r in requests) / seconds, 1),
        "first_token_ms_median": round(statistics.median(waits) * 1e3, 1),
        "batch_mean": round(statistics.mean(server.batches), 2),
        "hit_rate": round(server.hits / server.asked, 4),
        "preempted": server.preempted,
        "slabs_peak": stats["slabs_peak"],
        "kernels": server.pages.on_card,
    }
    if options.check:
        result["same_as_generate"] = round(check(model, requests), 4)
    print(json.dumps(result))
    return 0 if not options.check or result["same_as_generate"] > (0.999 if options.dtype == "float32" else 0.3) else 1


if __name__ == "__main__":
    sys.exit(main())
