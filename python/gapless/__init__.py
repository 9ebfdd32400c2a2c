"""gapless: a GPU memory manager without gaps, for PyTorch, CuPy, Numba and by hand.

For PyTorch one variable is enough (``PYTORCH_CUDA_ALLOC_CONF=backend:gapless``), or ``gapless run python train.py``,
or::

    import gapless
    gapless.enable()            # before CUDA starts

Everything of torch.cuda's memory functions then speaks of gapless' memory; :func:`stats` has more.  :class:`Heap` is
the allocator by itself, for CUDA or (for tests) host memory.  Importing this package loads nothing and changes nothing.
"""

import sys
from typing import TYPE_CHECKING, Any, Dict, Optional, Union

if TYPE_CHECKING:
    from ._errors import ConfigError, Error, NotSupportedError, OutOfMemoryError
    from .heap import Block, Event, Heap, HeapPool, Usage, default_heap

__version__ = "0.1.0"

__all__ = [
    "enable",
    "disable",
    "is_enabled",
    "pool",
    "stats",
    "memory_summary",
    "explain",
    "configure",
    "defragment",
    "hint_cold",
    "reserve_host",
    "sleep",
    "wake",
    "offload_activations",
    "offload_optimizer",
    "info",
    "Heap",
    "HeapPool",
    "Block",
    "Event",
    "Usage",
    "default_heap",
    "Error",
    "OutOfMemoryError",
    "ConfigError",
    "NotSupportedError",
]

_HEAP_NAMES = ("Heap", "HeapPool", "Block", "Event", "Usage", "default_heap")
_ERROR_NAMES = ("Error", "OutOfMemoryError", "ConfigError", "NotSupportedError")


