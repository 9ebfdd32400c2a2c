"""gapless.pool(): a private pool by the means of whoever allocates in this process."""

import sys
from typing import Any, Optional, Tuple

from .heap import HeapPool, default_heap

_SHARED, _CONTIGUOUS = 1, 2


class TorchPool:
    """A torch.cuda.MemPool with a tag, entered by ``with``; kept as long as this object lives."""

    def __init__(self, torch: Any, tag: Optional[str], contiguous: bool, device: Any) -> None:
        from . import _nccl, _torch

        torch.cuda.init()
        self.tag, self.device = tag, device
        self.mem_pool = torch.cuda.MemPool()
        self._torch = torch
        self._entered: "list[Any]" = []
        if _torch.state.door is not None:  # torch's own segments are one driver allocation each anyhow
            _torch.state.door.pool_flags(self.id, _CONTIGUOUS if contiguous else _SHARED, tag)
            if contiguous:
                _nccl.contiguous.add(self.id)

    @property
    def id(self) -> Tuple[int, int]:
        """The id that snapshots show."""
        return tuple(self.mem_pool.id)  # type: ignore[return-value]

    def __enter__(self) -> "TorchPool":
        context = self._torch.cuda.use_mem_pool(self.mem_pool, self.device)
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._entered.pop().__exit__(*exception)


def pool(tag: Optional[str], contiguous: bool, device: Any, heap: Any) -> Any:
    """See gapless.pool()."""
    torch = sys.modules.get("torch")
    if heap is None and torch is not None and hasattr(torch, "cuda") and torch.cuda.is_available():
        return TorchPool(torch, tag, contiguous, device)
    return HeapPool(heap if heap is not None else default_heap(), tag, contiguous, device or 0, True)
