#!/usr/bin/env python3
"""The KV cache on a card, beside float64: check.py [NAME...]

Kernels with fresh random numbers in many shapes, copies of KV pages, graphs that are captured before the cache grows and shrinks, virtual ranges, transformers' generate().  Needs
PyTorch and the gapless wheel (the library by GAPLESS_LIBRARY will do); transformers where it is there.  The last line reads "N passed, N failed, N skipped".  GAP_SEED repeats a run.
"""

import ctypes
import gc
import os
import random
import sys
import time
import traceback

try:
    import torch
    from gapless import _kv, kv
    from gapless._tensors import heap_for, stream_of, tensor_at
except ImportError as reason:
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(77)

DEVICE = torch.device("cuda", 0)
MIB, GIB = 1 << 20, 1 << 30
cases = []


class Skip(Exception):
    """The reason why a case cannot run here."""


def case(function):
    cases.append(function)
    return function


# ---- a cache and what it should hold ----


class World:
    """Sequences of random lengths whose KV pages lie in each other's way, with K and V known; NaNs everywhere else."""

    def __init__(self, heads, size, *, dtype=torch.bfloat16, lengths=(), layers=2, **options):
        self.dtype, self.heads, self.size, self.layers = dtype, heads, size, layers
        options.setdefault("bytes", 2 * GIB)
        options.setdefault("tokens", 1 << max(max(lengths) - 1, 1).bit_length() + 1)
        options.setdefault("sequences", 2 * len(lengths) + 8)
        self.cache = kv.Cache(
            heap_for(DEVICE),
            layers,
            heads,
            size,
            dtype=str(dtype).removeprefix("torch."),
            stream=stream_of(DEVICE),
            **options,
        )
        assert not self.cache.why_no_kernels(), self.cache.why_no_kernels()
        self.shape = self.cache.shape
        self.seqs = [self.cache.open()[0] for _ in lengths]
        self.k = [torch.empty(0, layers, heads, size, dtype=dtype, device=DEVICE) for _ in lengths]
        self.v = [k.clone() for k in self.k]
        left = list(lengths)
        while any(left):
            grow = [min(n, random.randint(1, 700)) for n in left]
            self.append(grow)
            left = [n - g for n, g in zip(left, grow)]

    def row(self, i):
        return self.cache.about(self.seqs[i]).row

    def view(self, layer, value):
        s, size = self.shape, self.dtype.itemsize
        strides = (s.page_stride // size, s.token_stride // size, s.head_stride // size, 1)
        address = s.first + layer * s.layer_stride + (s.v_offset if value else 0)
        return tensor_at(
            address, (s.ids_end, s.page_tokens, s.heads, s.head_size), strides, self.dtype, DEVICE, self.cache
        )

    def poison(self, i, start, count):
        """KV pages that are new."""
        page = self.shape.page_tokens
        first = -(-start // page) * page
        slots = self.cache.slots(self.seqs[i], first, start + count - first) if start + count > first else []
        ids = torch.tensor(sorted({slot // page for slot in slots}), device=DEVICE, dtype=torch.long)
        if len(ids):
            for layer in range(self.layers):
                for value in (False, True):
                    self.view(layer, value)[ids] = float("nan")

    def append(self, counts):
        """So many random tokens more of each."""
        starts = [len(k) for k in self.k]
        chosen = [i for i, n in enumerate(counts) if n]
        self.cache.append([self.seqs[i] for i in chosen], [counts[i] for i in chosen])
        self.cache.flush()
        for i in chosen:
            self.poison(i, starts[i], counts[i])
            new = torch.randn(2, counts[i], self.layers, self.heads, self.size, device=DEVICE) * random.choice(
                (0.5, 1, 2)
            )
            new = new.to(self.dtype)
            self.k[i], self.v[i] = torch.cat([self.k[i], new[0]]), torch.cat([self.v[i], new[1]])
            self.scatter(i, starts[i], counts[i])

    def places(self, i, start, count, by_rows):
        if by_rows and start + count == len(self.k[i]):
            self.keep = torch.tensor([self.row(i)], dtype=torch.int32, device=DEVICE)
            return _kv.Places(ctypes.sizeof(_kv.Places), count, 0, self.keep.data_ptr(), count)
        self.keep = torch.tensor(self.cache.slots(self.seqs[i], start, count), device=DEVICE)
        return _kv.Places(ctypes.sizeof(_kv.Places), count, self.keep.data_ptr(), 0, 0)

    @staticmethod
    def tokens(k, v):
        size = k.element_size()
        return _kv.Tokens(
            ctypes.sizeof(_kv.Tokens), k.data_ptr(), v.data_ptr(), *(t.stride(n) * size for t in (k, v) for n in (0, 1))
        )

    def scatter(self, i, start, count):
        by_rows = random.random() < 0.5
        places = self.places(i, start, count, by_rows)
        for layer in range(self.layers):
            k, v = self.k[i][start : start + count, layer], self.v[i][start : start + count, layer]
            self.cache.move(True, layer, places, self.tokens(k, v), stream_of(DEVICE))

    def gathered(self, i, layer):
        count = len(self.k[i])
        out = torch.empty(2, count, self.heads, self.size, dtype=self.dtype, device=DEVICE)
        self.cache.move(False, layer, self.places(i, 0, count, True), self.tokens(out[0], out[1]), stream_of(DEVICE))
        return out

    def verify(self, which=None):
        for i in range(len(self.seqs)) if which is None else which:
            for layer in range(self.layers):
                out = self.gathered(i, layer)
                assert torch.equal(out[0], self.k[i][:, layer]), f"K of sequence {i}, layer {layer}"
                assert torch.equal(out[1], self.v[i][:, layer]), f"V of sequence {i}, layer {layer}"

    # ---- attention ----

    def attend(self, q, out, rows, layer=1, window=0, longest=0, workspace=None):
        size = q.element_size()
        a = _kv.Attention(layer=layer, batch=q.shape[0], query_heads=q.shape[1], rows=rows.data_ptr(), q=q.data_ptr())
        a.size, a.out, a.window, a.longest = ctypes.sizeof(a), out.data_ptr(), window, longest
        a.q_batch_stride, a.q_head_stride = q.stride(0) * size, q.stride(1) * size
        a.out_batch_stride, a.out_head_stride = out.stride(0) * size, out.stride(1) * size
        needed = self.cache.attention_workspace(a)
        if needed and workspace is None:
            workspace = torch.full((needed,), 255, dtype=torch.uint8, device=DEVICE)
        if needed:
            a.workspace, a.workspace_bytes = workspace.data_ptr(), workspace.numel()
        self.cache.attend(a, stream_of(DEVICE))
        return workspace

    def reference(self, i, q, layer=1, window=0):
        """[query head, number] in float64."""
        k, v = (t[i][-window:, layer].double().transpose(0, 1) for t in (self.k, self.v))
        groups = q.shape[0] // self.heads
        k, v = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0)
        scores = torch.einsum("hd,htd->ht", q.double(), k) / self.size**0.5
        return torch.einsum("ht,htd->hd", scores.softmax(-1), v)

    def check_attention(self, groups, window=0, longest=0):
        n = len(self.seqs)
        order = random.sample(range(n), n)
        rows = torch.tensor([self.row(i) for i in order], dtype=torch.int32, device=DEVICE)
        q = torch.randn(n, self.heads * groups, self.size, device=DEVICE).to(self.dtype)
        out = torch.full_like(q, float("nan"))
        self.attend(q, out, rows, window=window, longest=longest)
        unit = 1 / 256 if self.dtype == torch.bfloat16 else 1 / 2048
        for place, i in enumerate(order):
            expected = self.reference(i, q[place], window=window)
            wrong = (out[place].double() - expected).abs() - unit * expected.abs()
            assert (
                not out[place].isnan().any() and wrong.max() <= 3e-4
            ), f"{len(self.k[i])} tokens: off by {wrong.max():g}"


def lengths(count, most):
    return [1, 16, most] + [random.randint(1, most) for _ in range(count - 3)]


# ---- kernels ----


@case
def attention_in_many_shapes():
    for size in (32, 64, 128, 256):
        for groups in (1, 2, 3, 4, 7, 8, 12):
            for dtype in (torch.bfloat16, torch.float16):
                options = dict(
                    page_tokens=random.choice((1, 2, 4, 8, 16, 32, 64, 128)),
                    head_first=random.random() < 0.5,
                    block_major=random.random() < 0.3,
                )
                w = World(random.choice((1, 2, 8)), size, dtype=dtype, lengths=lengths(6, 1500), **options)
                w.check_attention(groups)
                w.check_attention(groups, window=random.choice((1, 33, 400)))
                w.check_attention(groups, longest=1500)
                w.cache.close()


@case
def attention_at_the_size_of_a_model():
    w = World(8, 128, lengths=lengths(24, 5000), bytes=8 * GIB, tokens=8192)
    for _ in range(3):
        w.check_attention(4)
        w.append([1] * len(w.seqs))
    w.check_attention(4, window=1024)
    w.verify(range(4))


@case
def attention_of_one_long_sequence():
    w = World(8, 128, lengths=[70000, 3, 1], layers=2, bytes=4 * GIB, tokens=131072)
    w.check_attention(4)
    w.check_attention(8, longest=70000)


@case
def empty_rows_give_zeros():
    w = World(2, 64, lengths=[5, 9])
    free = w.cache.about(w.cache.open()[0]).row
    rows = torch.tensor([free, w.row(0)], dtype=torch.int32, device=DEVICE)
    q = torch.randn(2, 4, 64, device=DEVICE).to(w.dtype)
    out = torch.full_like(q, float("nan"))
    w.attend(q, out, rows)
    assert out[0].eq(0).all() and torch.allclose(out[1].double(), w.reference(0, q[1]), atol=2e-2)


# ---- copies ----


@case
def swap_compaction_and_copies_on_write():
    for block_major in (False, True):
        w = World(8, 128, layers=4, lengths=lengths(40, 600), bytes=GIB, host_bytes=512 * MIB, block_major=block_major)
        before = w.cache.stats()
        away = random.sample(range(40), 20)
        for i in away:
            w.cache.swap_out(w.seqs[i])
        for i in set(range(40)) - set(away):
            if i % 2:
                w.cache.end(w.seqs[i])
        live = [i for i in range(40) if i in away or i % 2 == 0]
        for i in away:
            w.cache.swap_in(w.seqs[i])
        w.cache.flush()
        w.verify(live)
        done = w.cache.compact()
        w.verify(live)
        assert done.slabs_after <= done.slabs_before and w.cache.stats()["compactions"] == before["compactions"] + 1
        twins = {i: w.cache.fork(w.seqs[i]) for i in live[:8]}
        for i, twin in twins.items():  # both go on, each with its own token
            w.cache.append([twin], [1])
        w.cache.flush()
        counts = [0] * 40
        for i in twins:
            counts[i] = 1
        w.append(counts)
        w.verify(live)
        w.cache.check()
        w.cache.close()


# ---- elastic, after graphs ----


@case
def a_graph_stays_valid_while_the_cache_grows_and_shrinks():
    w = World(8, 128, lengths=[700, 50, 333, 1200], bytes=2 * GIB, tokens=8192)
    n, side = len(w.seqs), torch.cuda.Stream()
    rows = torch.tensor([w.row(i) for i in range(n)], dtype=torch.int32, device=DEVICE)
    q = torch.randn(n, 32, 128, device=DEVICE).to(w.dtype)
    out, workspace = torch.empty_like(q), None
    k, v = torch.empty(2, n, 8, 128, dtype=w.dtype, device=DEVICE)
    places = _kv.Places(ctypes.sizeof(_kv.Places), n, 0, rows.data_ptr(), 1)
    workspace = w.attend(q, out, rows)  # compiled before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        w.cache.move(True, 1, places, w.tokens(k, v), stream_of(DEVICE))
        w.attend(q, out, rows, workspace=workspace)
    for step in range(40):
        w.cache.append(w.seqs, [1] * n)
        w.cache.flush()
        for t in (k, v, q):
            t.normal_()
        for i in range(n):
            for mine, new in ((w.k, k), (w.v, v)):
                token = torch.zeros(1, w.layers, 8, 128, dtype=w.dtype, device=DEVICE)
                token[0, 1] = new[i]
                mine[i] = torch.cat([mine[i], token])
        graph.replay()
        for i in range(n):
            wrong = (out[i].double() - w.reference(i, q[i])).abs().max()
            assert wrong < 2e-2, f"step {step}, sequence {i}: off by {wrong:g}"
        if step % 8 == 3:  # others come and go
            guest = w.cache.open()[0]
            w.cache.append([guest], [4000 if step < 20 or step > 30 else 1000])
            w.cache.flush()
            w.cache.end(guest)
        if step == 20:
            w.cache.forget()
            w.cache.resize(8 * w.shape.slab_bytes)
            assert w.cache.stats()["slabs"] <= 8
        if step == 30:
            w.cache.resize(2 * GIB)
    w.cache.check()


@case
def the_heap_takes_what_is_cached():
    import gapless

    heap = gapless.Heap("cuda", environment=False)
    with heap:
        heap.set_cap(GIB)
        cache = kv.Cache(heap, 4, 8, 128, bytes=900 * MIB, sharing="fast", block_major=True, stream=stream_of(DEVICE))
        ids = list(range(20000))
        seq, _ = cache.open(ids[:0])
        cache.append([seq], [8000], [ids[:8000]])
        cache.flush()
        cache.end(seq)
        before = cache.stats()["kv_pages_cached"]
        address = heap.alloc(GIB - 40 * MIB)
        after = cache.stats()["kv_pages_cached"]
        assert before > 400 and after < before, (before, after)
        heap.free(address)
        torch.cuda.synchronize()
        cache.close()


# ---- virtual ----


@case
def ranges_grow_in_place_and_sdpa_reads_them():
    batch, heads, size, step = 4, 8, 128, 128
    token = batch * heads * size * 2
    ranges = kv.Ranges(heap_for(DEVICE), 2, 8192 * token, stream=stream_of(DEVICE))
    ranges.grow(0, 2, token)
    shape, strides = (batch, heads, 8192, size), (heads * size, size, batch * heads * size, 1)
    k, v = (tensor_at(ranges.address(i), shape, strides, torch.bfloat16, DEVICE, ranges) for i in (0, 1))
    kept = torch.empty(2, batch, heads, 0, size, dtype=torch.bfloat16, device=DEVICE)
    for at in range(0, 6144, step):
        ranges.grow(0, 2, (at + step) * token)
        new = torch.randn(2, batch, heads, step, size, device=DEVICE).bfloat16()
        kept = torch.cat([kept, new], dim=3)
        k.narrow(2, at, step).copy_(new[0])
        v.narrow(2, at, step).copy_(new[1])
        time.sleep(0.002)
    assert torch.equal(k[:, :, :6144], kept[0]) and torch.equal(v[:, :, :6144], kept[1])
    q = torch.randn(batch, 32, 1, size, device=DEVICE).bfloat16()
    sdpa = torch.nn.functional.scaled_dot_product_attention
    ours = sdpa(q, k[:, :, :6144], v[:, :, :6144], enable_gqa=True)
    theirs = sdpa(q, kept[0], kept[1], enable_gqa=True)
    assert torch.allclose(ours.float(), theirs.float(), atol=1e-3, rtol=1e-2)
    about = ranges.about()
    assert about.pages_ahead > 0.5 * (about.pages_ahead + about.pages_late), (about.pages_ahead, about.pages_late)


@case
def a_prefix_stands_behind_several_ranges():
    size = 5 * 2 * MIB + 65536
    ranges = kv.Ranges(heap_for(DEVICE), 6, 16 * MIB, sharing=True, stream=stream_of(DEVICE))
    ranges.grow(0, 1, 12 * MIB)
    flat = [None] * 6

    def words(i, count):
        flat[i] = tensor_at(ranges.address(i), (count,), (1,), torch.int32, DEVICE, ranges)
        return flat[i]

    words(0, 3 * MIB).copy_(torch.arange(3 * MIB, dtype=torch.int32, device=DEVICE))
    for i in range(1, 6):
        ranges.share(i, 0, 1, size)
    about = ranges.about()
    assert about.bytes_shared == 5 * 5 * 2 * MIB, about.bytes_shared
    expected = torch.arange(size // 4, dtype=torch.int32, device=DEVICE)
    for i in range(1, 6):
        ranges.grow(i, 1, 14 * MIB)
        own = words(i, 14 * MIB // 4)[size // 4 :]
        own.fill_(i)
    for i in range(1, 6):
        assert torch.equal(flat[i][: size // 4], expected), i
        assert flat[i][size // 4 :].eq(i).all(), i
    ranges.shrink(0, 1, 0)
    ranges.grow(0, 1, 12 * MIB)
    words(0, 3 * MIB).fill_(-1)
    for i in range(1, 6):
        assert torch.equal(flat[i][: size // 4], expected), i
    torch.cuda.synchronize()


# ---- transformers ----


def small_model(dtype, make):
    config = make(
        vocab_size=997,
        hidden_size=512,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.1,
        pad_token_id=0,
        eos_token_id=None,
    )
    import transformers

    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).to(DEVICE).eval()


def transformers_or_skip():
    try:
        import transformers
    except ImportError as reason:
        raise Skip(str(reason)) from reason
    return transformers


def logits_of(model, inputs, cache, **how):
    torch.manual_seed(1)
    done = model.generate(
        **inputs,
        past_key_values=cache,
        max_new_tokens=70,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        **how,
    )
    return done.sequences, torch.stack(done.logits).float()


@case
def generate_gives_the_tokens_of_dynamic_cache():
    transformers = transformers_or_skip()
    from gapless.hf import Cache

    for implementation in ("eager", "sdpa"):
        for dtype in (torch.float32, torch.bfloat16):
            model = small_model(dtype, transformers.LlamaConfig)
            model.set_attn_implementation(implementation)
            ids = torch.randint(3, 997, (4, 300), device=DEVICE)
            inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
            inputs["attention_mask"][1, :20] = 0
            for how in ({}, {"num_beams": 3}):
                theirs = logits_of(model, inputs, transformers.DynamicCache(config=model.config), **how)
                ours = logits_of(model, inputs, Cache(model.config), **how)
                assert torch.equal(ours[0], theirs[0]), (implementation, dtype, how)


@case
def generate_from_kv_pages():
    """Sums come in another order, so logits are compared as long as the tokens before them are the same."""
    transformers = transformers_or_skip()
    from gapless import hf

    for make in (transformers.LlamaConfig, transformers.MistralConfig):
        model = small_model(torch.float16, make)
        ids = torch.randint(3, 997, (4, 300), device=DEVICE)
        inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
        tokens, logits = logits_of(model, inputs, transformers.DynamicCache(config=model.config))
        model.set_attn_implementation("gapless")
        for graphs in (False, True):
            cache = hf.PagedCache(model.config, max_bytes=2 * GIB)
            with hf.graphed(model, on=graphs):
                ours, our_logits = logits_of(model, inputs, cache)
            assert cache._pages.on_card
            for i in range(4):
                same = int((ours[i] == tokens[i])[300:].long().cumprod(0).sum())
                upto = min(same + 1, 70)
                wrong = (our_logits[:upto, i] - logits[:upto, i]).abs().max() / logits[:upto, i].abs().max()
                assert wrong < 2e-2, (make.__name__, graphs, i, same, float(wrong))
            cache.kv.check()


@case
def beams_from_kv_pages():
    transformers = transformers_or_skip()
    from gapless.hf import PagedCache

    model = small_model(torch.float32, transformers.LlamaConfig)  # gathered: exact enough for equal beams
    ids = torch.randint(3, 997, (2, 100), device=DEVICE)
    inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
    theirs = logits_of(model, inputs, transformers.DynamicCache(config=model.config), num_beams=4)
    cache = PagedCache(model.config, max_bytes=GIB)
    ours = logits_of(model, inputs, cache, num_beams=4)
    assert torch.equal(ours[0], theirs[0])
    assert cache.kv.stats()["bytes_shared"] > 0


# ---- below the device ----


def mark_of(prompt, column, layer, value):
    return (prompt * 7919 + column * 31 + layer * 5 + value) % 30000


def rows_of(cache, layer, value):
    """K or V of a layer, a row of 16-bit words for each KV page."""
    s = cache.shape
    address = s.first + layer * s.layer_stride + (s.v_offset if value else 0)
    words = s.page_tokens * s.heads * s.head_size
    return tensor_at(address, (s.ids_end, words), (s.page_stride // 2, 1), torch.int16, DEVICE, cache)


def serve_marked(cache, prompt, tokens, layers):
    """What was cached of the prompt must have its marks; the rest gets them."""
    seq, hit = cache.open(tokens)
    cache.append([seq], [len(tokens) - hit], [tokens[hit:]])
    cache.flush()
    ids = [slot // 16 for slot in cache.slots(seq, 0, len(tokens))[::16]]
    for layer in range(layers):
        for value in (0, 1):
            rows = rows_of(cache, layer, value)
            marks = torch.tensor([mark_of(prompt, c, layer, value) for c in range(len(ids))], dtype=torch.int16, device=DEVICE)
            found = rows[torch.tensor(ids, device=DEVICE)]
            whole = hit // 16
            assert (found[:whole] == marks[:whole, None]).all(), (prompt, layer, value)
            rows[torch.tensor(ids[whole:], dtype=torch.long, device=DEVICE)] = marks[whole:, None]
    cache.end(seq)
    return hit


@case
def kv_pages_go_down_and_come_up():
    layers, count, prompts = 4, 2000, 16
    for block_major in (True, False):
        cache = kv.Cache(heap_for(DEVICE), layers, 8, 128, bytes=256 * MIB, tokens=8192, host_bytes=64 * MIB,
                         stream=stream_of(DEVICE), sharing="sha256", block_major=block_major)
        cache.open_tiers(host_bytes=GIB)
        texts = [[k * 10000 + i for i in range(count)] for k in range(prompts)]
        for k, text in enumerate(texts):
            assert serve_marked(cache, k, text, layers) == 0
            assert cache.drain()
        assert cache.stats()["evicted"] > 0
        for k, text in enumerate(texts):
            assert cache.fetched(cache.fetch(text), 20000) == count
            assert serve_marked(cache, k, text, layers) == count
            assert cache.drain()
        stats = cache.tier_stats()
        assert stats["host_fetched"] > 0 and stats["lost"] == stats["host_refused"] == 0, stats
        print("  block major" if block_major else "  per layer", {k: v for k, v in stats.items() if k.endswith("_s") or "fetched" in k or "stored" in k})
        cache.check()
        cache.close()


def main(names):
    if not torch.cuda.is_available():
        print("skipped: no card", file=sys.stderr)
        return 77
    seed = int(os.environ.get("GAP_SEED", random.randrange(1 << 30)))
    print(f"GAP_SEED={seed}")
    passed = failed = skipped = 0
    for function in cases:
        if names and function.__name__ not in names:
            continue
        random.seed(seed)
        torch.manual_seed(seed)
        begin = time.time()
        try:
            function()
            torch.cuda.synchronize()
            passed += 1
            word = "ok"
        except Skip as reason:
            skipped += 1
            word = f"skipped: {reason}"
        except Exception:  # pylint: disable=broad-except
            failed += 1
            word = "FAILED"
            traceback.print_exc()
        print(f"{function.__name__}: {word} ({time.time() - begin:.1f} s)", flush=True)
        gc.collect()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