def __getattr__(name: str) -> Any:
    if name in _HEAP_NAMES:
        from . import heap

        return getattr(heap, name)
    if name in _ERROR_NAMES:
        from . import _errors

        return getattr(_errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enable() -> bool:
    """Makes gapless PyTorch's CUDA allocator; call it before CUDA starts.

    True: it is, or will be when torch is imported and CUDA starts.  False: it is not, and a line on standard error says
    why (CUDA has started already, ``GAPLESS=0``, no driver, ...).  After :func:`disable` it takes over again at any
    time.
    """
    from . import _torch

    return _torch.enable()


def disable() -> bool:
    """New blocks come from PyTorch's own allocator again; blocks that live stay valid and are freed as before.

    True when that is so.  Where CUDA has not started, gapless will not be used.
    """
    from . import _torch

    return _torch.disable()


def is_enabled() -> bool:
    """Whether gapless serves PyTorch's new blocks now."""
    from . import _torch

    return _torch.is_serving()


def pool(tag: Optional[str] = None, contiguous: bool = False, device: Any = None, heap: "Optional[Heap]" = None) -> Any:
    """A private pool, used by ``with gapless.pool(tag="kv"): ...`` for the allocations of this thread inside.

    Where PyTorch has CUDA it is a torch.cuda.MemPool (``.mem_pool``); else, or with ``heap``, a pool of that heap or
    the default one.  ``tag`` names it in summaries.  ``contiguous``: every block lies inside one driver allocation, for
    registration with a network card or NCCL.  The object may be entered again; its memory is everybody's when it is
    gone and its blocks are freed.
    """
    from . import _pools

    return _pools.pool(tag, contiguous, device, heap)


def _device(device: Any) -> int:
    if isinstance(device, int):
        return device
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0 if device is None else int(str(device).rpartition(":")[2])
    if device is None:
        return torch.cuda.current_device()
    found = torch.device(device).index
    return torch.cuda.current_device() if found is None else found


def _heap_in_use() -> "Optional[Heap]":
    """The default heap when this process uses it; looking does not start CUDA."""
    from . import _torch
    from .heap import opened_default

    door = _torch.state.door
    return door.heap() if door is not None and door.heap() is not None else opened_default()


def stats(device: Any = None) -> Dict[str, int]:
    """Every figure of a device by name; {} while gapless is not in use.

    Those of torch.cuda.memory_stats and gapless' own ("pages_stolen", "rung.steal.count", ...; docs/statistics.md).
    """
    heap = _heap_in_use()
    return heap.stats(_device(device)) if heap is not None else {}


def memory_summary(device: Any = None) -> str:
    """A page for a person: live, held and idle memory, by stream and pool, and what the allocator had to do."""
    heap = _heap_in_use()
    return heap.memory_summary(_device(device)) if heap is not None else "gapless is not in use in this process\n"


def explain(device: Any = None) -> str:
    """Why the last request that failed did, in plain words with numbers, and what would help; "" when none failed."""
    from . import _torch

    door = _torch.state.door
    text = door.explain(_device(device)) if door is not None else ""
    if text:
        return text
    heap = _heap_in_use()
    return heap.explain(_device(device)) if heap is not None else ""


def configure(conf: str) -> None:
    """Applies a configuration string, in the grammar of PYTORCH_CUDA_ALLOC_CONF, over the environment's variables.

    It replaces what an earlier call said; "" goes back to the environment's.  All or nothing: :class:`ConfigError` says
    what is wrong.  Before gapless is in use it is kept for the start.
    """
    from . import _torch

    _torch.configure(conf)


def defragment(device: Any = None) -> int:
    """A safe point of a program that has ``convert`` or ``overflow`` on, between steps: no thread launches anything on the
    device until this returns.  With ``overflow`` live blocks come back from host memory where there is room, and what was
    called cold (:func:`hint_cold`) goes there where others lacked it.  Returns the bytes that went back to the driver; 0
    while gapless is not in use, or both are off.
    """
    heap = _heap_in_use()
    if heap is None or (heap.conf_value("convert") == "off" and heap.conf_value("overflow") == "False"):
        return 0
    return heap.defragment(_device(device))


def hint_cold(what: Any, cold: bool = True) -> int:
    """Says that memory is rarely used (or, ``cold=False``, no more so): a tensor, the states of an optimiser, or lists and
    dictionaries of them.  With ``overflow`` it is the first to go to host memory, and stays there; its address stays too.
    States of torch.optim's optimisers are called so by themselves after a step, where requests had to go to host memory, unless the
    program has spoken of that optimiser here.  Returns how many blocks it was said of; 0 while gapless is not in use.
    """
    from . import _cold

    return _cold.hint(_heap_in_use(), what, cold)


def reserve_host(size: int, device: Any = None) -> None:
    """Makes a device's pool of pinned host memory ``size`` bytes large, ahead of need (``tiers`` of the configuration and the
    machine limit it); see :meth:`Heap.reserve_host`."""
    from .heap import default_heap

    heap = _heap_in_use()
    (heap if heap is not None else default_heap()).reserve_host(size, _device(device))


def sleep(
    tag: Optional[str] = None,
    device: Any = None,
    *,
    drop: bool = False,
    unchanged: bool = False,
    disk: bool = False,
    remote: bool = False,
) -> int:
    """Gives the device memory of ``with gapless.pool(tag=...)`` back to the driver and keeps its addresses; returns how many
    bytes.  :func:`wake` brings the contents back.  0 while gapless is not in use; see :meth:`Heap.sleep`."""
    heap = _heap_in_use()
    return 0 if heap is None else heap.sleep(tag, _device(device), drop=drop, unchanged=unchanged, disk=disk, remote=remote)


def wake(tag: Optional[str] = None, device: Any = None, *, keep: bool = False, drop: bool = False) -> None:
    """The memory of ``tag`` is back, with the same bytes at the same addresses; see :meth:`Heap.wake`."""
    heap = _heap_in_use()
    if heap is not None:
        heap.wake(tag, _device(device), keep=keep, drop=drop)


def offload_activations(
    budget: "Union[int, float]",
    device: Any = None,
    *,
    least: int = 1 << 20,
    name: str = "",
    heap: "Optional[Heap]" = None,
) -> Any:
    """What autograd saves in ``with gapless.offload_activations(budget=...): loss = model(...)`` takes at most ``budget`` of the device.

    ``budget``: bytes as a whole number (``1`` is one byte), or as a float from 0.0 to 1.0 a share of what the step saves.  The rest goes to
    pinned host memory and, where that is full, to the disk of ``tiers``, and comes back ahead of its use.  The first step records what is saved
    and when it is used; from then on what is used soonest stays.  Parameters, views of them, and what is smaller than ``least`` bytes are left
    alone; what finds no room stays on the device, with a line that says why.  Results are the same, bit for bit.

    Use the same arguments in each step: they name the plan; ``name`` tells models apart.  ``heap``: whose tiers serve, if not the default heap's.
    The object has ``stats()``.  docs/tiers.md has more.
    """
    from . import offload

    return offload.activations(budget, device, least=least, name=name, heap=heap)


def offload_optimizer(
    optimizer: Any, *, window: int = 256 << 20, least: int = 64 << 10, heap: "Optional[Heap]" = None
) -> Any:
    """Keeps the states of a torch.optim optimizer off the device between steps.

    ``optimizer.step()`` then goes through the parameters in parts of about ``window`` bytes of states: those of the next part come while one is
    worked on, and go when it is done.  Results are the same.  Tensors smaller than ``least`` bytes stay.  An optimizer that looks at all parameters
    at once (LBFGS) is refused.  ``state_dict()``, ``copy.deepcopy`` and ``pickle`` bring all states back first; who looks at one by itself calls the
    object's ``bring_back()`` before.  The object has ``close()``, after which all is as before.
    """
    from . import offload_states

    return offload_states.States(optimizer, window=window, least=least, heap=heap)


def info() -> Dict[str, Any]:
    """What is installed, what asks for gapless, which door is open, and where the settings come from."""
    from . import _info

    return _info.collect()
