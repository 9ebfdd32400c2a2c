"""The two ways into PyTorch: (a) the shim, everything; (b) CUDAPluggableAllocator, where the shim cannot be built."""

import ctypes
import os
from types import ModuleType
from typing import Any, Optional, Tuple

from . import _pluggable, _shim
from ._library import library
from ._say import say

LOST = (
    "memory statistics, snapshots, torch.OutOfMemoryError (a RuntimeError instead), MemPool, IPC, "
    "cudagraph trees of torch.compile and torch.accelerator's memory functions"
)


def _missing() -> str:
    """What is missing on this machine, seen without starting the driver: a fork may follow."""
    try:
        library()
    except OSError as reason:
        return f"the library cannot be loaded: {reason}"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as reason:
        return f"no CUDA driver: {reason}"
    return ""


def open_door(torch: ModuleType, conf: Optional[str]) -> Tuple[Any, str]:
    """The best door that opens, or None and the reason.  GAPLESS_DOOR=a or b allows only that one."""
    only = os.environ.get("GAPLESS_DOOR", "").lower()
    reason = _missing()
    if reason:
        return None, reason
    if only != "b":
        try:
            return _shim.Shim(torch, conf), ""
        except _shim.Refused as reason:
            return None, str(reason)
        except _shim.NoShim as reason:
            if only == "a":
                return None, str(reason)
            say(f"{reason}; CUDAPluggableAllocator is used instead: without {LOST}")
    try:
        return _pluggable.Pluggable(torch, conf), ""
    except _pluggable.Refused as reason:
        return None, str(reason)
