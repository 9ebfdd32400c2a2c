"""torch.profiler's view of memory: events of blocks, of errors, and the timeline."""

import json
import os
import tempfile

import torch
from case import MIB, install, run_group, settle, tensor
from torch.profiler import ProfilerActivity, profile

install(b"max_memory:600MiB,page_maker:False")


def watched(work, activities=(ProfilerActivity.CPU,), **options):
    with profile(activities=list(activities), profile_memory=True, **options) as prof:
        work()
    return prof


def sizes_of(prof):
    """The bytes of all memory events on the card, by time: positive when a block was allocated, negative when freed."""
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    return [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns()) if e.device_type().name == "CUDA"]


def fields_of(prof, kind):
    """The fields of all events of a kind that lie inside operators, by time."""
    found, open_ = [], list(prof.profiler.kineto_results.experimental_event_tree())
    while open_:
        event = open_.pop()
        open_ += event.children
        if type(event.extra_fields).__name__ == f"_ExtraFields_{kind}":
            found.append((event.start_time_ns, event.extra_fields))
    return [fields for _, fields in sorted(found, key=lambda pair: pair[0])]


def test_free_of_what_was_there_before():
    """The first test: no profile before it was told of an allocation."""
    held = [tensor(3 * MIB)]
    assert sizes_of(watched(held.clear)) == [-3 * MIB]


def test_events_of_blocks():
    """Every block has its two events with its own bytes, and is told what was allocated and held then."""
    settle()
    kept, before, where = tensor(MIB), torch.cuda.memory_allocated(), []

    def work():
        x = tensor(4 * MIB + 100)
        y = tensor(30 * MIB)
        where.extend([x.data_ptr(), y.data_ptr()])
        del x
        del y

    prof, sizes = watched(work), [4 * MIB + 512, 30 * MIB]
    assert sizes_of(prof) == sizes + [-size for size in sizes], sizes_of(prof)
    made = fields_of(prof, "Allocation")
    assert [e.alloc_size for e in made] == sizes and [e.ptr for e in made] == where
    assert [e.total_allocated for e in made] == [before + sizes[0], before + sum(sizes)]
    assert all(e.total_reserved >= e.total_allocated for e in made)
    del kept


def test_nothing_is_kept_of_a_profile():
    """After a profile blocks are served as before it, and a later one hears of its own only."""
    watched(lambda: tensor(MIB))
    for _ in range(100):
        tensor(5 * MIB)
    assert sizes_of(watched(lambda: tensor(7 * MIB))) == [7 * MIB, -7 * MIB]


def test_event_of_an_error():
    def work():
        try:
            tensor(900 * MIB)
        except torch.OutOfMemoryError:
            pass

    seen = fields_of(watched(work), "OutOfMemory")
    assert len(seen) == 1, seen


def test_timeline():
    """The exported timeline of a training step: sums of bytes by category over time."""
    net = torch.nn.Sequential(torch.nn.Linear(1000, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 1000)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def work():
        for _ in range(3):
            loss = net(torch.randn(512, 1000, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    prof = watched(work, (ProfilerActivity.CPU, ProfilerActivity.CUDA), record_shapes=True, with_stack=True)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "timeline.json")
        prof.export_memory_timeline(path, device="cuda:0")
        with open(path, encoding="utf-8") as file:
            times, sizes = json.load(file)
    sums = [sum(row) for row in sizes]
    weights = 4 * sum(p.numel() for p in net.parameters())
    assert len(times) == len(sums) > 30 and times == sorted(times)
    assert min(sums) >= 0 and max(sums) > 2 * weights, (min(sums), max(sums), weights)


if __name__ == "__main__":
    run_group()
