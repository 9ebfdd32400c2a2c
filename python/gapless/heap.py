"""Heaps: the C interface as Python objects, for CUDA, for host memory and for a simulated card."""

import ctypes
import threading
import weakref
from ctypes import byref, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _errors, _library
from ._library import PoolId, check, library, pool_id
from ._say import say

__all__ = ["Heap", "HeapPool", "Block", "Event", "Usage", "default_heap"]

_BACKENDS = {"cuda": 0, "host": 1, "sim": 2}
_NO_ENVIRONMENT, _NO_THREAD = 1, 2
_POOL_PRIVATE, _POOL_SHARED, _POOL_CONTIGUOUS = 0, 1, 2
_DROP, _UNCHANGED, _DISK, _REMOTE = 1, 2, 4, 8  # GAP_SLEEP_...
_KEEP, _WAKE_DROP = 1, 2  # GAP_WAKE_...
_PLACES = {None: 0, "host": 1, "disk": 2}  # GAP_PUT_...
Spans = Sequence[Tuple[int, int]]  # (address, bytes)
_STATES = ("idle", "live", "pending", "hole")
_EVENTS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
)
_DEFAULT_POOL = (0, 0)


class Usage(NamedTuple):
    """Bytes of a device; gapless.h has the meaning of each."""

    live_bytes: int
    requested_bytes: int
    pending_bytes: int
    held_bytes: int
    idle_returnable_bytes: int
    idle_stuck_bytes: int
    peak_live_bytes: int
    peak_held_bytes: int
    cap_bytes: int
    largest_servable_bytes: int
    card_free_bytes: int
    card_total_bytes: int


class Block(NamedTuple):
    """A piece of device memory; ``state`` is idle, live, pending (freed, still used by a stream) or hole."""

    address: int
    bytes: int
    requested: int
    stream: int
    pool: Tuple[int, int]
    state: str
    is_large: bool
    segment: int
    segment_bytes: int


class Event(NamedTuple):
    """What happened; ``kind`` is a name of PyTorch's memory history."""

    kind: str
    device: int
    address: int
    bytes: int
    requested: int
    stream: int
    pool: Tuple[int, int]


def _block(raw: Any) -> Block:
    return Block(
        raw.addr,
        raw.bytes,
        raw.requested,
        raw.stream,
        (raw.pool.first, raw.pool.second),
        _STATES[raw.state],
        bool(raw.is_large),
        raw.segment,
        raw.segment_bytes,
    )


def _event(raw: Any) -> Event:
    return Event(
        _EVENTS[raw.kind], raw.device, raw.addr, raw.bytes, raw.requested, raw.stream, (raw.pool.first, raw.pool.second)
    )


def _spans(spans: Spans) -> Any:
    for address, size in spans:
        _library.whole(address)
        _library.whole(size)
    return (_library.Span * len(spans))(*spans)


