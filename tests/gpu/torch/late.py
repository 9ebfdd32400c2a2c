"""Installed after CUDA has started; taken out; put in again."""

import torch
from case import MIB, check_heap, helper, install, run_group, settle, shim, stat, state, tensor

old = torch.full((30 * MIB,), 8, dtype=torch.uint8, device="cuda")
assert torch.cuda.get_allocator_backend() == "native"
install()


def test_old_blocks_live_on():
    assert state() == 2 and torch.cuda.get_allocator_backend() == "gapless"
    assert helper.help_is_registered() == 1
    global old
    new = torch.full((10 * MIB,), 3, dtype=torch.uint8, device="cuda")
    assert int(old.min()) == 8
    assert torch.cuda.memory_allocated() >= 40 * MIB
    segments = torch.cuda.memory_snapshot()
    live = [b["address"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
    assert old.data_ptr() in live and new.data_ptr() in live
    side = torch.cuda.Stream()
    old.record_stream(side)
    new.record_stream(side)
    before = torch.cuda.memory_allocated()
    old = None
    assert torch.cuda.memory_allocated() == before - 30 * MIB
    settle()
    assert torch.cuda.memory_reserved() < 30 * MIB
    del new


def test_raw_calls_of_old_blocks():
    assert shim.gapless_torch_uninstall() is None
    pointer = torch.cuda.caching_allocator_alloc(3 * MIB)
    assert state() == 3 and torch.cuda.get_allocator_backend() == "native"
    install()
    assert state() == 2
    torch.cuda.caching_allocator_delete(pointer)


def test_disable():
    ours = torch.full((12 * MIB,), 4, dtype=torch.uint8, device="cuda")
    assert shim.gapless_torch_uninstall() is None
    assert helper.help_is_registered() == 0
    held = stat("reserved_bytes.all.current")
    native = torch.full((100 * MIB,), 5, dtype=torch.uint8, device="cuda")
    assert stat("reserved_bytes.all.current") >= held + 100 * MIB
    side = torch.cuda.Stream()
    ours.record_stream(side)
    assert int(ours.max()) == 4 and int(native.max()) == 5
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = native + 1
    graph.replay()
    assert int(out.max()) == 6
    del ours, native, out, graph
    settle()
    assert stat("allocated_bytes.all.current") < MIB
    install()
    assert helper.help_is_registered() == 1


def test_refused_after_the_users_own():
    import os
    import subprocess
    import sys

    code = ("import sys; sys.path.insert(0, sys.argv[1]); import case, os, torch; m = torch.cuda.memory; "
            "m.change_current_allocator(m.CUDAPluggableAllocator(os.path.join(case.BUILD, 'help.so'), 'help_plugin_alloc', "
            "'help_plugin_free')); print(case.shim.gapless_torch_install(b'')); torch.ones(3, device='cuda'); "
            "print(case.helper.help_plugin_calls() > 0)")
    done = subprocess.run([sys.executable, "-c", code, os.path.dirname(os.path.abspath(__file__))], capture_output=True,
                          text=True)
    assert done.returncode == 0 and "another allocator" in done.stdout and "True" in done.stdout, done.stdout + done.stderr


if __name__ == "__main__":
    run_group()
