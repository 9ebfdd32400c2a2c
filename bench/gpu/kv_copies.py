#!/usr/bin/env python3
"""What the KV cache moves and maps, on a card: bench/gpu/kv_copies.py

  swap        sequences of scattered KV pages of 16 tokens to pinned host memory and back, both layouts
  compaction  half of 256 sequences gone at random: KV pages held, time a GiB that is copied, driver calls apart
  virtual     decode steps of SDPA over ranges that grow, beside the same over tensors made for the whole length

JSON lines on standard output.  Contents are compared.
"""

import math
import random
import sys
import time

try:
    import torch
    from gapless import kv
    from gapless._tensors import heap_for, stream_of, tensor_at
    from common import DEVICE, GIB, MIB, finish, milliseconds, need_card, tell
except ImportError as reason:
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(77)

HEADS, SIZE, LAYERS, PAGE_TOKENS = 8, 128, 32, 16
TOKEN = 2 * HEADS * SIZE * 2 * LAYERS


def make(sequences, tokens, **options):
    return kv.Cache(
        heap_for(DEVICE),
        LAYERS,
        HEADS,
        SIZE,
        page_tokens=PAGE_TOKENS,
        bytes=sequences * tokens * TOKEN + 4 * GIB,
        sequences=sequences + 8,
        tokens=1 << (tokens - 1).bit_length(),
        stream=stream_of(DEVICE),
        **options,
    )