class Heap:
    """An allocator over every device of a backend.

    ``backend`` is ``"cuda"``, ``"host"`` (host memory that behaves like a device; addresses may be dereferenced) or
    ``"sim"`` (accounting only, any size).  ``devices`` and ``device_bytes`` describe the last two.  ``conf`` is applied
    over the environment's variables, which ``environment=False`` leaves out; ``threads=False`` starts no page maker.

    A heap is also a context manager that closes itself.
    """

    def __init__(
        self,
        backend: str = "cuda",
        *,
        devices: int = 0,
        device_bytes: int = 0,
        conf: Optional[str] = None,
        environment: bool = True,
        threads: bool = True,
    ) -> None:
        if backend not in _BACKENDS:
            raise ValueError(f"backend {backend!r}: one of {', '.join(_BACKENDS)}")
        flags = (0 if environment else _NO_ENVIRONMENT) | (0 if threads else _NO_THREAD)
        options = _library.HeapOptions(
            ctypes.sizeof(_library.HeapOptions),
            _BACKENDS[backend],
            flags,
            devices,
            device_bytes,
            conf.encode() if conf is not None else None,
        )
        handle = c_void_p()
        with _library.messages() as lines:
            code = library().gap_heap_create(byref(options), byref(handle))
        _library.check_said(code, lines)
        self._adopt(handle, owned=True)

    def _adopt(self, handle: c_void_p, owned: bool) -> None:
        self._handle: Optional[c_void_p] = handle
        self._owned = owned
        self._callbacks: Dict[str, Any] = {}
        self._finalizer = weakref.finalize(self, library().gap_heap_destroy, handle) if owned else None
        if self._finalizer:
            self._finalizer.atexit = False  # the process takes its memory with it

    @classmethod
    def _borrow(cls, handle: c_void_p) -> "Heap":
        heap = cls.__new__(cls)
        heap._adopt(handle, owned=False)
        return heap

    @property
    def _heap(self) -> c_void_p:
        if self._handle is None:
            raise ValueError("the heap is closed")
        return self._handle

    def close(self) -> None:
        """Gives everything back to the driver; live blocks become invalid.  The default heap only lets go of its
        handle."""
        self._handle = None
        if self._finalizer:
            self._finalizer()

    def __enter__(self) -> "Heap":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def device_count(self) -> int:
        """Devices are 0 .. device_count - 1."""
        return library().gap_device_count(self._heap)

    # ---- blocks ----

    def alloc(
        self, size: int, device: int = 0, stream: int = 0, pool: "Union[HeapPool, Tuple[int, int], None]" = None
    ) -> int:
        """Allocates ``size`` bytes in order of ``stream`` (a driver handle) and returns the address; 0 bytes give 0.

        Without ``pool`` the pool is the innermost ``with`` block of this thread over a :class:`HeapPool` of this heap
        and device, else the default pool.  :class:`OutOfMemoryError` says why.
        """
        _library.whole(size)
        first, second = _pool_id(self, device, pool)
        out = c_uint64()
        code = library().gap_alloc_in(self._heap, device, stream, pool_id(first, second), size, byref(out))
        if code == _errors.GAP_ENOMEM:
            raise _errors.error(code, f"no memory for {size} bytes on device {device}: {self.explain(device)}")
        if code == _errors.GAP_ESTATE:  # of a pool
            self._check_tier(code, device, f"allocation of {size} bytes")
        check(code, f"allocation of {size} bytes on device {device}")
        return out.value

    def free(self, address: int, stream: Optional[int] = None) -> None:
        """Frees a block in order of its stream; ``stream`` names another one that used it last."""
        if stream is None:
            check(library().gap_free(self._heap, address), f"free of {address:#x}")
        else:
            check(library().gap_free_on(self._heap, address, stream), f"free of {address:#x}")

    def record_stream(self, address: int, stream: int) -> None:
        """Work queued on ``stream`` up to the free uses the block too."""
        check(library().gap_record_stream(self._heap, address, stream), f"record_stream of {address:#x}")

    def retire_stream(self, stream: int, device: int = 0) -> None:
        """Call before a stream is destroyed."""
        check(library().gap_retire_stream(self._heap, device, stream), "retire_stream")

    # ---- pools and limits ----

    def pool(
        self, tag: Optional[str] = None, contiguous: bool = False, device: int = 0, shared: bool = True
    ) -> "HeapPool":
        """A private pool; see :class:`HeapPool`."""
        return HeapPool(self, tag, contiguous, device, shared)

    def set_cap(self, size: int, device: int = 0) -> None:
        """The most bytes held of a device; 0: no limit."""
        check(library().gap_set_cap(self._heap, device, size), "set_cap")

    def set_fraction(self, fraction: float, device: int = 0) -> None:
        """A limit beside the cap, as a share of the card, 0 to 1 (none); the smaller of the two holds."""
        check(library().gap_set_fraction(self._heap, device, fraction), "set_fraction")

    def set_reserve(self, size: int, device: int = 0) -> None:
        """Bytes of driver-free memory left to other programs."""
        check(library().gap_set_reserve(self._heap, device, size), "set_reserve")

    def trim(self, device: int = 0, pool: "Union[HeapPool, Tuple[int, int], None]" = None) -> int:
        """Gives idle memory back to the driver, as empty_cache does; returns how many bytes."""
        first, second = pool.id if isinstance(pool, HeapPool) else pool or _DEFAULT_POOL
        returned = c_uint64()
        check(library().gap_trim(self._heap, device, pool_id(first, second), byref(returned)), "trim")
        return returned.value

    def defragment(self, device: int = 0) -> int:
        """A safe point, where ``convert`` or ``overflow`` is on: no thread launches anything on the device until this returns.

        Live parts of partly idle chunks move to chunks of their own, at the same addresses; returns the bytes that went
        back to the driver."""
        freed = c_uint64()
        check(library().gap_defragment(self._heap, device, byref(freed)), "defragment")
        return freed.value

    def hint(self, address: int, cold: bool = True) -> bool:
        """Says that the block around an address is rarely used, or no more: with ``overflow`` it is the first to go to host
        memory.  False: no live block of this heap is there."""
        code = library().gap_hint(self._heap, address, int(cold))
        if code in (_errors.GAP_ENOTMINE, _errors.GAP_EFREED):
            return False
        check(code, "hint")
        return True

    def keep_memory(self, address: int) -> None:
        """Call before the memory behind a block is registered with a network card: ``convert`` leaves it where it is.

        Refused, in words, while the block lies in host memory (``overflow``)."""
        code = library().gap_keep_memory(self._heap, address)
        found = self.find(address) if code == _errors.GAP_ESTATE else None
        if found:
            self._check_tier(code, found[0], f"keep_memory of {address:#x}")
        check(code, "keep_memory")

    def enable_peer(self, device: int, peer: int) -> None:
        """Lets kernels of ``peer`` reach the memory of ``device``."""
        check(library().gap_enable_peer(self._heap, device, peer), "enable_peer")

    # ---- beyond the card ----

    def reserve_host(self, size: int, device: int = 0) -> None:
        """Makes the device's pool of pinned host memory ``size`` bytes large; what it has beyond that and does not use goes back.

        Pinning takes time: ask beforehand.  Beyond the budget of ``tiers``, the machine or the control group
        it is refused, in words.
        """
        _library.whole(size)
        self._check_tier(library().gap_reserve_host(self._heap, device, size), device, f"reserve_host of {size} bytes")

    def sleep(
        self,
        tag: Optional[str] = None,
        device: int = 0,
        *,
        drop: bool = False,
        unchanged: bool = False,
        disk: bool = False,
        remote: bool = False,
    ) -> int:
        """Gives the memory of all pools with ``tag`` (None: with any tag) back to the driver; returns how many bytes.

        Addresses stay, contents go to pinned host memory, where its budget ends to the disk of ``tiers``, and where that is full to its servers.
        Nothing that uses the memory may be launched before :meth:`wake` has returned; what was launched is waited for.
        ``drop``: contents are of no use, nothing is saved.  ``unchanged``: nothing was written since
        ``wake(keep=True)``, whose copy is used.  ``disk``: to the disk, though host memory has room; ``remote``: to the servers.
        """
        freed = c_uint64()
        flags = (_DROP if drop else 0) | (_UNCHANGED if unchanged else 0) | (_DISK if disk else 0) | (_REMOTE if remote else 0)
        code = library().gap_sleep(self._heap, device, tag.encode() if tag is not None else None, flags, byref(freed))
        self._check_tier(code, device, f"sleep of {tag!r}")
        return freed.value

    def wake(self, tag: Optional[str] = None, device: int = 0, *, keep: bool = False, drop: bool = False) -> None:
        """The same bytes are at the same addresses again, or an error says why they sleep on.

        ``keep``: the copy stays for a later ``sleep(unchanged=True)``, which then copies nothing.  ``drop``: with any bytes, where servers have lost them.
        """
        flags = (_KEEP if keep else 0) | (_WAKE_DROP if drop else 0)
        code = library().gap_wake(self._heap, device, tag.encode() if tag is not None else None, flags)
        self._check_tier(code, device, f"wake of {tag!r}")

    def wake_block(self, address: int) -> None:
        """Only what lies behind the block that ``address`` is in."""
        found = self.find(address)
        code = library().gap_wake_block(self._heap, address)
        if found is None:
            check(code, f"wake_block of {address:#x}")
        else:
            self._check_tier(code, found[0], f"wake_block of {address:#x}")

    def put(self, spans: Spans, device: int = 0, stream: int = 0, place: Optional[str] = None) -> int:
        """Begins to copy the bytes of ``spans``, pairs of (address, bytes), to host memory or to the disk, behind what ``stream``
        was given so far; returns an item.

        ``place``: "host" or "disk"; None: host memory while there is room.  Nothing may be written there before :meth:`join` or :meth:`wait`.
        """
        item = c_uint64()
        if place not in _PLACES:
            raise ValueError(f"place {place!r}: 'host', 'disk', or None for host memory while there is room")
        code = library().gap_tier_put(
            self._heap, device, _spans(spans), len(spans), stream, _PLACES[place], byref(item)
        )
        self._check_tier(code, device, "put")
        return item.value

    def get(self, item: int, spans: Spans, device: int = 0, stream: int = 0, start: int = 0) -> None:
        """Begins to bring bytes of an item back, from ``start`` on, behind what ``stream`` was given so far."""
        code = library().gap_tier_get(self._heap, device, item, start, _spans(spans), len(spans), stream)
        self._check_tier(code, device, "get")

    def join(self, item: int, device: int = 0, stream: int = 0) -> None:
        """What ``stream`` is given from here on comes behind the puts and gets of an item; an error says why one failed."""
        self._check_tier(library().gap_tier_join(self._heap, device, item, stream), device, "join")

    def wait(self, item: int, device: int = 0) -> None:
        """Waits until nothing of an item is under way; an error says why something failed."""
        self._check_tier(library().gap_tier_wait(self._heap, device, item), device, "wait")

    def look(self, item: int, device: int = 0) -> Dict[str, int]:
        """The bytes of an item, what they take of host memory and of the disk, whether something is under way."""
        out = _library.ItemInfo(size=ctypes.sizeof(_library.ItemInfo))
        self._check_tier(library().gap_tier_look(self._heap, device, item, byref(out)), device, "look")
        return {name: getattr(out, name) for name, _type in _library.ItemInfo._fields_ if name != "size"}

    def drop(self, item: int, device: int = 0) -> None:
        """The item is no more; its room comes back when nothing of it is under way."""
        self._check_tier(library().gap_tier_drop(self._heap, device, item), device, "drop")

    def tiers(self, device: int = 0) -> Dict[str, int]:
        """Bytes of host memory that are locked, used, and could be had; what sleeps, what was saved and restored."""
        out = _library.TiersStruct(size=ctypes.sizeof(_library.TiersStruct))
        check(library().gap_get_tiers(self._heap, device, byref(out)), "tiers")
        return {name: getattr(out, name) for name, _type in _library.TiersStruct._fields_ if name != "size"}

    def _check_tier(self, code: int, device: int, what: str) -> None:
        if not code:
            return
        words = library().gap_strerror(code).decode()
        if not 0 <= device < self.device_count:
            raise _errors.error(code, f"{what}: there is no device {device}: the heap has {self.device_count}")
        try:
            words += f": {self.explain(device)}"
        except _errors.Error:
            pass  # in the child of a fork; the code says it
        raise _errors.error(code, f"{what} on device {device}: {words}")

    # ---- configuration ----

    def configure(self, conf: str) -> None:
        """Applies a configuration string at run time, all or nothing; "" goes back to the environment's."""
        with _library.messages() as lines:
            code = library().gap_configure(self._heap, conf.encode())
        _library.check_said(code, lines)

    def reload_environment(self) -> None:
        """Reads PYTORCH_CUDA_ALLOC_CONF, GAPLESS_CONF and the like again; what was configured by hand stays above
        them."""
        check(library().gap_configure(self._heap, None), "reload_environment")

    def conf_value(self, key: str) -> str:
        """The value in force of a key, as text."""
        text = ctypes.create_string_buffer(1280)
        check(library().gap_conf_value(self._heap, key.encode(), text, len(text)), f"key {key!r}")
        return text.value.decode(errors="replace")

    # ---- callbacks ----

    def on_oom(self, function: Optional[Callable[[int, int, int], bool]]) -> None:
        """``function(device, stream, bytes)`` is called where a request found no memory; True: something was freed, try
        again."""

        def call(_arg: Any, device: int, stream: int, size: int) -> int:
            try:
                return 1 if function and function(device, stream, size) else 0
            except Exception as reason:  # pylint: disable=broad-except
                say(f"on_oom: {reason!r}")
                return 0

        callback = _library.OOM_FN(call) if function else _library.OOM_FN()
        check(library().gap_set_oom(self._heap, callback, None), "on_oom")
        self._callbacks["oom"] = callback  # the library keeps the address only

    def on_event(self, function: Optional[Callable[[Event], None]]) -> None:
        """``function(event)`` is called for every event, under the heap's locks: it must not call the heap.

        Not for the default heap: code that holds the interpreter's lock (PyTorch) may wait for the heap's.
        """
        if not self._owned:
            raise ValueError("on_event: only for a heap of your own")

        def call(_arg: Any, event: Any) -> None:
            if function:
                function(_event(event.contents))

        callback = _library.EVENT_FN(call) if function else _library.EVENT_FN()
        check(library().gap_set_events(self._heap, callback, None), "on_event")
        self._callbacks["event"] = callback

    # ---- looking ----

    def usage(self, device: int = 0) -> Usage:
        """Bytes live, held, idle."""
        out = _library.UsageStruct(size=ctypes.sizeof(_library.UsageStruct))
        check(library().gap_get_usage(self._heap, device, byref(out)), "usage")
        return Usage(*(getattr(out, name) for name in Usage._fields))

    def stats(self, device: int = 0) -> Dict[str, int]:
        """Every figure by name: those of torch.cuda.memory_stats and gapless' own."""
        found: Dict[str, int] = {}

        def keep(_arg: Any, name: bytes, value: int) -> int:
            found[name.decode()] = value
            return 0

        check(library().gap_stats(self._heap, device, _library.STAT_FN(keep), None), "stats")
        return found

    def stat(self, name: str, device: int = 0) -> int:
        """One of them."""
        out = c_int64()
        check(library().gap_stat(self._heap, device, name.encode(), byref(out)), f"figure {name!r}")
        return out.value

    def reset_peaks(self, device: int = 0) -> None:
        """Peaks become what is now."""
        check(library().gap_reset_peaks(self._heap, device), "reset_peaks")

    def reset_accumulated(self, device: int = 0) -> None:
        """Totals become 0."""
        check(library().gap_reset_accumulated(self._heap, device), "reset_accumulated")

    def blocks(self, device: int = 0) -> List[Block]:
        """All blocks, in order of address within a segment."""
        found: List[Block] = []

        def keep(_arg: Any, block: Any) -> int:
            found.append(_block(block.contents))
            return 0

        check(library().gap_walk(self._heap, device, _library.BLOCK_FN(keep), None), "blocks")
        return found

    def find(self, address: int) -> Optional[Tuple[int, Block]]:
        """The device and the live or pending block that an address lies in; None when there is no such block."""
        raw, device = _library.BlockStruct(), c_int()
        code = library().gap_find_block(self._heap, address, byref(raw), byref(device))
        if code in (_errors.GAP_ENOTMINE, _errors.GAP_EFREED):
            return None
        check(code, f"find {address:#x}")
        return device.value, _block(raw)

    def _text(self, function: Any, device: int) -> str:
        needed = c_size_t()
        text = ctypes.create_string_buffer(16384)
        check(function(self._heap, device, text, len(text), byref(needed)), "text")
        if needed.value >= len(text):  # it may grow in between; what is cut then is cut
            text = ctypes.create_string_buffer(needed.value + 4096)
            check(function(self._heap, device, text, len(text), byref(needed)), "text")
        return text.value.decode(errors="replace")

    def memory_summary(self, device: int = 0) -> str:
        """A page for a person."""
        return self._text(library().gap_summary, device)

    def explain(self, device: int = 0) -> str:
        """Why the last failed request failed, in plain words; "" when none did."""
        return self._text(library().gap_explain, device)

    def check(self, device: int = 0) -> None:
        """Checks every invariant (milliseconds to seconds); Error with the first one that is broken."""
        text = ctypes.create_string_buffer(1024)
        code = library().gap_check(self._heap, device, text, len(text))
        if code < 0:
            raise _errors.error(code, text.value.decode(errors="replace") or library().gap_strerror(code).decode())


