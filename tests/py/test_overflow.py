"""Overflow, on host memory: more than the device has, at addresses like any other."""

import ctypes

import gapless
import pytest
from gapless import _cold

MIB = 1 << 20
OPTIONS = {"device_bytes": 256 * MIB, "environment": False, "threads": False}


@pytest.fixture
def heap():
    with gapless.Heap("host", conf="max_memory:16M,overflow:on,tiers:host=24M", **OPTIONS) as made:
        yield made
        made.check(0)


def test_more_than_the_device_has(heap):
    blocks = [heap.alloc(5 * MIB) for _ in range(7)]
    for byte, address in enumerate(blocks):
        ctypes.memset(address, byte, 5 * MIB)
    for byte, address in enumerate(blocks):
        assert ctypes.string_at(address, 5 * MIB) == bytes([byte]) * (5 * MIB)
    assert heap.stat("reserved_bytes.all.current") <= 16 * MIB
    assert heap.stat("overflow_live_bytes") == heap.stat("overflow_placed_bytes") == 20 * MIB
    assert heap.stat("overflow_bytes") == heap.stat("overflow_bytes_peak") <= 24 * MIB
    assert heap.stat("rung.overflow.count") == 4
    assert "overflow: 20 MiB of host memory at device addresses, 20 MiB of it live" in heap.memory_summary()
    for address in blocks:
        heap.free(address)
    heap.trim()
    assert heap.stat("overflow_bytes") == 0


def test_refused_in_words(heap):
    block = heap.alloc(22 * MIB)
    with pytest.raises(gapless.Error, match="the limit is that of tiers"):
        heap.alloc(22 * MIB)
    with pytest.raises(gapless.Error, match="cannot be exported or registered"):
        heap.keep_memory(block)
    heap.free(block)


def test_off_unless_it_is_asked_for():
    with gapless.Heap("host", conf="max_memory:16M", **OPTIONS) as heap:
        with pytest.raises(gapless.OutOfMemoryError):
            heap.alloc(22 * MIB)
        heap.configure("max_memory:16M,overflow:on")
        heap.free(heap.alloc(22 * MIB))


class Storage:
    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


class Tensor:
    def __init__(self, address, is_cuda=True):
        self.address, self.is_cuda = address, is_cuda

    def untyped_storage(self):
        return Storage(self.address)


class Optimizer:
    def __init__(self, parameters, state):
        self.param_groups, self.state = [{"params": parameters}], state


def test_cold_states_make_room(heap, monkeypatch):
    weights, states, views = heap.alloc(6 * MIB), heap.alloc(6 * MIB), heap.alloc(4 * MIB)
    ctypes.memset(states, 7, 6 * MIB)
    monkeypatch.setattr(gapless, "_heap_in_use", lambda: heap)
    optimizer = Optimizer([Tensor(weights)], {"w": {"step": 3, "exp_avg": Tensor(states), "again": [Tensor(states)]}})
    assert gapless.hint_cold(optimizer) == 1
    assert gapless.hint_cold([Tensor(0), Tensor(weights, is_cuda=False), Tensor(4096), None]) == 0
    step = heap.alloc(4 * MIB)
    assert heap.stat("overflow_live_bytes") == 4 * MIB
    heap.free(step)
    assert gapless.defragment() == 0
    assert heap.stat("overflow_out_bytes") == heap.stat("overflow_live_bytes") == 4 * MIB
    step = heap.alloc(4 * MIB)
    assert heap.stat("overflow_live_bytes") == 4 * MIB
    assert ctypes.string_at(states, 6 * MIB) == bytes([7]) * (6 * MIB)
    heap.free(step)
    heap.free(views)
    assert gapless.hint_cold(Tensor(states), cold=False) == 1
    heap.trim()
    gapless.defragment()
    assert heap.stat("overflow_back_bytes") == 4 * MIB and heap.stat("overflow_live_bytes") == 0
    assert ctypes.string_at(states, 6 * MIB) == bytes([7]) * (6 * MIB)
    heap.free(states)
    assert not heap.hint(states)
    heap.free(weights)


def moves_after_steps(heap, optimizer):
    """Bytes of cold blocks that a safe point after the optimiser's step moves to host memory."""
    step = heap.alloc(4 * MIB)
    _cold._after_step(optimizer, (), {})
    heap.free(step)
    before = heap.stat("overflow_out_bytes")
    gapless.defragment()
    return heap.stat("overflow_out_bytes") - before


def test_states_of_optimizers_are_cold_by_themselves(heap, monkeypatch):
    monkeypatch.setattr(gapless, "_heap_in_use", lambda: heap)
    weights, states, views = heap.alloc(6 * MIB), heap.alloc(6 * MIB), heap.alloc(4 * MIB)
    optimizer = Optimizer([Tensor(weights)], {"w": {"exp_avg": Tensor(states)}})
    warm = Optimizer([Tensor(weights)], {"w": {"exp_avg": Tensor(states)}})
    assert gapless.hint_cold(warm, cold=False) == 1
    assert moves_after_steps(heap, warm) == 0
    assert moves_after_steps(heap, optimizer) == 4 * MIB
    for address in (weights, states, views):
        heap.free(address)


def test_nothing_is_said_while_all_fits(heap, monkeypatch):
    monkeypatch.setattr(gapless, "_heap_in_use", lambda: heap)
    monkeypatch.setattr(heap, "hint", lambda *_: pytest.fail("nobody lacks memory"))
    states = heap.alloc(6 * MIB)
    _cold._after_step(Optimizer([], {"w": {"exp_avg": Tensor(states)}}), (), {})
    heap.free(states)
