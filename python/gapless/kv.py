"""The KV cache: :class:`Cache`, KV pages and block tables, and :class:`Ranges`, contiguous addresses with memory on demand.

Both lie in a :class:`gapless.Heap`; kv.h, kv_kernels.h and kv_virtual.h are the manuals of what the calls do.  Addresses, streams and strides are numbers.
"""

import ctypes
import weakref
from ctypes import byref, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _errors, _kv, _library
from .heap import Heap

__all__ = ["Cache", "Ranges", "GRANTED", "PREEMPTED", "WAITING"]

PAGE = 2 << 20
GRANTED, PREEMPTED, WAITING = 0, 1, 2
_DTYPES = {"bfloat16": 0, "float16": 1, "float32": 2, "float8_e4m3fn": 3, "float8_e5m2": 4}
_SHARING = {"off": 0, "fast": 1, "sha256": 2}
_NO_CEILING, _NO_KERNELS = 4, 8
_RANGES_SHARING, _RANGES_NO_THREAD = 1, 2
_AGAIN = -7  # GAP_EAGAIN


def _check(code: int, lines: List[str], what: str) -> None:
    if code < 0:
        said = "; ".join(lines) or _kv.load().gap_strerror(code).decode()
        raise _errors.error(code, f"{what}: {said}")


class _Owned:
    """A handle that goes with the object, before the heap it lies in."""

    def __init__(self, heap: Heap, handle: c_void_p, destroy: Any) -> None:
        self.heap = heap
        self._handle: Optional[c_void_p] = handle
        self._finalizer = weakref.finalize(self, _Owned._end, destroy, handle, heap)
        self._finalizer.atexit = False  # the process takes its memory with it

    @staticmethod
    def _end(destroy: Any, handle: c_void_p, _heap: Heap) -> None:
        destroy(handle)

    def close(self) -> None:
        """Gives everything back; nothing else may be called any more."""
        self._handle = None
        self._finalizer()

    @property
    def _h(self) -> c_void_p:
        if self._handle is None:
            raise ValueError("it is closed")
        return self._handle


