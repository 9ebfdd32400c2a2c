"""The structs and prototypes of kv.h, kv_kernels.h and kv_virtual.h for ctypes."""

import ctypes
import os
import re
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Dict, List, Tuple

from . import _library
from ._library import Checked, declare, library

_ADDR = c_uint64
_SEQ = c_uint64


class Options(Checked):
    """gap_kv_options."""

    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("stream", c_uint64),
        ("copy_stream", c_uint64),
        ("layers", c_uint32),
        ("heads", c_uint32),
        ("head_size", c_uint32),
        ("dtype", c_int),
        ("page_tokens", c_uint32),
        ("order", c_int),
        ("layout", c_int),
        ("group_count", c_uint32),
        ("windows", POINTER(c_uint32)),
        ("sequences", c_uint32),
        ("tokens", c_uint32),
        ("bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("sharing", c_int),
        ("flags", c_uint32),
        ("pin_percent", c_uint32),
        ("seed", c_uint64),
        ("now", c_void_p),
        ("now_arg", c_void_p),
    ]


class Shape(Structure):
    """gap_kv_shape."""

    _fields_ = (
        [("size", c_size_t)]
        + [
            (name, c_uint32)
            for name in ("layers_per_group", "heads", "head_size", "element_bytes", "page_tokens", "group_count")
        ]
        + [
            (name, c_uint64)
            for name in (
                "first",
                "v_offset",
                "layer_stride",
                "page_stride",
                "token_stride",
                "head_stride",
                "kv_page_bytes",
                "slab_bytes",
            )
        ]
        + [("slab_kv_pages", c_uint32), ("kv_pages", c_uint32), ("ids_end", c_int32)]
        + [
            ("rows", c_uint32),
            ("columns", c_uint32),
            ("table", c_uint64),
            ("lengths", c_uint64),
            ("flex_scale", c_uint32),
        ]
    )


class Prompt(Checked):
    """gap_kv_prompt."""

    _fields_ = [
        ("size", c_size_t),
        ("tenant", c_uint64),
        ("session", c_uint64),
        ("tokens", POINTER(c_int32)),
        ("count", c_uint32),
    ]


class Request(Checked):
    """gap_kv_request."""

    _fields_ = [("seq", _SEQ), ("tokens", c_uint32), ("ids", POINTER(c_int32)), ("outcome", c_int)]


class About(Structure):
    """gap_kv_about."""

    _fields_ = [("size", c_size_t)] + [
        (name, c_uint32) for name in ("row", "tokens", "kv_pages", "shared_kv_pages", "runs", "swapped")
    ]


class Compaction(Structure):
    """gap_kv_compaction."""

    _fields_ = (
        [("size", c_size_t)]
        + [(n, c_uint64) for n in ("bytes_most", "bytes_moved", "slabs_before", "slabs_after", "pages_returned")]
        + [("run_before", c_double), ("run_after", c_double)]
    )


class Places(Structure):
    """gap_kv_places."""

    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_uint32),
        ("slots", _ADDR),
        ("rows", _ADDR),
        ("row_tokens", c_uint32),
    ]


class Tokens(Structure):
    """gap_kv_tokens."""

    _fields_ = [("size", c_size_t), ("k", _ADDR), ("v", _ADDR)] + [
        (name, c_int64) for name in ("k_token_stride", "k_head_stride", "v_token_stride", "v_head_stride")
    ]


class Attention(Structure):
    """gap_kv_attention."""

    _fields_ = (
        [("size", c_size_t)]
        + [(name, c_uint32) for name in ("group", "layer", "batch", "query_heads")]
        + [("rows", _ADDR), ("q", _ADDR), ("out", _ADDR)]
        + [(name, c_int64) for name in ("q_batch_stride", "q_head_stride", "out_batch_stride", "out_head_stride")]
        + [("scale", c_float), ("window", c_uint32), ("longest", c_uint32)]
        + [("workspace", _ADDR), ("workspace_bytes", c_uint64)]
    )


class VirtualOptions(Checked):
    """gap_kv_virtual_options."""

    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("stream", c_uint64),
        ("ranges", c_uint32),
        ("range_bytes", c_uint64),
        ("ahead_bytes", c_uint64),
        ("flags", c_uint32),
    ]


class VirtualAbout(Structure):
    """gap_kv_virtual_about."""

    _fields_ = [("size", c_size_t)] + [
        (name, c_uint64) for name in ("base", "stride", "bytes_held", "bytes_shared", "pages_ahead", "pages_late")
    ]


def _stat_names(header_name: str = "kv.h", macro: str = "GAP_KV_STATS") -> List[str]:
    """The figures as the header lists them: it is their only list."""
    with open(os.path.join(_library.include(), "gapless", header_name), encoding="utf-8") as header:
        block = header.read().split(f"#define {macro}(X)")[1].split("typedef struct")[0]
    return re.findall(r"\bX\((\w+)\)", block)


class Stats(Structure):
    """gap_kv_stats."""

    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in _stat_names()]


class Rate(Structure):
    """gap_kv_rate."""

    _fields_ = [("latency_ns", c_uint64), ("bytes_s", c_uint64)]


