"""NCCL's registration of a pool as user buffers: a block in several driver allocations would be taken for its first one.

A pool whose blocks lie so is left unregistered, in words: NCCL then copies through its own buffers, with the same
results.  A pool without a block yet is made contiguous, and registered.
"""

from types import ModuleType
from typing import Any, Callable, Set, Tuple

from ._say import say

_CONTIGUOUS = 2
_WORDS = (
    "the blocks of this pool lie in several driver allocations, which NCCL cannot register as one buffer; "
    "gapless.pool(contiguous=True), or a pool registered before its first block, can be"
)
_left_out: Set[Tuple[int, ...]] = set()  # pools by id
contiguous: Set[Tuple[int, ...]] = set()  # pools that were made so; ids do not come again


def attach(torch: ModuleType) -> None:
    """Wraps the two calls where this torch has NCCL."""
    group = getattr(getattr(torch._C, "_distributed_c10d", None), "ProcessGroupNCCL", None)
    if group is None or not hasattr(group, "register_mem_pool"):
        return
    group.register_mem_pool = _wrap_register(torch, group.register_mem_pool)
    group.deregister_mem_pool = _wrap_deregister(group.deregister_mem_pool)


def _wrap_register(torch: ModuleType, register: Callable[..., Any]) -> Callable[..., Any]:
    def register_mem_pool(self: Any, pool: Any, *words: Any, **named: Any) -> Any:
        if _can_register(torch, pool):
            return register(self, pool, *words, **named)
        if named.get("symm", words[:1] == (True,)):  # a window is no mere hint
            raise RuntimeError(f"gapless: register_mem_pool: {_WORDS}")
        _left_out.add(tuple(pool.id))
        say(f"register_mem_pool: not registered: {_WORDS}")
        return None

    return register_mem_pool


def _wrap_deregister(deregister: Callable[..., Any]) -> Callable[..., Any]:
    def deregister_mem_pool(self: Any, pool: Any) -> Any:
        if tuple(pool.id) in _left_out:
            _left_out.discard(tuple(pool.id))
            return None
        return deregister(self, pool)

    return deregister_mem_pool


def _can_register(torch: ModuleType, pool: Any) -> bool:
    """Memory of another allocator is none of our business; ours must be contiguous, or become it."""
    from . import _torch

    door = _torch.state.door
    if door is None or not hasattr(door, "pool_flags") or getattr(pool, "allocator", None) is not None:
        return True
    if tuple(pool.id) in contiguous:
        return True
    segments = torch.cuda.memory_snapshot(pool.id)
    if segments:
        return not any(segment["is_expandable"] for segment in segments)
    try:
        door.pool_flags(tuple(pool.id), _CONTIGUOUS, None)
    except Exception:  # pylint: disable=broad-except
        return False  # it has had blocks, and gets others of their kind
    contiguous.add(tuple(pool.id))
    return True