def fill(cache, sequences, tokens):
    """Sequences that grow a KV page at a time in turns: neighbours of one lie far apart."""
    seqs = [cache.open()[0] for _ in range(sequences)]
    for _ in range(tokens // PAGE_TOKENS):
        chosen = seqs[:]
        random.shuffle(chosen)
        cache.append(chosen, [PAGE_TOKENS] * len(chosen))
    cache.flush()
    return seqs


def view(cache, layer):
    """int32 words of a layer's KV pages."""
    s = cache.shape
    words = 2 * s.v_offset // 4
    return tensor_at(
        s.first + layer * s.layer_stride, (s.ids_end, words), (s.page_stride // 4, 1), torch.int32, DEVICE, cache
    )


def ids_of(cache, seq, tokens):
    return torch.tensor([slot // PAGE_TOKENS for slot in cache.slots(seq, 0, tokens)[::PAGE_TOKENS]], device=DEVICE)


def sign(cache, seqs, tokens):
    """Writes what each KV page of each layer should be."""
    for layer in range(LAYERS):
        words = view(cache, layer)
        for i, seq in enumerate(seqs):
            ids = ids_of(cache, seq, tokens)
            marks = torch.arange(len(ids), device=DEVICE, dtype=torch.int32) + 100000 * i + 1000000000 // LAYERS * layer
            words[ids] = marks[:, None].expand(-1, words.shape[1])


def check(cache, seqs, tokens, numbers):
    for layer in range(LAYERS):
        words = view(cache, layer)
        for i, seq in zip(numbers, seqs):
            ids = ids_of(cache, seq, tokens)
            marks = torch.arange(len(ids), device=DEVICE, dtype=torch.int32) + 100000 * i + 1000000000 // LAYERS * layer
            assert (words[ids] == marks[:, None]).all(), f"sequence {i}, layer {layer}"


def swap(block_major):
    tokens, count, away = 2048, 32, 16
    side = torch.cuda.Stream()
    cache = make(
        count, tokens, block_major=block_major, host_bytes=away * tokens * TOKEN + GIB, copy_stream=side.cuda_stream
    )
    name = "block major" if block_major else "per layer"
    seqs = fill(cache, count, tokens)
    sign(cache, seqs, tokens)
    rates = {"out": [], "in": []}
    for _ in range(4):  # host memory is pinned in the first
        chosen = random.sample(range(count), away)
        for way, call, order in (("out", cache.swap_out, chosen), ("in", cache.swap_in, chosen[::-1])):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for i in order:
                call(seqs[i])
            cache.flush()
            torch.cuda.synchronize()
            rates[way].append(away * tokens * TOKEN / (time.perf_counter() - begin) / 1e9)
    check(cache, seqs, tokens, range(count))
    for way, found in rates.items():
        tell(
            f"swap {way}, scattered KV pages of 16 tokens, {name}",
            sorted(found[1:])[1],
            "GB/s",
            45,
            kernels=not cache.why_no_kernels(),
        )
    cache.close()


def compaction():
    """32 KiB of K and as much of V a KV page and layer."""
    tokens, count = 512, 256
    cache = make(count, tokens)
    seqs = fill(cache, count, tokens)
    sign(cache, seqs, tokens)
    numbers = sorted(random.sample(range(count), count // 2))
    for i in set(range(count)) - set(numbers):
        cache.end(seqs[i])
    cache.forget()
    cache.flush()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(200_000_000)  # what the host does meanwhile is told apart  # pylint: disable=protected-access
    start = time.perf_counter()
    begin.record()
    done = cache.compact()
    end.record()
    host = time.perf_counter() - start
    torch.cuda.synchronize()
    kept = [seqs[i] for i in numbers]
    check(cache, kept, tokens, numbers)
    live = count // 2 * tokens * TOKEN
    held = (cache.stats()["bytes_held"] - cache.stats()["bytes_tables"]) / (2 * MIB)
    moved = max(done.bytes_moved, 1) / GIB
    tell(
        "compaction: pages held over pages of live tokens", held / math.ceil(live / (2 * MIB)), "1", 1.10, at_most=True
    )
    tell(
        "compaction: time a GiB copied, on the card",
        begin.elapsed_time(end) / moved,
        "ms",
        2,
        at_most=True,
        gib=round(moved, 2),
        host_ms=round(host * 1e3, 2),
        pages_returned=done.pages_returned,
        run_before=round(done.run_before, 2),
        run_after=round(done.run_after, 2),
    )
    cache.close()


def decode(k, v, grow, batch, start, steps):
    """Seconds of so many decode steps of all layers; each adds a token."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(batch, 4 * HEADS, 1, SIZE, device=DEVICE).bfloat16()
    new = torch.randn(batch, HEADS, 1, SIZE, device=DEVICE).bfloat16()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for n in range(start, start + steps):
        grow(n + 1)
        for layer in range(len(k)):
            k[layer].narrow(2, n, 1).copy_(new)
            v[layer].narrow(2, n, 1).copy_(new)
            sdpa(q, k[layer].narrow(2, 0, n + 1), v[layer].narrow(2, 0, n + 1), enable_gqa=True)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def virtual():
    layers, batch, most, start, steps = 16, 16, 8192, 6144, 512
    token = batch * HEADS * SIZE * 2
    shape, strides = (batch, HEADS, most, SIZE), (HEADS * SIZE, SIZE, batch * HEADS * SIZE, 1)
    fixed = [
        torch.zeros(most, batch, HEADS, SIZE, dtype=torch.bfloat16, device=DEVICE).permute(1, 2, 0, 3)
        for _ in range(2 * layers)
    ]
    ratios, ahead, late = [], 0, 0
    for turn in range(5):
        ranges = kv.Ranges(heap_for(DEVICE), 2 * layers, most * token, stream=stream_of(DEVICE), ahead_bytes=4 * MIB)
        ranges.grow(0, 2 * layers, start * token)
        grown = [
            tensor_at(ranges.address(i), shape, strides, torch.bfloat16, DEVICE, ranges) for i in range(2 * layers)
        ]
        for t in grown:
            t[:, :, :start].zero_()
        times = {}
        ways = {
            "ranges": (grown, lambda n, r=ranges: r.grow(0, 2 * layers, n * token)),
            "fixed": (fixed, lambda n: None),
        }
        for name in sorted(ways, reverse=bool(turn % 2)):
            tensors, grow = ways[name]
            decode(tensors[:layers], tensors[layers:], grow, batch, start, 8)
            before = ranges.about()
            times[name] = decode(tensors[:layers], tensors[layers:], grow, batch, start + 8, steps)
            if name == "ranges":
                ahead += ranges.about().pages_ahead - before.pages_ahead
                late += ranges.about().pages_late - before.pages_late
        ratios.append(times["ranges"] / times["fixed"])
        del grown
        torch.cuda.synchronize()
    ratio = sorted(ratios)[len(ratios) // 2]
    tell(
        "virtual: decode over ranges that grow, over tensors made for the whole length",
        ratio,
        "1",
        1.01,
        at_most=True,
        all=[round(r, 4) for r in ratios],
        pages_ahead=ahead,
        pages_late=late,
    )
    q = torch.randn(batch, 4 * HEADS, 1, SIZE, device=DEVICE).bfloat16()
    plain = [t[:, :, :start].contiguous() for t in fixed[:2]]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    ours = milliseconds(lambda: sdpa(q, fixed[0][:, :, :start], fixed[1][:, :, :start], enable_gqa=True))
    theirs = milliseconds(lambda: sdpa(q, *plain, enable_gqa=True))
    tell(
        "SDPA over tokens first ([tokens][batch][heads]) over heads first, time", ours / theirs, "1", ms=round(ours, 4)
    )


def main():
    need_card()
    random.seed(2)
    torch.manual_seed(2)
    for block_major in (False, True):
        swap(block_major)
    compaction()
    virtual()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