class Cache(_Owned):
    """A paged KV cache of a model's shape.  Sequences are numbers."""

    def __init__(
        self,
        heap: Heap,
        layers: int,
        heads: int,
        head_size: int,
        *,
        bytes: int,  # pylint: disable=redefined-builtin
        dtype: str = "bfloat16",
        page_tokens: int = 16,
        sequences: int = 256,
        tokens: int = 131072,
        device: int = 0,
        stream: int = 0,
        copy_stream: Optional[int] = None,
        head_first: bool = False,
        block_major: bool = False,
        windows: Sequence[int] = (),
        host_bytes: int = 0,
        sharing: str = "off",
        kernels: bool = True,
    ) -> None:
        spans = (c_uint32 * len(windows))(*windows) if windows else None
        options = _kv.Options(
            size=ctypes.sizeof(_kv.Options),
            device=device,
            stream=stream,
            copy_stream=stream if copy_stream is None else copy_stream,
            layers=layers,
            heads=heads,
            head_size=head_size,
            dtype=_DTYPES[dtype],
            page_tokens=page_tokens,
            order=int(head_first),
            layout=int(block_major),
            group_count=max(len(windows), 1),
            windows=spans,
            sequences=sequences,
            tokens=tokens,
            bytes=bytes,
            host_bytes=host_bytes,
            sharing=_SHARING[sharing],
            flags=_NO_CEILING | (0 if kernels else _NO_KERNELS),
            pin_percent=50,
        )
        handle = c_void_p()
        self._lib = _kv.load()
        with _library.messages() as lines:
            code = self._lib.gap_kv_create(heap._heap, byref(options), byref(handle))
        _check(code, lines, "KV cache")
        super().__init__(heap, handle, self._lib.gap_kv_destroy)
        self.stream = stream
        self.shape = _kv.Shape(size=ctypes.sizeof(_kv.Shape))
        self._do(self._lib.gap_kv_get_shape(self._h, byref(self.shape)), "shape")

    def _do(self, code: int, what: str) -> None:
        if code < 0:
            _check(code, [], what)

    # ---- sequences ----

    def open(self, tokens: Optional[Sequence[int]] = None, tenant: int = 0, session: int = 0) -> Tuple[int, int]:
        """A new sequence, and how many of the prompt's tokens it has already."""
        seq, hit = c_uint64(), c_uint32()
        ids = (c_int32 * len(tokens))(*tokens) if tokens else None
        prompt = _kv.Prompt(ctypes.sizeof(_kv.Prompt), tenant, session, ids, len(tokens) if tokens else 0)
        self._do(self._lib.gap_kv_open(self._h, byref(prompt), byref(seq), byref(hit)), "open")
        return seq.value, hit.value

    @staticmethod
    def _requests(seqs: Sequence[int], counts: Sequence[int], ids: Optional[Sequence[Sequence[int]]]) -> Any:
        requests = (_kv.Request * len(seqs))()
        for i, (request, seq, count) in enumerate(zip(requests, seqs, counts)):
            request.seq, request.tokens = seq, count
            if ids is not None:
                request.ids = (c_int32 * count)(*ids[i])
        return requests

    def append(self, seqs: Sequence[int], counts: Sequence[int], ids: Optional[Sequence[Sequence[int]]] = None) -> None:
        """Places for so many more tokens of each: all, or OutOfMemoryError and nothing has changed."""
        requests = self._requests(seqs, counts, ids)
        self._do(self._lib.gap_kv_append(self._h, requests, len(requests)), "append")

    def step(
        self, seqs: Sequence[int], counts: Sequence[int], ids: Optional[Sequence[Sequence[int]]] = None
    ) -> List[int]:
        """A step of continuous batching: GRANTED, PREEMPTED or WAITING for each; the oldest are served first."""
        requests = self._requests(seqs, counts, ids)
        self._do(self._lib.gap_kv_step(self._h, requests, len(requests)), "step")
        return [request.outcome for request in requests]

    def fork(self, seq: int) -> int:
        """A second sequence with the same tokens; nothing is copied."""
        out = c_uint64()
        self._do(self._lib.gap_kv_fork(self._h, seq, byref(out)), "fork")
        return out.value

    def truncate(self, seq: int, tokens: int) -> None:
        """Keeps the first tokens."""
        self._do(self._lib.gap_kv_truncate(self._h, seq, tokens), "truncate")

    def end(self, seq: int, stream: Optional[int] = None) -> None:
        """The sequence's last use was queued on `stream` (the cache's)."""
        self._do(self._lib.gap_kv_close(self._h, seq, self.stream if stream is None else stream), "close")

    def about(self, seq: int) -> _kv.About:
        """row, tokens, kv_pages, shared_kv_pages, runs, swapped."""
        out = _kv.About(ctypes.sizeof(_kv.About))
        self._do(self._lib.gap_kv_get_about(self._h, seq, byref(out)), "about")
        return out

    def flush(self) -> None:
        """Copies and table entries that the next step needs, on the cache's stream."""
        self._do(self._lib.gap_kv_flush(self._h), "flush")

    def slots(self, seq: int, start: int, count: int, group: int = 0) -> List[int]:
        """Where tokens are: id * page_tokens + token in the KV page."""
        out = (c_int64 * count)()
        self._do(self._lib.gap_kv_slots(self._h, group, seq, start, count, out), "slots")
        return list(out)

    # ---- under pressure ----

    def swap_out(self, seq: int) -> None:
        """To pinned host memory."""
        self._do(self._lib.gap_kv_swap_out(self._h, seq), "swap out")

    def swap_in(self, seq: int) -> None:
        """And back, before the next step."""
        self._do(self._lib.gap_kv_swap_in(self._h, seq), "swap in")

    def compact(self) -> _kv.Compaction:
        """Moves KV pages so that slabs empty; what it did."""
        out = _kv.Compaction(ctypes.sizeof(_kv.Compaction))
        self._do(self._lib.gap_kv_compact(self._h, byref(out)), "compact")
        return out

    def resize(self, size: int) -> None:
        """From now on at most so many bytes; OutOfMemoryError: what is in use needs more, for the time being."""
        self._do(self._lib.gap_kv_resize(self._h, size), "resize")

    def trim(self) -> int:
        """Gives empty slabs back; bytes."""
        pages = c_uint64()
        self._do(self._lib.gap_kv_trim(self._h, byref(pages)), "trim")
        return pages.value * PAGE

    def forget(self) -> None:
        """Drops what is cached and unused."""
        self._do(self._lib.gap_kv_forget(self._h), "forget")

    # ---- below the device ----

    def open_tiers(
        self,
        model: Optional[str] = None,
        *,
        host_bytes: Optional[int] = None,
        disk_bytes: Optional[int] = None,
        token_ns: int = 0,
        fetch_ms: int = 1000,
    ) -> None:
        """KV pages go to the places of the heap's key ``tiers`` before they are evicted, and to its servers under the name of ``model``; kv_tiers.h."""
        whole = 2**64 - 1
        options = _kv.TiersOptions(
            size=ctypes.sizeof(_kv.TiersOptions),
            model=None if model is None else model.encode(),
            host_bytes=whole if host_bytes is None else host_bytes,
            disk_bytes=whole if disk_bytes is None else disk_bytes,
            token_ns=token_ns,
            fetch_ms=fetch_ms,
        )
        words = ctypes.create_string_buffer(400)
        code = self._lib.gap_kv_tiers_open(self._h, byref(options), words, len(words))
        _check(code, [words.value.decode(errors="replace")], "tiers")

    def fetch(self, tokens: Sequence[int], tenant: int = 0) -> int:
        """Begins to bring up what of the prompt is below; a ticket."""
        ticket = c_uint64()
        ids = (c_int32 * len(tokens))(*tokens)
        prompt = _kv.Prompt(ctypes.sizeof(_kv.Prompt), tenant, 0, ids, len(tokens))
        self._do(self._lib.gap_kv_fetch(self._h, byref(prompt), byref(ticket)), "fetch")
        return ticket.value

    def fetched(self, ticket: int, timeout_ms: int = 0) -> Optional[int]:
        """How many tokens of the prompt were on the device when the fetch ended; None: it goes on still."""
        tokens = c_uint32()
        if timeout_ms:
            code = self._lib.gap_kv_fetch_wait(self._h, ticket, timeout_ms, byref(tokens))
        else:
            code = self._lib.gap_kv_fetch_poll(self._h, ticket, byref(tokens))
        if code == _AGAIN:
            return None
        self._do(code, "fetch")
        return tokens.value

    def tell_computed(self, tokens: int, seconds: float) -> None:
        """A step has computed so many tokens of prompts: what fetches are compared with."""
        self._do(self._lib.gap_kv_tell_computed(self._h, tokens, max(int(seconds * 1e9), 1)), "tell_computed")

    def drain(self, timeout_ms: int = 60000, *, everything: bool = False) -> bool:
        """Waits until nothing goes down or up; ``everything``: when all that nobody uses has gone down.  False: something still does."""
        call = self._lib.gap_kv_tiers_store if everything else self._lib.gap_kv_tiers_drain
        code = call(self._h, timeout_ms)
        if code != _AGAIN:
            self._do(code, "drain")
        return code != _AGAIN

    def tier_stats(self) -> Dict[str, int]:
        """Every figure of gap_kv_tier_stats."""
        out = _kv.TierStats(ctypes.sizeof(_kv.TierStats))
        self._do(self._lib.gap_kv_get_tier_stats(self._h, byref(out)), "tier stats")
        return {name: getattr(out, name) for name, _ in out._fields_[2:]}

    def stats(self) -> Dict[str, int]:
        """Every figure of gap_kv_stats."""
        out = _kv.Stats(ctypes.sizeof(_kv.Stats))
        self._do(self._lib.gap_kv_get_stats(self._h, byref(out)), "stats")
        return {name: getattr(out, name) for name, _ in _kv.Stats._fields_[1:]}

    def check(self) -> None:
        """Checks every invariant."""
        text = ctypes.create_string_buffer(1024)
        code = self._lib.gap_kv_check(self._h, text, len(text))
        _check(code, [text.value.decode(errors="replace")], "check")

    # ---- kernels ----

    def why_no_kernels(self) -> str:
        """ "" where there are kernels."""
        text = ctypes.create_string_buffer(2048)
        return "" if self._lib.gap_kv_kernels(self._h, text, len(text)) == 0 else text.value.decode(errors="replace")

    def move(self, into: bool, layer: int, places: _kv.Places, tokens: _kv.Tokens, stream: int, group: int = 0) -> None:
        """Scatter (into the cache) or gather."""
        function = self._lib.gap_kv_scatter if into else self._lib.gap_kv_gather
        self._do(function(self._h, group, layer, byref(places), byref(tokens), stream), "scatter" if into else "gather")

    def attention_workspace(self, attention: _kv.Attention) -> int:
        """Bytes that the call needs."""
        out = c_uint64()
        self._do(self._lib.gap_kv_attention_workspace(self._h, byref(attention), byref(out)), "attention")
        return out.value

    def attend(self, attention: _kv.Attention, stream: int) -> None:
        """Attention of one token a sequence."""
        self._do(self._lib.gap_kv_attend(self._h, byref(attention), stream), "attention")


