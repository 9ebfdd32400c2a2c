"""Caches for transformers' ``generate()``::

    from gapless.hf import Cache
    model.generate(**inputs, past_key_values=Cache(model.config))

:class:`Cache` is a drop-in for DynamicCache: the same tokens, but K and V grow in place, in contiguous addresses behind which memory comes as tokens come, where DynamicCache
copies all of it in every step.  It works with every attention that DynamicCache works with; gradients do not go through it.

:class:`PagedCache` keeps K and V in KV pages: beams share what they have in common.  With ``attn_implementation="gapless"`` attention reads them in place.

Both take what tensors they are given: on a card memory of the default heap, which PyTorch under gapless shares; else host memory.
"""

import copy
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from transformers import cache_utils

from . import _paged
from ._graphed import graphed
from ._tensors import heap_for, index_of, stream_of, tensor_at
from .kv import PAGE, Ranges

__all__ = ["Cache", "PagedCache", "graphed"]

_ADDRESSES = (1 << 40) - PAGE  # of all ranges of an object
_TOKENS = 1 << 17  # where a model does not say how long its sequences may be
_UNBOUNDED = -1


def _layer_types(config: Any) -> List[Tuple[str, Dict[str, Any]]]:
    """The type of each layer and what its cache is made with, as DynamicCache tells them from the config."""
    known = getattr(cache_utils, "get_layer_types_and_kwargs", None)
    if known is not None:
        types, kwargs = known(config)
        # 5.24 has those of each layer, 5.17 one for all
        return list(zip(types, kwargs if isinstance(kwargs, list) else [kwargs] * len(types)))
    window = getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None)
    types = (
        getattr(config, "layer_types", None)
        or ["full_attention" if window is None else "sliding_attention"] * config.num_hidden_layers
    )
    shared = getattr(config, "num_kv_shared_layers", None) or 0
    return [(kind, {"sliding_window": window}) for kind in types[: len(types) - shared]]


