"""What every group of tests shares: the shim, and a runner.

A group is a file with functions test_...; it runs in a process of its own, since an allocator is swapped once a process.
The folder made by build.py is named by GAPLESS_TEST_BUILD.
"""

import ctypes
import gc
import os
import sys
import traceback

import torch

BUILD = os.environ["GAPLESS_TEST_BUILD"]
MIB = 1 << 20
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])

shim = ctypes.CDLL(os.path.join(BUILD, "shim.so"))
helper = ctypes.CDLL(os.path.join(BUILD, "help.so"))
library = ctypes.CDLL(os.path.join(BUILD, "libgapless.so.0"))
for name in ("gapless_torch_install", "gapless_torch_uninstall", "gapless_torch_reason"):
    getattr(shim, name).restype = ctypes.c_char_p
shim.gapless_torch_heap.restype = ctypes.c_void_p
shim.gapless_torch_explain.restype = ctypes.c_size_t
shim.gapless_torch_pool_flags.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint, ctypes.c_char_p]
for name in ("help_pair_ns", "help_churn_ns", "help_threads_ns"):
    getattr(helper, name).restype = ctypes.c_double
for name in ("help_plugin_live", "help_plugin_calls", "help_tracked_blocks", "help_tracked_segments"):
    getattr(helper, name).restype = ctypes.c_long
helper.help_keep_spare.argtypes = [ctypes.c_long]
library.gap_set_log.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
library.gap_check.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
library.gap_summary.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
library.gap_set_log(ctypes.cast(shim.gapless_torch_log, ctypes.c_void_p), None)


def install(conf=b""):
    reason = shim.gapless_torch_install(conf)
    assert reason is None, reason


def state():
    return shim.gapless_torch_state()


def check_heap():
    """The heap's own checker: every invariant."""
    text = ctypes.create_string_buffer(400)
    rc = library.gap_check(shim.gapless_torch_heap(), torch.cuda.current_device(), text, len(text))
    assert rc == 0, text.value.decode()


def tensor(bytes_, **options):
    return torch.empty(bytes_, dtype=torch.uint8, device="cuda", **options)


def stat(name):
    return torch.cuda.memory_stats()[name]


def settle():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def run_group(module_name="__main__"):
    """Runs the tests of a group, or those named on the command line; prints a line for each and `N passed, N failed`."""
    module = sys.modules[module_name]
    names = sys.argv[1:] or [name for name in vars(module) if name.startswith("test_")]
    failed = 0
    for name in names:
        try:
            getattr(module, name)()
            if torch.cuda.is_initialized() and state() in (2, 3):
                settle()
                check_heap()
            print(f"ok    {os.path.basename(sys.argv[0])} {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {os.path.basename(sys.argv[0])} {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed", flush=True)
    sys.exit(failed != 0)