class HeapPool:
    """A private pool of a heap: its blocks lie apart from others'.

    In a ``with`` block, allocations of this thread on this heap and device come from it.  Idle pages serve everybody
    when ``shared``, else only this pool until it is closed.  ``contiguous``: every block lies inside one driver
    allocation. The pool ends with :meth:`close`, or with the object; live blocks stay valid until they are freed.
    """

    def __init__(self, heap: Heap, tag: Optional[str], contiguous: bool, device: int, shared: bool) -> None:
        flags = _POOL_CONTIGUOUS if contiguous else _POOL_SHARED if shared else _POOL_PRIVATE
        out = PoolId()
        check(library().gap_pool_create(heap._heap, device, flags, tag.encode() if tag else None, byref(out)), "pool")
        self.heap, self.device, self.tag = heap, device, tag
        self.id: Tuple[int, int] = (out.first, out.second)
        self._open = True

    def close(self) -> None:
        """Its idle memory becomes anybody's."""
        if self._open:
            self._open = False
            check(library().gap_pool_release(self.heap._heap, self.device, PoolId(*self.id)), "pool")

    def __enter__(self) -> "HeapPool":
        _entered().append(self)
        return self

    def __exit__(self, *_exception: object) -> None:
        _entered().remove(self)

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # pylint: disable=broad-except
            pass  # the heap was closed first


