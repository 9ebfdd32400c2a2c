"""Snapshots, the memory history, trackers."""

import os
import pickle
import tempfile

import torch
from case import MIB, RELEASE, helper, install, run_group, settle, stat, tensor

install(b"page_maker:False")  # what is held changes with calls only


def blocks_of(snapshot):
    return [(s, b) for s in snapshot["segments"] for b in s["blocks"]]


def test_snapshot_without_history():
    x, y = tensor(3 * MIB), tensor(700)
    segments = torch.cuda.memory_snapshot()
    addresses = [s["address"] for s in segments]
    assert addresses == sorted(addresses) and segments
    for s in segments:
        assert s["total_size"] == sum(b["size"] for b in s["blocks"])
        assert s["allocated_size"] <= s["active_size"] <= s["total_size"]
        assert s["device"] == 0 and s["segment_type"] in ("small", "large") and tuple(s["segment_pool_id"]) == (0, 0)
    assert sum(s["total_size"] for s in segments) == torch.cuda.memory_reserved()
    assert len(segments) == stat("segment.all.current")
    assert sum(s["allocated_size"] for s in segments) == torch.cuda.memory_allocated()
    assert sum(s["requested_size"] for s in segments) == stat("requested_bytes.all.current")
    live = {b["address"]: b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
    assert live[x.data_ptr()]["requested_size"] == 3 * MIB and live[y.data_ptr()]["requested_size"] == 700
    del x, y


def test_sizes_of_segments():
    """A segment is of the pool that its blocks are counted in."""
    settle()
    kept = [tensor(3 * MIB), tensor(700), tensor(100)]
    sums = {}
    for s in torch.cuda.memory_snapshot():
        for kind in ("allocated", "active", "requested"):
            name = f"{kind}_bytes.{s['segment_type']}_pool.current"
            sums[name] = sums.get(name, 0) + s[f"{kind}_size"]
    assert len(sums) == 6 and sums == {name: stat(name) for name in sums}, sums
    del kept


def actions_of(trace, address):
    return [e["action"] for e in trace if e["addr"] == address]


def test_history():
    settle()
    torch.cuda.memory._record_memory_history(max_entries=100000, stacks="python")

    def a_function_to_be_found():
        return tensor(3 * MIB + 100)

    x = a_function_to_be_found()
    address = x.data_ptr()
    live = torch.cuda.memory._snapshot()
    del x
    snapshot = torch.cuda.memory._snapshot()
    trace = snapshot["device_traces"][0]
    assert actions_of(trace, address)[-3:] == ["alloc", "free_requested", "free_completed"], actions_of(trace, address)
    alloc = next(e for e in reversed(trace) if e["addr"] == address and e["action"] == "alloc")
    assert alloc["size"] == 3 * MIB + 100 and alloc["stream"] == 0 and alloc["compile_context"] == "N/A"
    assert any(f["name"] == "a_function_to_be_found" for f in alloc["frames"])
    freed = next(e for e in reversed(trace) if e["addr"] == address and e["action"] == "free_requested")
    assert freed["frames"] and freed["time_us"] >= alloc["time_us"] > 1_600_000_000_000_000
    assert any(e["action"] in ("segment_map", "segment_alloc") for e in trace)
    block = next(b for _, b in blocks_of(live) if b["address"] == address)
    assert any(f["name"] == "a_function_to_be_found" for f in block["frames"])
    times = [e["time_us"] for e in trace]
    assert times == sorted(times)
    assert not any(e["action"] == "snapshot" for e in live["device_traces"][0])
    assert any(e["action"] == "snapshot" for e in trace)
    assert isinstance(snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"], str)
    torch.cuda.memory._record_memory_history(enabled=None)
    assert not torch.cuda.memory._snapshot()["device_traces"][0]


def test_ring_and_skipped_actions():
    skips = RELEASE >= (2, 11)
    options = {"skip_actions": ["free_requested"]} if skips else {}
    torch.cuda.memory._record_memory_history(max_entries=10, stacks="python", **options)
    for _ in range(20):
        tensor(1000)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    assert len(trace) == 10 and not (skips and any(e["action"] == "free_requested" for e in trace))
    assert [e["time_us"] for e in trace] == sorted(e["time_us"] for e in trace)
    torch.cuda.memory._record_memory_history(enabled=None)


def test_context_of_what_is_given_back():
    torch.cuda.memory._record_memory_history(max_entries=10000, stacks="python")
    tensor(3 * MIB)
    torch.cuda.empty_cache()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    gone = [e for e in trace if e["action"] in ("segment_unmap", "segment_free")]
    assert gone and any(f["name"] == "empty_cache" for f in gone[-1]["frames"]), gone
    torch.cuda.memory._record_memory_history(enabled=None)


def test_out_of_memory_entry():
    torch.cuda.memory._record_memory_history(max_entries=1000)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 20 * MIB) / total)
    try:
        tensor(300 * MIB)
        raise AssertionError("served")
    except torch.OutOfMemoryError:
        pass
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    oom = [e for e in trace if e["action"] == "oom"]
    assert len(oom) == 1 and oom[0]["size"] == 300 * MIB and oom[0]["device_free"] > 0
    torch.cuda.memory._record_memory_history(enabled=None)


