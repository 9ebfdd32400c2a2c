"""KV pages behind transformers' cache interface, and the attention function that reads them in place."""

import ctypes
import math
from typing import Any, List, Optional, Set, Tuple

import torch
from transformers import cache_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from . import _kv, kv
from ._tensors import heap_for, index_of, stream_of, tensor_at

NAME = "gapless"
_ATTRIBUTE = "_gapless_layer"
_ADDRESSES = (1 << 40) - kv.PAGE
_KV_PAGES, _NUMBERS = 1 << 22, 1 << 29  # well below what a cache can have


class Pages:
    """A KV cache, made when the first K and V come, and its sequences, which are of one length."""

    def __init__(self, layers: int, tokens: int, page_tokens: int, max_bytes: Optional[int], max_batch: int) -> None:
        self.layers, self.tokens, self.page_tokens = layers, tokens, page_tokens
        self.max_bytes, self.max_batch = max_bytes, max_batch
        self.kv: Optional[kv.Cache] = None
        self.seqs: List[int] = []
        self.length = 0
        self.missing: Set[int] = set()  # layers that have not brought the newest tokens
        self.in_graph = False

    @property
    def batch(self) -> int:
        """Sequences."""
        return len(self.seqs)

    def open(self, keys: torch.Tensor) -> None:
        """The first K say what there is to keep."""
        self.device, self.dtype = keys.device, keys.dtype
        self.heads, self.size = keys.shape[1], keys.shape[3]
        heap = heap_for(keys.device)
        most = self.max_bytes or heap.usage(index_of(keys.device)).card_total_bytes or 1 << 30
        page = 2 * self.page_tokens * self.heads * self.size * keys.element_size() * self.layers
        most = min(most, page * min(_KV_PAGES, _NUMBERS // self.layers))  # tiny models need less than a card has
        self.kv = kv.Cache(
            heap,
            self.layers,
            self.heads,
            self.size,
            bytes=min(most, _ADDRESSES),
            dtype=str(keys.dtype).removeprefix("torch."),
            page_tokens=self.page_tokens,
            sequences=max(self.max_batch, 2 * keys.shape[0]),
            tokens=self.tokens,
            device=index_of(keys.device),
            stream=stream_of(keys.device),
        )
        self.on_card = keys.device.type == "cuda" and not self.kv.why_no_kernels()
        shape = self.kv.shape
        self.table = self._int32(shape.table, (shape.rows, shape.columns))
        self.lengths = self._int32(shape.lengths, (shape.rows,))
        self.add_sequences(keys.shape[0])

    def _int32(self, address: int, shape: Tuple[int, ...]) -> torch.Tensor:
        strides = (shape[1], 1) if len(shape) == 2 else (1,)
        return tensor_at(address, shape, strides, torch.int32, self.device, self.kv)

    def view(self, layer: int, value: bool) -> torch.Tensor:
        """[number of KV page, token, head, number] of a layer."""
        s, size = self.kv.shape, self.dtype.itemsize
        address = s.first + layer * s.layer_stride + (s.v_offset if value else 0)
        strides = (s.page_stride // size, s.token_stride // size, s.head_stride // size, 1)
        return tensor_at(
            address, (s.ids_end, s.page_tokens, s.heads, s.head_size), strides, self.dtype, self.device, self.kv
        )

    def add_sequences(self, count: int) -> None:
        """Empty ones."""
        self.set_sequences([self.kv.open()[0] for _ in range(count)])

    def set_sequences(self, seqs: List[int]) -> None:
        """These, in this order."""
        self.seqs = seqs
        self.rows = torch.tensor([self.kv.about(seq).row for seq in seqs], dtype=torch.int32, device=self.device)

    def advance(self, count: int) -> None:
        """Places for so many more tokens of each, which all layers have still to bring."""
        self.kv.append(self.seqs, [count] * self.batch)
        self.kv.flush()
        self.length += count
        self.missing = set(range(self.layers))

    def crop(self, length: int) -> None:
        """Back to so many."""
        if self.kv is not None and length < self.length:
            for seq in self.seqs:
                self.kv.truncate(seq, length)
            self.kv.flush()
        self.length = min(self.length, length)
        self.missing.clear()

    def choose(self, indices: List[int]) -> None:
        """Sequence i becomes what indices[i] was: KV pages are shared, not copied."""
        if self.kv is None:
            return
        chosen = [self.kv.fork(self.seqs[i]) for i in indices]
        for seq in self.seqs:
            self.kv.end(seq)
        self.set_sequences(chosen)
        self.kv.flush()

    def clear(self) -> None:
        """No tokens; the next ones may be of another number of sequences."""
        if self.kv is not None:
            for seq in self.seqs:
                self.kv.end(seq)
        self.seqs, self.length = [], 0
        self.missing.clear()


class Layer(cache_utils.DynamicLayer):
    """One layer of them."""

    def __init__(self, pages: Pages, config: Any, index: int, window: Optional[int]) -> None:
        super().__init__()
        self._pages, self._config, self._index, self._window = pages, config, index, window
        self._views: Optional[Tuple[torch.Tensor, torch.Tensor]] = None
        self._struct: Optional[_kv.Attention] = None

    # ---- what transformers asks ----

    def lazy_initialization(self, key_states: torch.Tensor, value_states: Optional[torch.Tensor] = None) -> None:
        if self._pages.kv is None:
            self._pages.open(key_states)
        if not self._pages.batch:
            self._pages.add_sequences(key_states.shape[0])
        self.dtype, self.device = key_states.dtype, key_states.device
        self._views = (self._pages.view(self._index, False), self._pages.view(self._index, True))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        pages = self._pages
        if not self.is_initialized or not pages.batch:
            self.lazy_initialization(key_states, value_states)
        count = key_states.shape[2]
        if self._index not in pages.missing:  # the first layer of a step
            pages.advance(count)
        pages.missing.discard(self._index)
        self._scatter(key_states, value_states)
        if self._config._attn_implementation != NAME:
            return self.gather()
        keys = key_states.view_as(key_states)
        setattr(keys, _ATTRIBUTE, self)
        return keys, value_states

    def get_seq_length(self, *args: Any) -> int:
        return self._pages.length

    def get_mask_sizes(self, query_length: Any, *args: Any) -> Tuple[int, int]:
        count = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self._pages.length + count, 0

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        return -1

    # ---- bytes ----

    def _places(self, count: int) -> _kv.Places:
        pages = self._pages
        return _kv.Places(ctypes.sizeof(_kv.Places), pages.batch * count, 0, pages.rows.data_ptr(), count)

    def _move(self, into: bool, keys: torch.Tensor, values: torch.Tensor) -> None:
        """K and V of the last tokens as [sequence and token, head, number]."""
        size = keys.element_size()
        strides = [t.stride(i) * size for t in (keys, values) for i in (0, 1)]
        tokens = _kv.Tokens(ctypes.sizeof(_kv.Tokens), keys.data_ptr(), values.data_ptr(), *strides)
        count = keys.shape[0] // self._pages.batch
        self._pages.kv.move(into, self._index, self._places(count), tokens, stream_of(self.device))

    def _at(self, tokens: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Numbers of KV pages, and tokens in them, of tokens [sequence, token]."""
        pages = self._pages
        ids = pages.table[pages.rows.long()].gather(1, tokens // pages.page_tokens)
        return ids.long(), tokens % pages.page_tokens

    def _lengths(self) -> torch.Tensor:
        return self._pages.lengths[self._pages.rows.long()].long()[:, None]

    def _scatter(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        pages, count = self._pages, keys.shape[2]
        if pages.on_card:
            flat = [t.squeeze(2) if count == 1 else t.transpose(1, 2).flatten(0, 1) for t in (keys, values)]
            flat = [t if t.stride(2) == 1 else t.contiguous() for t in flat]
            self._move(True, *flat)
            return
        ids, at = self._at(self._lengths() - count + torch.arange(count, device=self.device))
        with torch.no_grad():
            for view, new in zip(self._views, (keys, values)):
                view[ids, at] = new.transpose(1, 2)

    def _indexed(self) -> List[torch.Tensor]:
        """K and V, [sequence, head, token, number], of sequences that may be shorter than the longest."""
        ids, at = self._at(torch.arange(self._pages.length, device=self.device).expand(self._pages.batch, -1))
        return [view[ids, at].transpose(1, 2) for view in self._views]

    def gather(self) -> Tuple[torch.Tensor, torch.Tensor]:
        """K and V of all tokens, [sequence, head, token, number]."""
        pages, length = self._pages, self._pages.length
        if not pages.on_card:
            keys, values = self._indexed()
            return keys, values
        shape = (pages.batch * length, pages.heads, pages.size)
        keys, values = (torch.empty(shape, dtype=self.dtype, device=self.device) for _ in range(2))
        self._move(False, keys, values)
        keys, values = (t.view(pages.batch, length, pages.heads, pages.size) for t in (keys, values))
        return keys.transpose(1, 2), values.transpose(1, 2)

    # ---- attention of one token ----

    def can_attend(self, query: torch.Tensor) -> bool:
        """Whether there is a kernel for it."""
        pages = self._pages
        half = self.dtype in (torch.bfloat16, torch.float16)
        return (
            pages.on_card and half and pages.size in (32, 64, 128, 256) and query.shape[2] == 1 and query.stride(3) == 1
        )

    def attend(self, query: torch.Tensor, scale: Optional[float], window: Optional[int]) -> torch.Tensor:
        """[sequence, token, head, number]; the reference where there is no kernel."""
        if not self.can_attend(query):
            return self._attend_reference(query, scale, window)
        pages, size = self._pages, query.element_size()
        out = torch.empty((query.shape[0], 1, query.shape[1], query.shape[3]), dtype=query.dtype, device=query.device)
        a = self._struct
        if a is None or a.query_heads != query.shape[1]:
            a = self._struct = _kv.Attention(
                size=ctypes.sizeof(_kv.Attention), layer=self._index, query_heads=query.shape[1]
            )
        a.batch, a.rows, a.q, a.out = query.shape[0], pages.rows.data_ptr(), query.data_ptr(), out.data_ptr()
        a.q_batch_stride, a.q_head_stride = query.stride(0) * size, query.stride(1) * size
        a.out_batch_stride, a.out_head_stride = out.stride(0) * size, out.stride(2) * size
        a.scale, a.window = scale or 0.0, window or 0
        a.longest = pages.tokens if pages.in_graph else min(1 << max(pages.length - 1, 1).bit_length(), pages.tokens)
        needed = pages.kv.attention_workspace(a)
        workspace = torch.empty(needed, dtype=torch.uint8, device=query.device) if needed else None
        a.workspace, a.workspace_bytes = (workspace.data_ptr(), needed) if needed else (0, 0)
        pages.kv.attend(a, stream_of(query.device))
        return out

    def _attend_reference(self, query: torch.Tensor, scale: Optional[float], window: Optional[int]) -> torch.Tensor:
        keys, values = self._indexed()
        at, lengths = torch.arange(keys.shape[2], device=self.device), self._lengths()
        seen = (at < lengths) & (at >= lengths - (window or keys.shape[2]))
        groups = query.shape[1] // keys.shape[1]
        keys, values = (t.repeat_interleave(groups, dim=1) for t in (keys, values))
        values = values.masked_fill(~(at < lengths)[:, None, :, None], 0)  # what lies there may be no number
        scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
        sdpa = torch.nn.functional.scaled_dot_product_attention
        return sdpa(query, keys, values, attn_mask=seen[:, None, None], scale=scale).transpose(1, 2)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    scaling: Optional[float] = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> Tuple[torch.Tensor, None]:
    """``attn_implementation="gapless"``: a decode step reads KV pages in place; all else is SDPA, on K and V gathered where need be."""
    layer: Optional[Layer] = getattr(key, _ATTRIBUTE, None)
    if layer is not None:
        if query.shape[2] == 1 and attention_mask is None and not dropout:
            return layer.attend(query, scaling, layer._window), None
        if query.shape[2] != layer._pages.length:
            key, value = layer.gather()
    return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)


def _sees_all(q_length: Any = None, kv_length: Any = None, q_offset: Any = 0, kv_offset: Any = 0, **_: Any) -> bool:
    """One token at the end of a cache that holds what it may see and nothing else."""
    numbers = (q_length, kv_length, q_offset, kv_offset)
    return all(isinstance(n, int) for n in numbers) and q_length == 1 and kv_length + kv_offset == q_offset + 1


def mask(*args: Any, **kwargs: Any) -> Optional[torch.Tensor]:
    """As for SDPA; none for one token that sees all that its window leaves, which the kernel knows by itself."""
    from transformers.masking_utils import sdpa_mask

    padding = kwargs.get("attention_mask")
    if not args and _sees_all(**kwargs) and (padding is None or bool(padding.all())):
        return None
    return sdpa_mask(*args, **kwargs)


def register() -> None:
    """The name for attn_implementation."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention)
    try:
        from transformers import AttentionMaskInterface
    except ImportError:
        return
    AttentionMaskInterface.register(NAME, mask)
