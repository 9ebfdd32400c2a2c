"""Tensors over memory at given addresses."""

import ctypes
import threading
from typing import Any, Dict, Sequence

import torch

from .heap import Heap, default_heap

_lock = threading.Lock()
_host: Dict[str, Heap] = {}


class _Device:
    """What torch.as_tensor takes for bytes on a card; it lives as long as the tensor."""

    def __init__(self, address: int, size: int, owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }


def _bytes(address: int, size: int, device: torch.device, owner: Any) -> torch.Tensor:
    if device.type == "cuda":
        return torch.as_tensor(_Device(address, size, owner), device=device)
    buffer = type("Memory", (ctypes.c_char * size,), {}).from_address(address)
    buffer.owner = owner
    return torch.frombuffer(buffer, dtype=torch.uint8)


def tensor_at(
    address: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device, owner: Any
) -> torch.Tensor:
    """Strides are in numbers.  Memory must be behind the first page; `owner` lives as long as any view of the tensor.

    It is an ordinary tensor, which may be written to in whatever mode, also where it is made inside torch.inference_mode().
    """
    with torch.inference_mode(False), torch.no_grad():
        return _tensor_at(address, shape, strides, dtype, device, owner)


def _tensor_at(
    address: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device, owner: Any
) -> torch.Tensor:
    span = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))
    flat = _bytes(address, span * dtype.itemsize, device, owner).view(dtype)
    return flat.as_strided(tuple(shape), tuple(strides))


def heap_for(device: torch.device) -> Heap:
    """The default heap, which PyTorch under gapless uses too; for tensors of the processor one of host memory."""
    if device.type == "cuda":
        return default_heap()
    with _lock:
        if "heap" not in _host:
            _host["heap"] = Heap("host", device_bytes=_host_bytes(), environment=False, threads=False)
        return _host["heap"]


def _host_bytes() -> int:
    """Half of what is free, in whole pages."""
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    return available * 512 >> 21 << 21


def index_of(device: torch.device) -> int:
    """The heap's number of a device."""
    if device.type != "cuda":
        return 0
    return torch.cuda.current_device() if device.index is None else device.index


def stream_of(device: torch.device) -> int:
    """The handle of the current stream."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