class Rates(Structure):
    """gap_kv_rates."""

    _fields_ = [("size", c_size_t), ("host", Rate), ("disk", Rate), ("remote", Rate), ("token_ns", c_uint64)]


class TiersOptions(Structure):
    """gap_kv_tiers_options."""

    _fields_ = [
        ("size", c_size_t),
        ("model", c_char_p),
        ("host_bytes", c_uint64),
        ("disk_bytes", c_uint64),
        ("remote_bytes", c_uint64),
        ("remote", c_void_p),
        ("rates", c_void_p),
        ("token_ns", c_uint64),
        ("fetch_ms", c_uint32),
    ]


class TierStats(Structure):
    """gap_kv_tier_stats."""

    _fields_ = [("size", c_size_t), ("rates", Rates)] + [
        (name, c_uint64) for name in _stat_names("kv_tiers.h", "GAP_KV_TIER_STATS")
    ]


_KV = c_void_p
_SIGNATURES: Dict[str, Tuple[Any, List[Any]]] = {
    "gap_kv_create": (c_int, [c_void_p, POINTER(Options), POINTER(_KV)]),
    "gap_kv_destroy": (None, [_KV]),
    "gap_kv_get_shape": (c_int, [_KV, POINTER(Shape)]),
    "gap_kv_open": (c_int, [_KV, POINTER(Prompt), POINTER(_SEQ), POINTER(c_uint32)]),
    "gap_kv_append": (c_int, [_KV, POINTER(Request), c_uint32]),
    "gap_kv_step": (c_int, [_KV, POINTER(Request), c_uint32]),
    "gap_kv_fork": (c_int, [_KV, _SEQ, POINTER(_SEQ)]),
    "gap_kv_truncate": (c_int, [_KV, _SEQ, c_uint32]),
    "gap_kv_close": (c_int, [_KV, _SEQ, c_uint64]),
    "gap_kv_get_about": (c_int, [_KV, _SEQ, POINTER(About)]),
    "gap_kv_flush": (c_int, [_KV]),
    "gap_kv_slots": (c_int, [_KV, c_uint32, _SEQ, c_uint32, c_uint32, POINTER(c_int64)]),
    "gap_kv_swap_out": (c_int, [_KV, _SEQ]),
    "gap_kv_swap_in": (c_int, [_KV, _SEQ]),
    "gap_kv_compact": (c_int, [_KV, POINTER(Compaction)]),
    "gap_kv_resize": (c_int, [_KV, c_uint64]),
    "gap_kv_trim": (c_int, [_KV, POINTER(c_uint64)]),
    "gap_kv_forget": (c_int, [_KV]),
    "gap_kv_get_stats": (c_int, [_KV, POINTER(Stats)]),
    "gap_kv_check": (c_int, [_KV, c_char_p, c_size_t]),
    "gap_kv_kernels": (c_int, [_KV, c_char_p, c_size_t]),
    "gap_kv_scatter": (c_int, [_KV, c_uint32, c_uint32, POINTER(Places), POINTER(Tokens), c_uint64]),
    "gap_kv_gather": (c_int, [_KV, c_uint32, c_uint32, POINTER(Places), POINTER(Tokens), c_uint64]),
    "gap_kv_attention_workspace": (c_int, [_KV, POINTER(Attention), POINTER(c_uint64)]),
    "gap_kv_attend": (c_int, [_KV, POINTER(Attention), c_uint64]),
    "gap_kv_tiers_open": (c_int, [_KV, POINTER(TiersOptions), c_char_p, c_size_t]),
    "gap_kv_fetch": (c_int, [_KV, POINTER(Prompt), POINTER(c_uint64)]),
    "gap_kv_fetch_poll": (c_int, [_KV, c_uint64, POINTER(c_uint32)]),
    "gap_kv_fetch_wait": (c_int, [_KV, c_uint64, c_uint32, POINTER(c_uint32)]),
    "gap_kv_tell_computed": (c_int, [_KV, c_uint64, c_uint64]),
    "gap_kv_tiers_drain": (c_int, [_KV, c_uint32]),
    "gap_kv_tiers_store": (c_int, [_KV, c_uint32]),
    "gap_kv_get_tier_stats": (c_int, [_KV, POINTER(TierStats)]),
    "gap_kv_virtual_create": (c_int, [c_void_p, POINTER(VirtualOptions), POINTER(c_void_p)]),
    "gap_kv_virtual_destroy": (None, [c_void_p]),
    "gap_kv_virtual_grow": (c_int, [c_void_p, c_uint32, c_uint32, c_uint64]),
    "gap_kv_virtual_shrink": (c_int, [c_void_p, c_uint32, c_uint32, c_uint64]),
    "gap_kv_virtual_share": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32, c_uint64]),
    "gap_kv_virtual_get_about": (c_int, [c_void_p, POINTER(VirtualAbout)]),
}

_bound = False


def load() -> ctypes.CDLL:
    """The library with these prototypes."""
    global _bound
    loaded = library()
    if not _bound:
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            declare(function, result, arguments)
        _bound = True
    return loaded
