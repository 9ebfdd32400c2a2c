"""Numba's device memory from gapless: ``NUMBA_CUDA_MEMORY_MANAGER=gapless.numba``, or ``gapless.numba.enable()`` before
CUDA starts.

A plugin of Numba's external memory management, over the default heap that PyTorch and CuPy under gapless use too.

Numba does not say on which stream it will use an array.  So arrays belong to a stream of the manager's own, on which
nothing else runs, and are freed behind an event on the legacy default stream, which waits for all work of the context's
blocking streams (Numba makes no others): memory is used again only after that.
"""

import contextlib
import ctypes
import weakref
from typing import Any, Callable, Iterator

from numba import cuda
from numba.cuda.cudadrv import driver

from ._say import say
from .heap import Heap, default_heap

__all__ = ["GaplessManager", "enable"]

_LEGACY_STREAM = 0


def _number(handle: Any) -> int:
    """A handle of any of Numba's bindings as an integer."""
    value = getattr(handle, "value", handle)
    return int(value or 0)


def _pointer(address: int) -> Any:
    make = getattr(getattr(driver, "binding", None), "CUdeviceptr", ctypes.c_uint64)
    return make(address)


def _finalizer(heap: Heap, address: int) -> Callable[[], None]:
    def free() -> None:
        try:
            heap.free(address, _LEGACY_STREAM)
        except Exception as reason:  # pylint: disable=broad-except
            say(f"Numba: {reason}")

    return free


class GaplessManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Device memory from the default heap; pinned and managed memory stay Numba's."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._stream: Any = None

    def initialize(self) -> None:
        """Nothing: the heap opens itself with the first array."""

    def _owner(self) -> int:
        if self._stream is None:
            self._stream = self.context.create_stream()
        return _number(self._stream.handle)

    def memalloc(self, size: int) -> Any:
        """Device memory of the current context's device."""
        heap = default_heap()
        address = heap.alloc(size, int(self.context.device.id), self._owner(), pool=(0, 0))
        pointer = cuda.MemoryPointer(
            weakref.proxy(self.context),
            _pointer(address),
            size,
            finalizer=_finalizer(heap, address) if address else None,
        )
        return pointer

    def get_memory_info(self) -> Any:
        """Free and total bytes of the card, all programs together."""
        usage = default_heap().usage(int(self.context.device.id))
        return driver.MemoryInfo(free=usage.card_free_bytes, total=usage.card_total_bytes)

    def get_ipc_handle(self, memory: Any) -> Any:
        """Mapped pages have no cudaIpc handle."""
        raise NotImplementedError(
            "gapless.numba shares no memory between processes; PyTorch's tensors under gapless can be"
        )

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Frees never wait, so only Numba's own cleanup is put off."""
        with super().defer_cleanup():
            yield

    @property
    def interface_version(self) -> int:
        """Of Numba's plugin interface."""
        return 1


_numba_memory_manager = GaplessManager


def enable() -> None:
    """Every array that Numba makes lies in gapless' memory; call it before Numba starts CUDA."""
    cuda.set_memory_manager(GaplessManager)