class Ranges(_Owned):
    """Ranges of contiguous addresses, behind which pages of 2 MiB come as they grow, mapped ahead by a thread."""

    def __init__(
        self,
        heap: Heap,
        count: int,
        range_bytes: int,
        *,
        device: int = 0,
        stream: int = 0,
        ahead_bytes: int = PAGE,
        sharing: bool = False,
        thread: bool = True,
    ) -> None:
        flags = (_RANGES_SHARING if sharing else 0) | (0 if thread else _RANGES_NO_THREAD)
        options = _kv.VirtualOptions(
            ctypes.sizeof(_kv.VirtualOptions), device, stream, count, range_bytes, ahead_bytes, flags
        )
        handle = c_void_p()
        self._lib = _kv.load()
        with _library.messages() as lines:
            code = self._lib.gap_kv_virtual_create(heap._heap, byref(options), byref(handle))
        _check(code, lines, "ranges")
        super().__init__(heap, handle, self._lib.gap_kv_virtual_destroy)
        about = self.about()
        self.base, self.stride, self.device = about.base, about.stride, device

    def about(self) -> _kv.VirtualAbout:
        """base, stride, bytes_held, bytes_shared, pages_ahead, pages_late."""
        out = _kv.VirtualAbout(ctypes.sizeof(_kv.VirtualAbout))
        _check(self._lib.gap_kv_virtual_get_about(self._h, byref(out)), [], "ranges")
        return out

    def address(self, index: int) -> int:
        """Where a range begins."""
        return self.base + index * self.stride

    def grow(self, first: int, count: int, size: int) -> None:
        """Memory behind the first `size` bytes of `count` ranges."""
        code = self._lib.gap_kv_virtual_grow(self._h, first, count, size)
        if code < 0:
            _check(code, [], f"ranges: {size} bytes")

    def shrink(self, first: int, count: int, size: int) -> None:
        """Gives up what is beyond."""
        _check(self._lib.gap_kv_virtual_shrink(self._h, first, count, size), [], "ranges")

    def share(self, to: int, source: int, count: int, size: int) -> None:
        """The first `size` bytes of ranges from `source` on also stand behind those from `to` on."""
        _check(self._lib.gap_kv_virtual_share(self._h, to, source, count, size), [], "ranges")
