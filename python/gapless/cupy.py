"""CuPy's device memory from gapless: ``gapless.cupy.enable()``.

The heap is the default heap, so PyTorch under gapless and CuPy share their idle pages.  As with CuPy's own pool, memory
belongs to the stream that is current at its allocation, and use on another stream must have ended (or be waited for)
when the array is freed.
"""

import sys
from typing import Any

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


def malloc(size: int) -> Any:
    """What cupy.cuda.set_allocator wants: a MemoryPointer on the current device and stream."""
    import cupy

    device = cupy.cuda.device.get_device_id()
    owner = _Memory(default_heap(), size, device, cupy.cuda.get_current_stream().ptr)
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(owner.address, size, owner, device), 0)


def enable() -> None:
    """Every array that CuPy makes from now on lies in gapless' memory; NotSupportedError where there is no driver."""
    import cupy

    default_heap()
    cupy.cuda.set_allocator(malloc)


def disable() -> None:
    """Back to CuPy's own pool; arrays that live stay valid."""
    import cupy

    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
