"""libgapless.so through ctypes: where it lies, its prototypes, its messages.

The library is the one inside the package; ``GAPLESS_LIBRARY`` names another file (a build folder's, for development).
One copy is loaded into a process, so everything that uses it shares one default heap.
"""

import contextlib
import ctypes
import os
import threading
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._errors import GAP_EKEY, error
from ._say import say

PACKAGE = os.path.dirname(os.path.realpath(__file__))


class _Whole:
    """A whole number as an argument: refused where it does not fit, which ctypes would cut to its lowest bits."""

    def __init__(self, kind: Any) -> None:
        bits = 8 * ctypes.sizeof(kind)
        signed = kind(-1).value < 0
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        convert = kind.from_param

        def from_param(value: Any) -> Any:  # of each argument of each call: no more than it takes
            if isinstance(value, int):
                if least <= value <= most:
                    return kind(value)
                whole(value, least, most)
            return convert(value)

        self.from_param = from_param


class _Text:
    """A C string as an argument: bytes end with their first 0, so there is none inside."""

    @staticmethod
    def from_param(value: Any) -> Any:
        if isinstance(value, bytes) and b"\0" in value:
            raise ValueError(f"{value!r} has a character 0 inside")
        return c_char_p.from_param(value)


def whole(value: int, least: int = 0, most: int = (1 << 64) - 1) -> int:
    """The number, where it is between the two."""
    if not least <= value <= most:
        raise ValueError(f"{value} is not from {least} to {most}")
    return value


_checked = {kind: _Whole(kind) for kind in (c_int, c_int64, c_uint, c_uint32, c_uint64, c_size_t)}
_checked[c_char_p] = _Text


def declare(function: Any, result: Any, arguments: List[Any]) -> None:
    """Sets a prototype."""
    function.restype, function.argtypes = result, [_checked.get(kind, kind) for kind in arguments]


class Checked(Structure):
    """A structure whose whole numbers are refused where they do not fit."""

    def __init__(self, *values: Any, **named: Any) -> None:
        kinds = dict(self._fields_)
        for name, value in [*zip(kinds, values), *named.items()]:
            if isinstance(value, int) and kinds.get(name) in _checked:
                try:
                    _checked[kinds[name]].from_param(value)
                except ValueError as reason:
                    raise ValueError(f"{name}: {reason}") from None
        super().__init__(*values, **named)


class PoolId(Structure):
    """gap_pool_id."""

    _fields_ = [("first", c_uint64), ("second", c_uint64)]


def pool_id(first: int, second: int) -> PoolId:
    """Of numbers that fit; the default pool's is made once, since most calls have it."""
    if not first and not second:
        return _DEFAULT_POOL
    return PoolId(whole(first), whole(second))


_DEFAULT_POOL = PoolId(0, 0)


class HeapOptions(Checked):
    """gap_heap_options."""

    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("flags", c_uint),
        ("device_count", c_int),
        ("device_bytes", c_uint64),
        ("conf", c_char_p),
    ]


class UsageStruct(Structure):
    """gap_usage."""

    _fields_ = [("size", c_size_t)] + [
        (name, c_uint64)
        for name in (
            "live_bytes",
            "requested_bytes",
            "pending_bytes",
            "held_bytes",
            "idle_returnable_bytes",
            "idle_stuck_bytes",
            "peak_live_bytes",
            "peak_held_bytes",
            "cap_bytes",
            "largest_servable_bytes",
            "card_free_bytes",
            "card_total_bytes",
        )
    ]


class EventStruct(Structure):
    """gap_event."""

    _fields_ = [
        ("kind", c_int),
        ("device", c_int),
        ("addr", c_uint64),
        ("bytes", c_uint64),
        ("requested", c_uint64),
        ("stream", c_uint64),
        ("pool", PoolId),
    ]


class TiersStruct(Structure):
    """gap_tiers."""

    _fields_ = [
        ("size", c_size_t),
        ("host_locked_bytes", c_uint64),
        ("host_used_bytes", c_uint64),
        ("host_more_bytes", c_uint64),
        ("disk_used_bytes", c_uint64),
        ("asleep_bytes", c_uint64),
        ("sleeps", c_uint64),
        ("wakes", c_uint64),
        ("saved_bytes", c_uint64),
        ("restored_bytes", c_uint64),
        ("spared_bytes", c_uint64),
        ("time_us", c_uint64),
    ]


class Span(Structure):
    """gap_span."""

    _fields_ = [("addr", c_uint64), ("bytes", c_uint64)]


