"""Where bytes of tensors go and come back from: items of a heap (gapless/tier.h), for tensors of a card and for those of the processor."""

import ctypes
import numbers
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import torch

from ._library import ItemInfo, check, library
from ._tensors import heap_for, index_of
from .heap import Heap

UNIT = 2 << 20  # what an item is rounded up to
_ALIGN = 64  # so that any type may begin there

_Spans = List[Tuple[int, int]]  # addresses and bytes


def bytes_of(name: str, value: Any) -> int:
    """An argument that is a number of bytes."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 0:
        raise ValueError(f"{name} {value!r}: a number of bytes")
    return int(value)


def new_storage(size: int, device: torch.device) -> torch.UntypedStorage:
    """Memory of the allocator, of the current stream."""
    return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()


def extent(tensor: torch.Tensor, storage_bytes: int) -> Tuple[int, int]:
    """The bytes [from, to) of its storage that a tensor reaches, in whole steps of 64."""
    size = tensor.element_size()
    first = tensor.storage_offset() * size
    if tensor.is_contiguous():
        last = first + tensor.numel() * size
    else:
        last = first + (sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride())) + 1) * size
    return first // _ALIGN * _ALIGN, min(-(-last // _ALIGN) * _ALIGN, storage_bytes)


def rebuild(
    storage: torch.UntypedStorage, begin: int, like: "Tuple[torch.dtype, torch.Size, Tuple[int, ...], int]"
) -> torch.Tensor:
    """A tensor over `storage`, which has the bytes from `begin` on of the one that (type, shape, strides, offset) speak of."""
    dtype, shape, strides, offset = like
    tensor = torch.empty((0,), dtype=dtype, device=storage.device)
    return tensor.set_(storage, offset - begin // dtype.itemsize, shape, strides)  # type: ignore[call-overload]


class CardStore:
    """Of a card: streams are torch's, and nothing waits on the host.  Not for several threads at once."""

    def __init__(self, device: torch.device, heap: Optional[Heap] = None) -> None:
        self.heap = heap if heap is not None else heap_for(device)
        self.device, self.index = device, index_of(device)
        self.has_disk = any(part.partition("=")[0] == "disk" for part in self.heap.conf_value("tiers").split(","))
        self._info = ItemInfo(size=ctypes.sizeof(ItemInfo))

    def stream(self) -> Any:
        """The current one."""
        return torch.cuda.current_stream(self.device)

    def put(self, storage: torch.UntypedStorage, begin: int, size: int, stream: Any, place: Optional[str]) -> int:
        """Begins to copy bytes of `storage` away; an item."""
        return self._put([(storage.data_ptr() + begin, size)], stream, place)

    def get(self, item: int, storage: torch.UntypedStorage, size: int, stream: Any) -> None:
        """Begins to bring all of them back."""
        self._get(item, [(storage.data_ptr(), size)], stream, 0)

    def put_all(self, storages: Sequence[torch.UntypedStorage], stream: Any) -> int:
        """Begins to copy all of several away, end to end in one item."""
        return self._put([(storage.data_ptr(), storage.nbytes()) for storage in storages], stream, None)

    def get_all(self, item: int, start: int, storages: Sequence[torch.UntypedStorage], stream: Any) -> None:
        """Begins to fill them with bytes of the item from `start` on."""
        self._get(item, [(storage.data_ptr(), storage.nbytes()) for storage in storages], stream, start)

    def _put(self, spans: _Spans, stream: Any, place: Optional[str]) -> int:
        return self.heap.put(spans, self.index, stream.cuda_stream, place)

    def _get(self, item: int, spans: _Spans, stream: Any, start: int) -> None:
        self.heap.get(item, spans, self.index, stream.cuda_stream, start)

    def join(self, item: int, stream: Any) -> None:
        """What the stream is given next comes behind the copies of the item."""
        self.heap.join(item, self.index, stream.cuda_stream)

    def used_on(self, tensor: torch.Tensor, stream: Any) -> None:
        """The memory is not given away before what the stream was given is done."""
        tensor.record_stream(stream)

    def wait(self, item: int) -> None:
        """Until nothing of the item is under way."""
        self.heap.wait(item, self.index)

    def _look(self, item: int) -> Any:
        """Called for each tensor: without a dictionary."""
        code = library().gap_tier_look(self.heap._heap, self.index, item, ctypes.byref(self._info))
        check(code, "look")
        return self._info

    def copying(self, item: int) -> bool:
        """Whether bytes of it are."""
        return bool(self._look(item).copying)

    def on_disk(self, item: int) -> bool:
        """Whether that is its place."""
        return self.has_disk and self._look(item).disk_bytes > 0

    def drop(self, item: int) -> None:
        """The item is no more."""
        self.heap.drop(item, self.index)

    def host_bytes(self) -> int:
        """Host memory that items may have beside what is used."""
        return self.heap.tiers(self.index)["host_more_bytes"]


def _along(block: int, spans: _Spans) -> Iterator[Tuple[int, int, int]]:
    """The spans end to end in a block: their address, that in the block, their bytes."""
    for address, size in spans:
        yield address, block, size
        block += size


class HostStore(CardStore):
    """Of the processor: bytes pass through a heap of host memory, and each call is over when it returns."""

    def stream(self) -> Any:
        return None

    def _put(self, spans: _Spans, stream: Any, place: Optional[str]) -> int:
        size = sum(size for _address, size in spans)
        block = self.heap.alloc(size)
        try:
            for address, here, length in _along(block, spans):
                ctypes.memmove(here, address, length)
            item = self.heap.put([(block, size)], place=place)
            try:
                self.heap.wait(item)
            except Exception:
                self.heap.drop(item)
                raise
            return item
        finally:
            self.heap.free(block)

    def _get(self, item: int, spans: _Spans, stream: Any, start: int) -> None:
        size = sum(size for _address, size in spans)
        block = self.heap.alloc(size)
        try:
            self.heap.get(item, [(block, size)], start=start)
            self.heap.wait(item)
            for address, here, length in _along(block, spans):
                ctypes.memmove(address, here, length)
        finally:
            self.heap.free(block)

    def join(self, item: int, stream: Any) -> None:
        pass

    def used_on(self, tensor: torch.Tensor, stream: Any) -> None:
        pass


def store_for(device: torch.device, heap: Optional[Heap] = None) -> CardStore:
    """By the kind of device."""
    return CardStore(device, heap) if device.type == "cuda" else HostStore(device, heap)
