"""CUDA graphs, their pools, checkpoints."""

import torch
from case import MIB, check_heap, install, run_group, settle, shim, tensor

CONF = "page_maker:False"  # what is held changes with calls only, and nobody else has the device's lock when a block could come back
install(CONF.encode())


def warm():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.randn(100, 100, device="cuda") @ torch.randn(100, 100, device="cuda")
    torch.cuda.current_stream().wait_stream(stream)


def capture(work, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        out = work()
    return graph, out


def test_capture_and_replay():
    warm()
    x = torch.arange(5 * MIB, device="cuda", dtype=torch.float32)

    def work():
        y = x * 2  # freed inside: its memory serves z
        z = y + 1
        del y
        return z * 3

    graph, out = capture(work)
    for value in (1.0, 5.0):
        x.fill_(value)
        noise = [tensor(3 * MIB).fill_(255) for _ in range(20)]
        graph.replay()
        assert float(out.min()) == float(out.max()) == (value * 2 + 1) * 3
        del noise
    torch.cuda.empty_cache()
    x.fill_(2.0)
    graph.replay()
    assert float(out.min()) == float(out.max()) == 15.0
    pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
    assert tuple(graph.pool()) in pools, (graph.pool(), pools)


def test_shared_pool():
    warm()
    x = torch.ones(MIB, device="cuda")
    first, a = capture(lambda: x + 1)
    second, b = capture(lambda: a + 1, pool=first.pool())
    first.replay()
    second.replay()
    assert float(b.sum()) == 3.0 * MIB
    first.reset()
    second.replay()
    assert float(b.sum()) == 3.0 * MIB


def test_pool_memory_comes_back():
    settle()
    warm()
    settle()
    before = torch.cuda.memory_reserved()
    x = torch.ones(20 * MIB, device="cuda")
    graph, out = capture(lambda: x + 1)
    assert torch.cuda.memory_reserved() > before + 100 * MIB
    del out, x
    graph.reset()
    del graph
    settle()
    assert torch.cuda.memory_reserved() <= before + 4 * MIB, (torch.cuda.memory_reserved(), before)


def test_record_stream_inside_capture():
    warm()
    x = torch.ones(4 * MIB, device="cuda")
    side = torch.cuda.Stream()

    def work():
        y = x + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = y * 2
        y.record_stream(side)
        del y
        w = x + 5
        torch.cuda.current_stream().wait_stream(side)
        return z + w

    graph, out = capture(work)
    for value in (1.0, 3.0):
        x.fill_(value)
        graph.replay()
        assert float(out.min()) == float(out.max()) == (value + 1) * 2 + value + 5
    check_heap()


def reuse_in_graphs(on):
    """Beside what was configured at the start, whose place this takes.  (PyTorch's own setter is the Python package's to follow.)"""
    assert shim.gapless_torch_configure(f"{CONF},graph_capture_record_stream_reuse:{on}".encode()) == 0


def capture_joins(users, joins):
    """Captures a block's use by other streams; its address, and one allocated after each join (a list of streams to wait for)."""
    torch.cuda.empty_cache()
    own = torch.cuda.Stream()
    sides = [torch.cuda.Stream() for _ in range(users)]
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    keep, sums = [], []
    with torch.cuda.stream(own):
        graph.capture_begin()
        shared = torch.full((8,), 3.0, device="cuda")
        total = torch.zeros(8, device="cuda")
        where = shared.data_ptr()
        for side in sides:
            side.wait_stream(own)
            with torch.cuda.stream(side):
                sums.append(shared * 2)
            shared.record_stream(side)
        del shared
        found = []
        for streams in joins:
            for i, by_way_of in streams:
                (sides[by_way_of] if by_way_of is not None else own).wait_stream(sides[i])
            total.add_(1.0)
            keep.append(torch.full((8,), -7.0, device="cuda"))  # would spoil the sums if it came too early
            found.append(keep[-1].data_ptr())
        for side in sides:
            own.wait_stream(side)
        for one in sums:
            total.add_(one)
        graph.capture_end()
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert total.tolist() == [len(joins) + 6.0 * users] * 8, total
    return where, found


def test_reuse_after_a_join():
    reuse_in_graphs(True)
    where, found = capture_joins(1, [[], [(0, None)]])
    assert found[0] != where and found[1] == where, (where, found)
    reuse_in_graphs(False)
    where, found = capture_joins(1, [[], [(0, None)]])
    assert where not in found, (where, found)
    check_heap()


def test_reuse_after_the_last_join():
    """Three users: one is waited for, then one that waits for the third, and only then all are done."""
    reuse_in_graphs(True)
    where, found = capture_joins(3, [[(0, None)], [(2, 1)], [(1, None)]])
    assert found[2] == where and where not in found[:2], (where, found)
    reuse_in_graphs(False)
    check_heap()


def test_make_graphed_callables():
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda()
    sample = torch.randn(32, 256, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(net, (sample,))
    for _ in range(3):
        x = torch.randn(32, 256, device="cuda", requires_grad=True)
        graphed(x).sum().backward()
    assert bool(x.grad.isfinite().all())


def test_checkpoint():
    """What cudagraph trees do: a path is left, the pool goes back to how it was, the memory serves again."""
    warm()
    pool = torch.cuda.graph_pool_handle()
    device = torch.cuda.current_device()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        kept = torch.full((3 * MIB,), 1.0, device="cuda")
        gone = torch.full((MIB,), 2.0, device="cuda")
        del gone
    state = torch._C._cuda_getCheckpointState(device, pool)
    live_before = {kept.data_ptr()}
    assert torch._C._cuda_checkPoolLiveAllocations(device, pool, live_before)
    later = torch.cuda.CUDAGraph()
    with torch.cuda.graph(later, pool=pool):
        extra = torch.full((2 * MIB,), 3.0, device="cuda")
    assert torch._C._cuda_checkPoolLiveAllocations(device, pool, live_before | {extra.data_ptr()})
    stale = [extra.untyped_storage()._cdata]
    torch._C._cuda_setCheckpointPoolState(device, state, stale, [])
    del extra
    assert not torch._C._cuda_checkPoolLiveAllocations(device, pool, {1234})
    check_heap()


def test_checkpoint_restores_addresses():
    """What was live then and is not now is made again where it was."""
    pool, device = torch.cuda.graph_pool_handle(), torch.cuda.current_device()

    def inside(work):
        torch._C._cuda_beginAllocateCurrentThreadToPool(device, pool)
        out = work()
        torch._C._cuda_endAllocateToPool(device, pool)
        return out

    first = inside(lambda: [tensor(n) for n in (700, 3 * MIB, 40_000, 5 * MIB)])
    del first[1]
    state = torch._C._cuda_getCheckpointState(device, pool)
    places = {x.data_ptr() for x in first}
    held = torch.cuda.memory_reserved()
    first.clear()
    second = inside(lambda: [tensor(n) for n in (4 * MIB, 100, 2 * MIB)])
    assert {x.data_ptr() for x in second} != places
    torch._C._cuda_setCheckpointPoolState(device, state, [x.untyped_storage()._cdata for x in second], [])
    assert torch._C._cuda_checkPoolLiveAllocations(device, pool, places)
    assert torch.cuda.memory_reserved() == held
    check_heap()
    del second
    for place in places:
        torch.cuda.caching_allocator_delete(place)
    torch._C._cuda_releasePool(device, pool)


def test_failed_capture():
    """The last one: torch's random generator does not recover from it."""
    warm()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x = torch.ones(MIB, device="cuda")
            x.sum().item()  # forbidden
        raise AssertionError("captured")
    except RuntimeError:
        pass
    assert float(torch.ones(100, device="cuda").sum()) == 100.0


if __name__ == "__main__":
    run_group()