class ItemInfo(Structure):
    """gap_item_info."""

    _fields_ = [
        ("size", c_size_t),
        ("bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("disk_bytes", c_uint64),
        ("copying", c_int),
        ("busy", c_int),
        ("error", c_int),
    ]


class BlockStruct(Structure):
    """gap_block."""

    _fields_ = [
        ("addr", c_uint64),
        ("bytes", c_uint64),
        ("requested", c_uint64),
        ("stream", c_uint64),
        ("pool", PoolId),
        ("state", c_int),
        ("is_large", c_int),
        ("segment", c_uint64),
        ("segment_bytes", c_uint64),
    ]


OOM_FN = CFUNCTYPE(c_int, c_void_p, c_int, c_uint64, c_uint64)
EVENT_FN = CFUNCTYPE(None, c_void_p, POINTER(EventStruct))
STAT_FN = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64)
BLOCK_FN = CFUNCTYPE(c_int, c_void_p, POINTER(BlockStruct))

_HEAP = c_void_p
_ADDR = c_uint64
_STREAM = c_uint64
_ITEM = c_uint64
_SIGNATURES: Dict[str, Tuple[Any, List[Any]]] = {
    "gap_strerror": (c_char_p, [c_int]),
    "gap_version": (c_char_p, []),
    "gap_set_log": (None, [c_void_p, c_void_p]),
    "gap_heap_create": (c_int, [POINTER(HeapOptions), POINTER(_HEAP)]),
    "gap_heap_destroy": (None, [_HEAP]),
    "gap_heap_default": (c_int, [POINTER(_HEAP)]),
    "gap_shutdown": (None, []),
    "gap_device_count": (c_int, [_HEAP]),
    "gap_alloc": (c_int, [_HEAP, c_int, _STREAM, c_uint64, POINTER(_ADDR)]),
    "gap_alloc_in": (c_int, [_HEAP, c_int, _STREAM, PoolId, c_uint64, POINTER(_ADDR)]),
    "gap_free": (c_int, [_HEAP, _ADDR]),
    "gap_free_on": (c_int, [_HEAP, _ADDR, _STREAM]),
    "gap_record_stream": (c_int, [_HEAP, _ADDR, _STREAM]),
    "gap_retire_stream": (c_int, [_HEAP, c_int, _STREAM]),
    "gap_pool_create": (c_int, [_HEAP, c_int, c_uint, c_char_p, POINTER(PoolId)]),
    "gap_pool_adopt": (c_int, [_HEAP, c_int, c_uint, c_char_p, PoolId]),
    "gap_pool_behave": (c_int, [_HEAP, c_int, PoolId, c_uint]),
    "gap_pool_retain": (c_int, [_HEAP, c_int, PoolId]),
    "gap_pool_release": (c_int, [_HEAP, c_int, PoolId]),
    "gap_set_cap": (c_int, [_HEAP, c_int, c_uint64]),
    "gap_set_fraction": (c_int, [_HEAP, c_int, c_double]),
    "gap_set_reserve": (c_int, [_HEAP, c_int, c_uint64]),
    "gap_trim": (c_int, [_HEAP, c_int, PoolId, POINTER(c_uint64)]),
    "gap_defragment": (c_int, [_HEAP, c_int, POINTER(c_uint64)]),
    "gap_hint": (c_int, [_HEAP, c_uint64, c_int]),
    "gap_keep_memory": (c_int, [_HEAP, c_uint64]),
    "gap_enable_peer": (c_int, [_HEAP, c_int, c_int]),
    "gap_configure": (c_int, [_HEAP, c_char_p]),
    "gap_conf_value": (c_int, [_HEAP, c_char_p, c_char_p, c_size_t]),
    "gap_set_oom": (c_int, [_HEAP, OOM_FN, c_void_p]),
    "gap_set_events": (c_int, [_HEAP, EVENT_FN, c_void_p]),
    "gap_get_usage": (c_int, [_HEAP, c_int, POINTER(UsageStruct)]),
    "gap_stats": (c_int, [_HEAP, c_int, STAT_FN, c_void_p]),
    "gap_stat": (c_int, [_HEAP, c_int, c_char_p, POINTER(c_int64)]),
    "gap_reset_peaks": (c_int, [_HEAP, c_int]),
    "gap_reset_accumulated": (c_int, [_HEAP, c_int]),
    "gap_walk": (c_int, [_HEAP, c_int, BLOCK_FN, c_void_p]),
    "gap_find_block": (c_int, [_HEAP, _ADDR, POINTER(BlockStruct), POINTER(c_int)]),
    "gap_summary": (c_int, [_HEAP, c_int, c_char_p, c_size_t, POINTER(c_size_t)]),
    "gap_explain": (c_int, [_HEAP, c_int, c_char_p, c_size_t, POINTER(c_size_t)]),
    "gap_check": (c_int, [_HEAP, c_int, c_char_p, c_size_t]),
    "gap_reserve_host": (c_int, [_HEAP, c_int, c_uint64]),
    "gap_sleep": (c_int, [_HEAP, c_int, c_char_p, c_uint, POINTER(c_uint64)]),
    "gap_wake": (c_int, [_HEAP, c_int, c_char_p, c_uint]),
    "gap_wake_block": (c_int, [_HEAP, _ADDR]),
    "gap_tier_put": (c_int, [_HEAP, c_int, POINTER(Span), c_uint32, _STREAM, c_uint, POINTER(_ITEM)]),
    "gap_tier_get": (c_int, [_HEAP, c_int, _ITEM, c_uint64, POINTER(Span), c_uint32, _STREAM]),
    "gap_tier_join": (c_int, [_HEAP, c_int, _ITEM, _STREAM]),
    "gap_tier_wait": (c_int, [_HEAP, c_int, _ITEM]),
    "gap_tier_look": (c_int, [_HEAP, c_int, _ITEM, POINTER(ItemInfo)]),
    "gap_tier_drop": (c_int, [_HEAP, c_int, _ITEM]),
    "gap_get_tiers": (c_int, [_HEAP, c_int, POINTER(TiersStruct)]),
    "gap_torch_set_throw": (None, [c_void_p]),
    "gap_torch_capture": (None, [c_char_p, c_size_t]),
    "gap_torch_conf": (c_int, [c_char_p, c_char_p, c_size_t, POINTER(c_size_t), POINTER(c_int)]),
}