def test_delayed_free():
    torch.cuda.memory._record_memory_history(max_entries=1000)
    side = torch.cuda.Stream()
    x = tensor(5 * MIB)
    address = x.data_ptr()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
    x.record_stream(side)
    del x
    pending = [b for _, b in blocks_of(torch.cuda.memory._snapshot()) if b["address"] == address]
    assert pending and pending[0]["state"] == "active_pending_free", pending
    side.synchronize()
    settle()
    tensor(MIB)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    assert actions_of(trace, address)[-3:] == ["alloc", "free_requested", "free_completed"]
    torch.cuda.memory._record_memory_history(enabled=None)


def test_dump_and_annotations():
    torch.cuda.memory._record_memory_history(max_entries=100000, global_record_annotations=True)
    net = torch.nn.Linear(1000, 1000).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        net(torch.randn(64, 1000, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    folder = os.environ.get("OUT", "/tmp")
    path = os.path.join(folder, "snapshot.pickle")
    torch.cuda.memory._dump_snapshot(path)
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    names = {a["name"] for a in snapshot["external_annotations"]}
    assert any("AdamW" in name for name in names), names
    torch.cuda.memory._record_memory_history(enabled=None)


def test_viewer():
    """PyTorch's own viewer draws what is dumped: the trace, the segments, and both as text."""
    from torch.cuda import _memory_viz

    torch.cuda.memory._record_memory_history(max_entries=1000, stacks="python")
    kept = [tensor(n * MIB) for n in (1, 30, 5)]
    tensor(3 * MIB)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        torch.cuda.memory._dump_snapshot(path)
        with open(path, "rb") as file:
            snapshot = pickle.load(file)
    torch.cuda.memory._record_memory_history(enabled=None)
    for page in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
        assert "viz" in page.lower() and len(page) > 1000
    text = _memory_viz.trace(snapshot)
    assert "total_allocated" in _memory_viz.segsum(snapshot) and ":30.0MiB]" in text and "# 3.0MiB" in text, text
    del kept


def test_trackers():
    """They hear of everything, history or not."""
    helper.help_track()
    settle()
    blocks, segments = helper.help_tracked_blocks(), helper.help_tracked_segments()
    for _ in range(5):
        tensor(10 * MIB)
    assert helper.help_tracked_blocks() == blocks + 10
    assert helper.help_tracked_segments() > segments
    torch.cuda.memory._record_memory_history(max_entries=100)
    tensor(10 * MIB)
    torch.cuda.memory._record_memory_history(enabled=None)
    assert helper.help_tracked_blocks() == blocks + 12


def test_metadata():
    if not hasattr(torch.cuda.memory, "_set_memory_metadata"):
        return
    torch.cuda.memory._record_memory_history(max_entries=1000)
    torch.cuda.memory._set_memory_metadata("a word")
    x = tensor(MIB)
    torch.cuda.memory._set_memory_metadata("")
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    mine = [e for e in trace if e["addr"] == x.data_ptr() and e["action"] == "alloc"]
    assert mine[-1]["user_metadata"] == "a word"
    torch.cuda.memory._record_memory_history(enabled=None)


if __name__ == "__main__":
    run_group()
