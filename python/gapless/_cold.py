"""Which memory is rarely used: what the program says, and what is known of any training: its optimisers look at their states once a step."""

import functools
import weakref
from collections.abc import Mapping
from typing import Any, Iterator, Optional, Set

from . import _errors
from .heap import Heap

_named: "weakref.WeakSet[Any]" = weakref.WeakSet()  # optimisers of which the program has said something: that counts


def _tensors(what: Any) -> Iterator[Any]:
    if hasattr(what, "untyped_storage"):
        yield what
    elif hasattr(what, "param_groups"):  # an optimiser: its parameters are not cold
        yield from _tensors(what.state)
    elif isinstance(what, Mapping):
        yield from _tensors(list(what.values()))
    elif isinstance(what, (list, tuple, set, frozenset)):
        for one in what:
            yield from _tensors(one)


def addresses(what: Any) -> Set[int]:
    """Of all storages on a card, once each."""
    return {tensor.untyped_storage().data_ptr() for tensor in _tensors(what) if tensor.is_cuda} - {0}


def hint(heap: Optional[Heap], what: Any, cold: bool) -> int:
    """See gapless.hint_cold()."""
    if hasattr(what, "param_groups"):
        _named.add(what)
    return sum(heap.hint(address, cold) for address in addresses(what)) if heap is not None else 0


@functools.lru_cache(maxsize=None)  # once, however often CUDA starts
def watch() -> None:
    """From now on states of torch.optim's optimisers are called cold after a step, once requests had to go to host memory."""
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook
    except ImportError:  # a build without it trains nothing
        return
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: Any, _arguments: Any, _keywords: Any) -> None:
    from . import _heap_in_use

    heap = _heap_in_use()
    if heap is None or optimizer in _named:
        return
    if not any(heap.stat("overflow_placed_bytes", device) for device in range(heap.device_count)):
        return
    try:
        for address in addresses(optimizer):
            heap.hint(address)
    except _errors.Error:
        pass  # advice: the step is fine without it