class _Memory:
    """The ranges of a cache: two for each layer, of one size for all that have tokens of one size."""

    def __init__(self, pairs: int, max_tokens: int) -> None:
        self.pairs = pairs
        self.max_tokens = max_tokens
        self._free: Dict[Tuple[int, torch.device], Tuple[Ranges, List[int]]] = {}

    def take(self, token_bytes: int, device: torch.device) -> Tuple[Ranges, int]:
        """Ranges, and the number of the first of a pair."""
        key = (token_bytes, device)
        if key not in self._free or not self._free[key][1]:
            size = min(token_bytes * self.max_tokens, _ADDRESSES // (2 * self.pairs) // PAGE * PAGE)
            ranges = Ranges(heap_for(device), 2 * self.pairs, size, device=index_of(device), stream=stream_of(device))
            self._free[key] = (ranges, list(range(2 * self.pairs - 2, -1, -2)))
        ranges, free = self._free[key]
        return ranges, free.pop()

    def give(self, ranges: Ranges, first: int) -> None:
        """Back again, empty."""
        ranges.shrink(first, 2, 0)
        for kept, free in self._free.values():
            if kept is ranges:
                free.append(first)


class _Rows:
    """K and V of a layer: rows [token][sequence][head][number] in two ranges, of which tokens [start, end) count."""

    def __init__(self, memory: _Memory, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._memory = memory
        sizes = [t.shape[0] * t.shape[1] * t.shape[3] * t.element_size() for t in (keys, values)]
        self._token_bytes = max(sizes)
        self._ranges, self._first = memory.take(self._token_bytes, keys.device)
        self._capacity = self._ranges.stride // self._token_bytes
        self._backed = 0
        self.start = self.end = 0
        self._back(1)
        self._all = [self._view(i, t) for i, t in enumerate((keys, values))]

    def _view(self, i: int, like: torch.Tensor) -> torch.Tensor:
        batch, heads, _, size = like.shape
        strides = (heads * size, size, batch * heads * size, 1)
        shape = (batch, heads, self._capacity, size)
        address = self._ranges.address(self._first + i)
        return tensor_at(address, shape, strides, like.dtype, like.device, self._ranges)

    def _back(self, tokens: int) -> None:
        if tokens > self._capacity:
            raise ValueError(f"{tokens} tokens; the cache was made for {self._capacity} (max_tokens)")
        size = tokens * self._token_bytes
        self._ranges.grow(self._first, 2, size)
        self._backed = min(-(-size // PAGE) * PAGE // self._token_bytes, self._capacity)

    def add(self, keys: torch.Tensor, values: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """With these behind what is there."""
        count = keys.shape[2]
        if self.end + count > self._backed:
            self._back(self.end + count)
        with torch.no_grad():
            for whole, new in zip(self._all, (keys, values)):
                whole.narrow(2, self.end, count).copy_(new)
        self.end += count
        return self.views()

    def views(self) -> Tuple[torch.Tensor, torch.Tensor]:
        """What counts."""
        k, v = self._all
        return k.narrow(2, self.start, self.end - self.start), v.narrow(2, self.start, self.end - self.start)

    def to_front(self) -> None:
        """What counts moves to the beginning, and the memory behind it goes."""
        count = self.end - self.start
        with torch.no_grad():
            for whole in self._all:
                whole.narrow(2, 0, count).copy_(whole.narrow(2, self.start, count))
        self.start, self.end = 0, count
        self._ranges.shrink(self._first, 2, count * self._token_bytes)
        self._backed = min(-(-count * self._token_bytes // PAGE) * PAGE // self._token_bytes, self._capacity)

    def select(self, indices: torch.Tensor) -> None:
        """Sequence i becomes what `indices[i]` was."""
        with torch.no_grad():
            for view in self.views():
                view.copy_(view.index_select(0, indices.to(view.device)))

    def drop(self) -> None:
        """Gives the memory up."""
        self._memory.give(self._ranges, self._first)


class _Growing(cache_utils.DynamicLayer):
    """A layer of full attention."""

    def __init__(self, memory: _Memory, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._memory = memory
        self._rows: Optional[_Rows] = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: Optional[torch.Tensor] = None) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self._rows = _Rows(self._memory, key_states, key_states if value_states is None else value_states)
        self.is_initialized = True

    def _show(self) -> Tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = self._rows.views()
        return self.keys, self.values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        if self._rows is None:
            self.lazy_initialization(key_states, value_states)
        self.keys, self.values = self._rows.add(key_states, value_states)
        return self.keys, self.values

    def get_seq_length(self, *args: Any) -> int:
        return 0 if self._rows is None else self._rows.end - self._rows.start

    def get_mask_sizes(self, query_length: Any, *args: Any) -> Tuple[int, int]:
        # 5.0 gave the positions instead of their number
        count = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self.get_seq_length() + count, 0

    def get_max_length(self) -> int:
        return _UNBOUNDED

    def get_max_cache_shape(self) -> int:
        return _UNBOUNDED

    def _count_to_remove(self, tokens: int) -> int:
        """`crop` takes tokens to remove as a negative number; a positive one is the length that is to be left."""
        return max(self.get_seq_length() - tokens, 0) if tokens > 0 else min(-tokens, self.get_seq_length())

    def crop(self, tokens_to_remove: int) -> None:  # pylint: disable=arguments-renamed
        if self._rows is None:
            return
        self._rows.end -= self._count_to_remove(tokens_to_remove)
        self._show()

    def reset(self) -> None:
        if self._rows is not None:
            self._rows.drop()
        self._rows, self.keys, self.values, self.is_initialized = None, None, None, False

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        if self.get_seq_length():
            self._rows.select(beam_idx)

    def _reload(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Another number of sequences: another layout."""
        self._rows.drop()
        self._rows = _Rows(self._memory, keys, values)
        self.keys, self.values = self._rows.add(keys, values)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.get_seq_length():
            self._reload(self.keys.repeat_interleave(repeats, dim=0), self.values.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self.get_seq_length():
            self._reload(self.keys[indices, ...].clone(), self.values[indices, ...].clone())

    def offload(self) -> None:
        """Stays where it is."""

    def prefetch(self) -> None:
        """Is there."""

    def copied(self, memory: _Memory) -> "_Growing":
        """The same in other memory."""
        other = copy.copy(self)
        other._memory = memory
        if self._rows is not None:
            other._rows = _Rows(memory, self.keys, self.values)
            other.keys, other.values = other._rows.add(self.keys, self.values)
        return other


class _Sliding(_Growing):
    """A layer whose tokens see the last `sliding_window` only: what is older is overwritten in time."""

    is_sliding = True

    def __init__(self, memory: _Memory, sliding_window: int, **kwargs: Any) -> None:
        super().__init__(memory, **kwargs)
        self.sliding_window = sliding_window
        self.cumulative_length = 0
        self.record_past = False

    def activate_past_recording(self) -> None:
        """From now on nothing is forgotten until `crop`."""
        self.record_past = True

    def _forget(self) -> None:
        self._rows.start = max(self._rows.start, self._rows.end - self.sliding_window + 1)
        self._show()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        if self._rows is None:
            self.lazy_initialization(key_states, value_states)
        if self._rows.start >= self.sliding_window:
            self._rows.to_front()
        full = self._rows.add(key_states, value_states)
        self.cumulative_length += key_states.shape[2]
        self.keys, self.values = full
        if not self.record_past:
            self._forget()
        return full

    def get_seq_length(self, *args: Any) -> int:
        return self.cumulative_length

    def get_mask_sizes(self, query_length: Any, *args: Any) -> Tuple[int, int]:
        count = query_length if isinstance(query_length, int) else query_length.shape[0]
        offset = max(self.cumulative_length - self.sliding_window + 1, 0)
        return min(self.cumulative_length, self.sliding_window - 1) + count, offset

    def get_max_length(self) -> int:
        return self.sliding_window

    def get_max_cache_shape(self) -> int:
        return self.sliding_window

    def crop(self, tokens_to_remove: int) -> None:
        if self._rows is None:
            return
        if self.cumulative_length >= self.sliding_window and not self.record_past:
            raise RuntimeError("tokens before the window were forgotten: call activate_past_recording before crop")
        count = self._count_to_remove(tokens_to_remove)
        self._rows.end -= count
        self.cumulative_length -= count
        self._forget()

    def reset(self) -> None:
        super().reset()
        self.cumulative_length = 0


def _layers(config: Any, memory: _Memory, own: Dict[str, Callable[..., Any]]) -> List[Any]:
    """A layer for each of the model's; where it keeps no K and V, transformers' own."""
    others = getattr(cache_utils, "DYNAMIC_LAYER_TYPE_MAPPING", None) or getattr(
        cache_utils, "LAYER_TYPE_CACHE_MAPPING", {}
    )
    made = []
    for kind, kwargs in _layer_types(config):
        if kind in own:
            made.append(own[kind](memory, **kwargs))
        elif kind in others:
            made.append(others[kind](**kwargs))
        else:
            raise NotImplementedError(f"layers of the type {kind!r}")
    return made


def _decoder(config: Any) -> Any:
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


class Cache(cache_utils.Cache):
    """Grows in place.  ``max_tokens``: addresses are reserved for so many (the model's ``max_position_embeddings``)."""

    def __init__(self, config: Any = None, max_tokens: Optional[int] = None) -> None:
        if config is None:
            raise ValueError("gapless.hf.Cache needs the model's config")
        config = _decoder(config)
        tokens = max_tokens or getattr(config, "max_position_embeddings", None) or _TOKENS
        self._settings = (config, tokens)
        self._memory = _Memory(config.num_hidden_layers, tokens)
        full: Dict[str, Callable[..., Any]] = {
            "full_attention": lambda memory, **_: _Growing(memory),
            "sliding_attention": lambda memory, sliding_window, **_: _Sliding(memory, sliding_window),
            "chunked_attention": lambda memory, sliding_window, **_: _Sliding(memory, sliding_window),
        }
        super().__init__(layers=_layers(config, self._memory, full))

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Cache":
        other = Cache(*self._settings)
        other.layers = [
            layer.copied(other._memory) if isinstance(layer, _Growing) else copy.deepcopy(layer, memo)
            for layer in self.layers
        ]
        return other


class PagedCache(cache_utils.Cache):
    """K and V in KV pages of `page_tokens` tokens, as much as `max_bytes` (all that the card has, or the half of free host memory).

    ``attn_implementation="gapless"`` (``import gapless.hf`` registers it) lets a decode step read them in place; with any other they are gathered.
    """

    def __init__(
        self,
        config: Any,
        max_tokens: Optional[int] = None,
        page_tokens: int = 16,
        max_bytes: Optional[int] = None,
        max_batch: int = 256,
    ) -> None:
        config = _decoder(config)
        tokens = max_tokens or getattr(config, "max_position_embeddings", None) or _TOKENS
        layers = _layer_types(config)
        kinds = {kind for kind, _ in layers}
        if kinds - {"full_attention", "sliding_attention"}:
            raise NotImplementedError(f"layers of the types {', '.join(sorted(kinds))}")
        self._pages = _paged.Pages(len(layers), 1 << max(tokens - 1, 1).bit_length(), page_tokens, max_bytes, max_batch)
        windows = [how["sliding_window"] if kind == "sliding_attention" else None for kind, how in layers]
        super().__init__(layers=[_paged.Layer(self._pages, config, i, w) for i, w in enumerate(windows)])

    @property
    def kv(self) -> Any:
        """The :class:`gapless.kv.Cache` behind it, once there is one."""
        return self._pages.kv

    def crop(self, tokens_to_remove: int) -> None:
        """Keeps the first `tokens_to_remove` tokens; below 0: removes as many from the end."""
        length = self._pages.length
        self._pages.crop(min(tokens_to_remove, length) if tokens_to_remove > 0 else length + tokens_to_remove)

    def reset(self) -> None:
        """Forgets all sequences; the memory stays for the next ones."""
        self._pages.clear()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Row i goes on as what row `beam_idx[i]` was; what rows have in common is shared, not copied."""
        self._pages.choose(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row becomes `repeats` rows that share what it has."""
        self._pages.choose([i for i in range(self._pages.batch) for _ in range(repeats)])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps the rows that `indices` names, in its order."""
        chosen = torch.arange(self._pages.batch)[indices.cpu() if isinstance(indices, torch.Tensor) else indices]
        self._pages.choose(chosen.tolist())


_paged.register()
