"""The part of torch's C++ side that matters here."""

import ctypes
import os
import re

_GLIBCXX_USE_CXX11_ABI = True
KNOWN = {
    "backend",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "large_segment_size_mb",
    "expandable_segments",
    "release_lock_on_cudamalloc",
    "per_process_memory_fraction",
    "graph_capture_record_stream_reuse",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
}
if os.environ.get("FAKE_TORCH_OLD"):
    KNOWN.discard("large_segment_size_mb")
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

_getenv = ctypes.CDLL(None).getenv
_getenv.restype = ctypes.c_char_p
backend = "native"
started = 0
on_start = []  # what the library itself would do
parsed = []  # strings that the parsers took, in order
_constructed = False


def getenv(name):
    """As C code sees it."""
    value = _getenv(name.encode())
    return None if value is None else value.decode()


def check_backend(string):
    """What happens while the library is loaded."""
    for name in re.findall(r"backend:(\w+)", string or ""):
        if name not in ("native", "cudaMallocAsync"):
            raise ValueError(f"Unknown allocator backend {name}, options are native and cudaMallocAsync")


def _parse(string):
    for item in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", string):
        key, colon, _ = item.partition(":")
        if key.strip() not in KNOWN:
            raise ValueError(f"Unrecognized key '{key}' in CUDA allocator config.")
        if not colon:
            raise RuntimeError("INTERNAL ASSERT FAILED")
    parsed.append(string)


def _construct():
    global _constructed
    if not _constructed:
        _constructed = True
        string = next(filter(None, (getenv(name) for name in VARIABLES)), "")
        _parse(string)


def _accelerator_setAllocatorSettings(string):
    _construct()
    _parse(string)


def _cuda_getAllocatorBackend():
    return backend


histories = []  # (arguments, whether CUDA had been started by Python)


def _cuda_record_memory_history(*arguments, **named):
    histories.append((arguments, named, started > 0))


def _cuda_init():
    global started
    _construct()
    for step in on_start:
        step()
    started += 1