_thread = threading.local()


def _entered() -> List[HeapPool]:
    if not hasattr(_thread, "pools"):
        _thread.pools = []
    return _thread.pools


def _innermost(heap: Heap, device: int) -> Iterator[HeapPool]:
    return (pool for pool in reversed(_entered()) if pool.heap._handle is heap._handle and pool.device == device)


def _pool_id(heap: Heap, device: int, pool: Union[HeapPool, Tuple[int, int], None]) -> Tuple[int, int]:
    if pool is None:
        pool = next(_innermost(heap, device), None)
    return pool.id if isinstance(pool, HeapPool) else pool or _DEFAULT_POOL


_default: Optional[Heap] = None
_default_conf: Optional[str] = None  # for when it is made
_default_lock = threading.Lock()


def default_heap() -> Heap:
    """The process's own heap on CUDA, made at the first call; PyTorch, CuPy and Numba under gapless use it too."""
    global _default
    with _default_lock:
        if _default is None or _default._handle is None:
            handle = c_void_p()
            with _library.messages() as lines:
                code = library().gap_heap_default(byref(handle))
            _library.check_said(code, lines)
            _default = Heap._borrow(handle)
            if _default_conf is not None:
                _default.configure(_default_conf)
        return _default


def opened_default() -> Optional[Heap]:
    """The default heap where somebody in this process has asked for it through Python; it is not made."""
    return _default


def configure_default(conf: str, done: bool) -> None:
    """Configures the default heap: now, when it has been made here, and else when it is; `done`: somebody has."""
    global _default_conf
    with _default_lock:
        if not done and _default is not None and _default._handle is not None:
            _default.configure(conf)
        _default_conf = conf