_lock = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None


def path() -> str:
    """The file that is, or would be, loaded."""
    return os.environ.get("GAPLESS_LIBRARY") or os.path.join(PACKAGE, "_lib", "libgapless.so")


def include() -> str:
    """The folder with gapless/gapless.h."""
    inside = os.path.join(PACKAGE, "_include")
    return inside if os.path.isdir(inside) else os.path.normpath(os.path.join(PACKAGE, "..", "..", "include"))


def library() -> ctypes.CDLL:
    """The loaded library; OSError when it is not there."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _load() -> ctypes.CDLL:
    loaded = ctypes.CDLL(path())
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name, None)
        if function is not None:  # an older library by GAPLESS_LIBRARY: an AttributeError where it is called
            declare(function, result, arguments)
    loaded.gap_set_log(address("gap_torch_log", loaded), None)
    return loaded


def address(name: str, loaded: Optional[ctypes.CDLL] = None) -> int:
    """The address of an exported function."""
    function = getattr(loaded if loaded is not None else library(), name)
    return ctypes.cast(function, c_void_p).value or 0


def version() -> str:
    """ "0.1.0": of the library."""
    return library().gap_version().decode()


def check(code: int, what: str) -> None:
    """Raises the exception of a negative code."""
    if code < 0:
        raise error(code, f"{what}: {library().gap_strerror(code).decode()}")


@contextlib.contextmanager
def messages() -> Iterator[List[str]]:
    """Collects the library's errors and warnings of this thread, which are in the list after the block."""
    lines: List[str] = []
    text = ctypes.create_string_buffer(8192)
    library().gap_torch_capture(text, len(text))
    try:
        yield lines
    finally:
        library().gap_torch_capture(None, 0)
        lines += text.value.decode(errors="replace").splitlines()


def check_said(code: int, lines: List[str]) -> None:
    """Raises the exception of a negative code with what the library said; else passes the lines on."""
    if code < 0:
        raise error(code, "; ".join(lines) or library().gap_strerror(code).decode())
    for line in lines:
        say(line)


def _conf(string: str) -> Tuple[str, bool, int]:
    needed, asks = c_size_t(), c_int()
    text = ctypes.create_string_buffer(4096)
    code = library().gap_torch_conf(os.fsencode(string), text, len(text), byref(needed), byref(asks))
    return text.value.decode(), bool(asks.value), code


def reduce_conf(string: str) -> Tuple[str, bool]:
    """A configuration string as torch's own parsers take it, and whether it asks for gapless."""
    with messages():  # the heap says what is wrong with it, once
        return _conf(string)[:2]


def knows_key(item: str) -> bool:
    """Whether the key of one item of a configuration string is ours or one of torch's."""
    with messages():
        return _conf(f"strict:True,{item}")[2] != GAP_EKEY


def check_conf(string: str) -> None:
    """Raises ConfigError for a string that would be refused, and says what is doubtful about it."""
    with messages() as lines:
        code = _conf(string)[2]
    check_said(code, lines)
