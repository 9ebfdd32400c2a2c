"""CuPy's device memory from gapless: ``gapless.cupy.enable()``.

The heap is the default heap, so PyTorch under gapless and CuPy share their idle pages.  As with CuPy's own pool, memory
belongs to the stream that is current at its allocation, and use on another stream must have ended (or be waited for)
when the array is freed.
"""

import ctypes
import sys
from typing import Any, Callable, Optional

from ._library import library
from ._say import say
from .heap import Heap, default_heap

__all__ = ["enable", "disable", "malloc"]


class _Memory:
    """Owns one block; CuPy keeps it as long as an array looks at it."""

    __slots__ = ("_heap", "address")

    def __init__(self, heap: Heap, size: int, device: int, stream: int) -> None:
        self._heap = heap
        self.address = 0
        self.address = heap.alloc(size, device, stream, pool=(0, 0))

    def __del__(self) -> None:
        address, self.address = self.address, 0
        try:
            if address:
                self._heap.free(address)
        except Exception as reason:  # pylint: disable=broad-except
            if not sys.is_finalizing():
                say(f"CuPy: {reason}")


class _With(ctypes.Structure):
    """gap_cupy of gapless/cupy.h."""

    _fields_ = [("heap", ctypes.c_void_p), ("current_stream", ctypes.c_void_p)]


def _c_allocator() -> Optional[Callable[[int], Any]]:
    """CuPy's allocator over functions in C, told the stream by CuPy's own; None where CuPy does not offer the two.

    Its blocks cost a tenth of those that Python makes.  It does not look at what it gets: NULL is a failure.
    """
    import cupy

    try:
        from cupy_backends.cuda import stream

        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        current_stream = pointer_of(stream.__pyx_capi__["get_current_stream_ptr"], b"intptr_t (void)")
        kind = cupy.cuda.CFunctionAllocator
    except (ImportError, AttributeError, KeyError, ValueError):
        return None
    functions = library()
    shared = _With(default_heap()._heap, current_stream)
    alloc, free = (
        ctypes.cast(function, ctypes.c_void_p).value for function in (functions.gap_cupy_alloc, functions.gap_cupy_free)
    )
    made = kind(ctypes.addressof(shared), alloc, free, shared)
    return made.malloc


_fast: Optional[Callable[[int], Any]] = None


def malloc(size: int) -> Any:
    """What cupy.cuda.set_allocator wants: a MemoryPointer on the current device and stream."""
    if _fast is not None:
        pointer = _fast(size)
        if pointer.ptr or not size:
            return pointer
    return _malloc_here(size)  # or the reason why not, as an exception


def _malloc_here(size: int) -> Any:
    import cupy

    device = cupy.cuda.device.get_device_id()
    owner = _Memory(default_heap(), size, device, cupy.cuda.get_current_stream().ptr)
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(owner.address, size, owner, device), 0)


def enable() -> None:
    """Every array that CuPy makes from now on lies in gapless' memory; NotSupportedError where there is no driver."""
    global _fast
    import cupy

    default_heap()
    if _fast is None:
        _fast = _c_allocator()
    cupy.cuda.set_allocator(malloc)


def disable() -> None:
    """Back to CuPy's own pool; arrays that live stay valid."""
    import cupy

    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
