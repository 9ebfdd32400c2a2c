#!/usr/bin/env python3
"""Paged decode attention on a card: bench/gpu/kv_attention.py

In one run: device copies of 1.5 GiB, the kernel over scattered KV pages, and SDPA FLASH with enable_gqa on unexpanded contiguous K and V; also what a table's order, the layout and
mixed lengths cost.  Results are compared with SDPA's before they are timed.  JSON lines on standard output.
"""

import ctypes
import random
import sys

try:
    import torch
    from gapless import _kv, kv
    from gapless._tensors import heap_for, stream_of
    from common import DEVICE, GIB, copy_bandwidth, finish, milliseconds, need_card, tell
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as reason:
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(77)

HEADS, GROUPS, SIZE, LAYERS = 8, 4, 128, 2
sdpa = torch.nn.functional.scaled_dot_product_attention


class Setting:
    """Sequences in a cache, K and V of layer 1 filled by the scatter kernel."""

    def __init__(self, lengths, page_tokens=16, block_major=False, scattered=True):
        self.lengths, self.most = lengths, max(lengths)
        total = sum(-(-n // page_tokens) for n in lengths) * page_tokens
        token = 2 * HEADS * SIZE * 2 * LAYERS
        self.cache = kv.Cache(
            heap_for(DEVICE),
            LAYERS,
            HEADS,
            SIZE,
            bytes=total * token + 2 * GIB,
            page_tokens=page_tokens,
            sequences=len(lengths),
            tokens=1 << (self.most - 1).bit_length(),
            stream=stream_of(DEVICE),
            block_major=block_major,
        )
        why = self.cache.why_no_kernels()
        if why:
            raise SystemExit(f"no kernels: {why}")
        seqs = [self.cache.open()[0] for _ in lengths]
        left = list(lengths)
        while any(left):
            grow = [min(n, page_tokens if scattered else n) for n in left]
            chosen = [i for i, n in enumerate(grow) if n]
            if scattered:
                random.shuffle(chosen)
            self.cache.append([seqs[i] for i in chosen], [grow[i] for i in chosen])
            left = [n - g for n, g in zip(left, grow)]
        self.cache.flush()
        self.rows = torch.tensor([self.cache.about(s).row for s in seqs], dtype=torch.int32, device=DEVICE)
        n = len(lengths)
        self.k, self.v = (torch.zeros(n, self.most, HEADS, SIZE, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
        for t in (self.k, self.v):
            t.normal_()
        for i, length in enumerate(lengths):
            places = _kv.Places(ctypes.sizeof(_kv.Places), length, 0, self.rows[i : i + 1].data_ptr(), length)
            strides = (HEADS * SIZE * 2, SIZE * 2) * 2
            tokens = _kv.Tokens(ctypes.sizeof(_kv.Tokens), self.k[i].data_ptr(), self.v[i].data_ptr(), *strides)
            self.cache.move(True, 1, places, tokens, stream_of(DEVICE))
        self.q = torch.randn(n, HEADS * GROUPS, SIZE, device=DEVICE).bfloat16()
        self.out = torch.empty_like(self.q)
        self._prepare()

    def _prepare(self):
        a = self.attention = _kv.Attention(
            layer=1, batch=len(self.lengths), query_heads=HEADS * GROUPS, longest=self.most
        )
        a.size, a.rows, a.q, a.out = ctypes.sizeof(a), self.rows.data_ptr(), self.q.data_ptr(), self.out.data_ptr()
        a.q_batch_stride = a.out_batch_stride = HEADS * GROUPS * SIZE * 2
        a.q_head_stride = a.out_head_stride = SIZE * 2
        needed = self.cache.attention_workspace(a)
        self.workspace = torch.empty(max(needed, 16), dtype=torch.uint8, device=DEVICE)
        a.workspace, a.workspace_bytes = self.workspace.data_ptr(), needed

    def paged(self):
        self.cache.attend(self.attention, stream_of(DEVICE))

    def bytes(self):
        return sum(self.lengths) * HEADS * SIZE * 2 * 2 + 2 * self.q.numel() * 2

    def check(self):
        """Beside SDPA, sequence by sequence."""
        self.paged()
        for i in random.sample(range(len(self.lengths)), min(4, len(self.lengths))):
            n = self.lengths[i]
            k, v = (t[i : i + 1, :n].transpose(1, 2).float().repeat_interleave(GROUPS, 1) for t in (self.k, self.v))
            expected = sdpa(self.q[i : i + 1, :, None].float(), k, v)[0, :, 0]
            wrong = (self.out[i].float() - expected).abs().max().item()
            assert wrong < 1e-2, f"sequence {i}: off by {wrong}"


def flash(setting):
    """ms of SDPA FLASH on contiguous [batch, heads, tokens, number], K and V not expanded."""
    k, v = (t.transpose(1, 2).contiguous() for t in (setting.k, setting.v))
    q = setting.q[:, :, None]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return milliseconds(lambda: sdpa(q, k, v, enable_gqa=True))


def measure(name, lengths, copy, asked=False, **options):
    setting = Setting(lengths, **options)
    setting.check()
    time = milliseconds(setting.paged)
    rate = setting.bytes() / time / 1e6
    tell(
        f"paged attention, {name}: of copy bandwidth",
        rate / copy,
        "1",
        0.8 if asked else None,
        ms=round(time, 4),
        gbps=round(rate, 1),
    )
    if len(set(lengths)) == 1:
        other = flash(setting)
        tell(
            f"paged attention, {name}: SDPA FLASH's time over ours",
            other / time,
            "1",
            1.0 if asked else None,
            flash_ms=round(other, 4),
        )
    setting.cache.close()


def main():
    need_card()
    random.seed(1)
    torch.manual_seed(1)
    copy = copy_bandwidth()
    tell("device copy of 1.5 GiB, read and written", copy, "GB/s")
    measure("64 x 4k", [4096] * 64, copy, asked=True)
    measure("64 x 4k, KV pages in order", [4096] * 64, copy, scattered=False)
    measure("64 x 4k, block major", [4096] * 64, copy, block_major=True)
    measure("64 x 4k, 128 tokens a KV page", [4096] * 64, copy, page_tokens=128)
    measure("256 x 1k", [1024] * 256, copy)
    measure("16 x 8k", [8192] * 16, copy)
    measure("1 x 64k", [65536], copy)
    measure("64 of 100 to 8k", [random.randint(100, 8192) for _ in range(64)], copy)
    tell("device copy of 1.5 GiB, again", copy_bandwidth(), "GB/s")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
