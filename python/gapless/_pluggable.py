"""Door (b): torch's CUDAPluggableAllocator over functions of libgapless.so, with every hook set."""

import ctypes
import os
from types import ModuleType
from typing import Any, Optional

from . import _library
from ._errors import Error
from ._library import library
from .heap import Heap, default_heap

# torch's setter on the allocator object, and the function that it is given.
_HOOKS = (
    ("set_init_fn", "gap_torch_init"),
    ("set_reset_fn", "gap_torch_reset"),
    ("set_memory_fraction_fn", "gap_torch_memory_fraction"),
    ("set_base_alloc_fn", "gap_torch_base_alloc"),
    ("set_record_stream_fn", "gap_torch_record_stream"),
    ("set_begin_allocate_to_pool", "gap_torch_begin_pool"),
    ("set_end_allocate_to_pool_fn", "gap_torch_end_pool"),
    ("set_release_pool", "gap_torch_release_pool"),
)
# c10::detail::torchCheckFail(const char*, const char*, unsigned, const char*)
_THROW = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"


class Refused(Exception):
    """The driver, or torch, does not let us in."""


class Pluggable:
    """The default heap behind CUDAPluggableAllocator."""

    name = "b"
    description = "CUDAPluggableAllocator (no statistics, snapshots or MemPool)"

    def __init__(self, torch: ModuleType, conf: Optional[str]) -> None:
        self._conf = conf
        self._torch_objects: Any = None
        memory = torch.cuda.memory
        if not hasattr(memory, "CUDAPluggableAllocator"):
            raise Refused("this PyTorch has no CUDAPluggableAllocator")
        self._allocator = memory.CUDAPluggableAllocator(_library.path(), "gap_torch_alloc", "gap_torch_free")
        self._set_hooks()
        self._lend_thrower(torch)
        self._swapped = False

    def _set_hooks(self) -> None:
        inner = self._allocator.allocator()
        for setter, function in _HOOKS:
            if hasattr(inner, setter):
                getattr(inner, setter)(_library.address(function))

    @staticmethod
    def _lend_thrower(torch: ModuleType) -> None:
        try:
            c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__ or ""), "lib", "libc10.so"))
            thrower = ctypes.cast(getattr(c10, _THROW), ctypes.c_void_p)
        except (OSError, AttributeError):
            return  # a failing allocation gives NULL and a line on standard error
        library().gap_torch_set_throw(thrower)

    def about_to_start(self, torch: ModuleType) -> None:
        """Looks whether there is a driver that suffices, and swaps torch's allocator.  Raises Refused."""
        if self._swapped:
            return
        try:
            heap = default_heap()
            if self._conf is not None:
                heap.configure(self._conf)
        except Error as reason:
            raise Refused(str(reason)) from None
        torch.cuda.memory.change_current_allocator(self._allocator)
        self._swapped = True

    def started(self) -> str:
        """ "" when it serves, else why not."""
        return "" if self._swapped else "it was not asked in time"

    def serving(self) -> bool:
        """Whether new blocks are ours now."""
        return self._swapped

    def heap(self) -> Optional[Heap]:
        """The heap behind it."""
        return default_heap() if self._swapped else None

    def configure(self, conf: str) -> None:
        """Applies a string: at once, or at the start."""
        if self._swapped:
            default_heap().configure(conf)
        self._conf = conf

    def reload_environment(self) -> None:
        """Reads the variables again."""
        if self._swapped:
            default_heap().reload_environment()

    def show_settings(self, text: str) -> None:
        """There is no snapshot to show them in."""

    def explain(self, device: int) -> str:
        """The diagnosis of the last failure."""
        return default_heap().explain(device) if self._swapped else ""

    def pool_flags(self, _pool: Any, _flags: int, _tag: Optional[str]) -> None:
        """MemPool does not exist behind this door."""
        raise NotImplementedError("gapless.pool needs the shim: CUDAPluggableAllocator has no MemPool")

    def suspend(self) -> str:
        """torch cannot be given its own allocator back."""
        return "CUDAPluggableAllocator cannot be taken out again"

    def resume(self) -> bool:
        """It was never out."""
        return True
