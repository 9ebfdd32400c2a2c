"""Where the memory of tensors lies, whatever holds them."""

from collections.abc import Mapping
from typing import Any, Iterator, Set


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
