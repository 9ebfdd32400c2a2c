"""The C interface through ctypes, on host memory and on a simulated card."""

import ctypes
import ctypes.util
import gc
import threading

import gapless
import pytest
from conftest import ROOT
from gapless import _library
from gapless._library import library

MIB = 1 << 20


@pytest.fixture(params=["host", "sim"])
def heap(request):
    with gapless.Heap(request.param, devices=2, device_bytes=256 * MIB, environment=False, threads=False) as made:
        yield made
        for device in range(2):
            made.check(device)


def test_every_prototype_is_exported():
    missing = [name for name in _library._SIGNATURES if not hasattr(library(), name)]
    assert missing == []


def test_every_function_of_the_header_has_a_prototype():
    import re

    text = (ROOT / "include" / "gapless" / "gapless.h").read_text()
    declared = set(re.findall(r"^GAP_API .*?\b(gap_\w+)\(", text, re.M))
    left_out = {"gap_malloc", "gap_mfree"}  # for programs that link the library
    assert declared - left_out - set(_library._SIGNATURES) == set()


def test_struct_sizes_are_the_headers(tmp_path):
    """The mirror of each struct, measured by a C compiler."""
    import os
    import shutil
    import subprocess

    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler
    names = {
        "gap_heap_options": _library.HeapOptions,
        "gap_usage": _library.UsageStruct,
        "gap_event": _library.EventStruct,
        "gap_block": _library.BlockStruct,
        "gap_pool_id": _library.PoolId,
    }
    prints = "".join(f'printf("%zu\\n", sizeof({name}));' for name in names)
    source = tmp_path / "sizes.c"
    source.write_text(f'#include <stdio.h>\n#include "gapless/gapless.h"\nint main(void) {{ {prints} return 0; }}\n')
    subprocess.run([compiler, "-I", str(ROOT / "include"), str(source), "-o", str(tmp_path / "sizes")], check=True)
    sizes = subprocess.run([str(tmp_path / "sizes")], check=True, capture_output=True, text=True).stdout.split()
    assert [int(size) for size in sizes] == [ctypes.sizeof(mirror) for mirror in names.values()]


def test_numbers_are_never_cut(heap):
    """2**64 + 1 bytes are not 1 byte."""
    block, cut = heap.alloc(4096), (ValueError, ctypes.ArgumentError)
    held, cap = heap.usage(), heap.usage().cap_bytes
    for call in (
        lambda: heap.alloc((1 << 64) + 1),
        lambda: heap.alloc(512, device=1 << 32),
        lambda: heap.free(block + (1 << 64)),
        lambda: heap.set_cap(-1),
        lambda: heap.reserve_host(1 << 64),
        lambda: heap.put([(block, (1 << 64) + 4096)]),
        lambda: heap.put([(block - (1 << 64), 4096)]),
        lambda: gapless.Heap("host", device_bytes=-1, environment=False),
    ):
        with pytest.raises(cut, match="is not from"):
            call()
    assert heap.usage() == held and heap.usage().cap_bytes == cap
    heap.free(block)


def test_texts_are_never_cut(heap):
    for call in (lambda: heap.pool("a\0b"), lambda: heap.sleep("a\0b"), lambda: heap.configure("max_memory:64M\0")):
        with pytest.raises((ValueError, ctypes.ArgumentError), match="has a character 0 inside"):
            call()


def test_versions_agree():
    assert gapless.__version__ == _library.version()


def test_blocks(heap):
    assert heap.device_count == 2
    first, second = heap.alloc(3 * MIB), heap.alloc(1000, device=1, stream=0)
    assert first % 512 == 0 and second % 512 == 0 and heap.alloc(0) == 0
    assert heap.usage(0).live_bytes == 3 * MIB and heap.usage(1).requested_bytes == 1000
    device, block = heap.find(first + 5)
    assert (device, block.address, block.bytes, block.state) == (0, first, 3 * MIB, "live")
    assert heap.find(1) is None
    assert [found.address for found in heap.blocks(0) if found.state == "live"] == [first]
    heap.free(first)
    heap.free(second, stream=0)
    heap.free(0)
    with pytest.raises(gapless.Error) as raised:
        heap.free(first)
    assert raised.value.code == -5
    with pytest.raises(ValueError):
        heap.alloc(-1)
    assert heap.usage(0).live_bytes == 0 and heap.trim(0) > 0 and heap.usage(0).held_bytes == 0


def test_defragment_keeps_addresses_and_bytes():
    with gapless.Heap("host", conf="convert:safe_points,chunk_max:32MiB,page_maker:False", device_bytes=256 * MIB) as heap:
        whole = heap.alloc(32 * MIB)
        heap.free(whole)
        address = heap.alloc(3 * MIB)
        assert address == whole
        ctypes.memset(address, 0x5A, 3 * MIB)
        held = heap.usage(0).held_bytes
        heap.keep_memory(address)
        assert heap.defragment() == 0 and heap.stat("convert_refused_known") == 1
        heap.free(address)
        heap.trim()
        heap.free(heap.alloc(32 * MIB))
        address = heap.alloc(3 * MIB)
        ctypes.memset(address, 0x5A, 3 * MIB)
        assert heap.defragment() == 28 * MIB and heap.usage(0).held_bytes == held - 28 * MIB
        assert ctypes.string_at(address, 3 * MIB) == b"\x5a" * (3 * MIB) and heap.stat("conversions") == 1
        heap.free(address)
        heap.configure("convert:off")
        with pytest.raises(gapless.Error) as raised:
            heap.defragment()
        assert raised.value.code == -10
    assert gapless.defragment() == 0


def test_host_memory_holds_bytes():
    with gapless.Heap("host", device_bytes=64 * MIB) as heap:
        address = heap.alloc(MIB)
        ctypes.memset(address, 0x5A, MIB)
        assert ctypes.string_at(address + MIB - 4, 4) == b"\x5a" * 4


def test_out_of_memory_explains(heap):
    heap.set_cap(8 * MIB)
    keep = heap.alloc(6 * MIB)
    with pytest.raises(gapless.OutOfMemoryError) as raised:
        heap.alloc(16 * MIB)
    assert isinstance(raised.value, MemoryError) and heap.explain(0) in str(raised.value) and heap.explain(0)
    assert heap.stat("num_ooms") == 1 and heap.explain(1) == ""
    heap.free(keep)


def test_oom_callback_frees(heap):
    heap.set_cap(8 * MIB)
    live = [heap.alloc(6 * MIB)]
    seen = []

    def give_back(device, stream, size):
        seen.append((device, stream, size))
        heap.free(live.pop())
        return True

    heap.on_oom(give_back)
    address = heap.alloc(8 * MIB)
    assert seen == [(0, 0, 8 * MIB)] and address
    heap.on_oom(None)
    heap.free(address)


def test_failing_oom_callback_is_said(heap, capfd):
    heap.set_cap(8 * MIB)
    heap.on_oom(lambda *_: 1 // 0)
    with pytest.raises(gapless.OutOfMemoryError):
        heap.alloc(16 * MIB)
    assert "on_oom: ZeroDivisionError" in capfd.readouterr().err


def test_events(heap):
    seen = []
    heap.on_event(seen.append)
    address = heap.alloc(4 * MIB)
    heap.free(address)
    heap.on_event(None)
    heap.free(heap.alloc(4 * MIB))
    kinds = [event.kind for event in seen if event.address == address or event.kind.startswith("segment")]
    assert [kind for kind in kinds if not kind.startswith("segment")] == ["alloc", "free_requested", "free_completed"]
    assert any(kind in ("segment_alloc", "segment_map") for kind in kinds)


def test_pools(heap):
    pool = heap.pool(tag="kv")
    with pool:
        inside = heap.alloc(2 * MIB)
        with heap.pool(tag="inner") as inner:
            deeper = heap.alloc(2 * MIB)
        other_device = heap.alloc(MIB, device=1)
        outside = heap.alloc(2 * MIB, pool=(0, 0))
    after = heap.alloc(2 * MIB)
    of = {address: heap.find(address)[1].pool for address in (inside, deeper, other_device, outside, after)}
    assert of == {inside: pool.id, deeper: inner.id, other_device: (0, 0), outside: (0, 0), after: (0, 0)}
    assert "kv" in heap.memory_summary(0)
    for address in of:
        heap.free(address)


def test_pool_belongs_to_its_thread(heap):
    found = []
    with heap.pool(tag="mine"):
        thread = threading.Thread(target=lambda: found.append(heap.alloc(MIB)))
        thread.start()
        thread.join()
    assert heap.find(found[0])[1].pool == (0, 0)
    heap.free(found[0])


def test_contiguous_pool_is_one_driver_allocation(heap):
    with heap.pool(contiguous=True) as pool:
        address = heap.alloc(12 * MIB)
    block = heap.find(address)[1]
    assert (
        block.pool == pool.id
        and block.segment <= address
        and address + block.bytes <= block.segment + block.segment_bytes
    )
    heap.free(address)


def test_configuration(heap):
    heap.configure("max_memory:16M,strategy:caching_allocator")
    assert heap.conf_value("max_memory") == "16 MiB" and heap.usage().cap_bytes == 16 * MIB
    assert heap.conf_value("strategy") == "caching_allocator"
    with pytest.raises(gapless.ConfigError) as raised:
        heap.configure("max_memory:lots")
    assert "lots" in str(raised.value) and heap.conf_value("max_memory") == "16 MiB"
    with pytest.raises(gapless.ConfigError):
        heap.conf_value("no_such_key")
    heap.configure("")
    assert heap.usage().cap_bytes == 0 and heap.conf_value("strategy") == "gapless"


def test_environment_is_read_again(monkeypatch):
    monkeypatch.setenv("GAPLESS_CONF", "max_memory:32M")
    with gapless.Heap("host", device_bytes=64 * MIB) as heap:
        assert heap.usage().cap_bytes == 32 * MIB
        monkeypatch.setenv("GAPLESS_CONF", "max_memory:16M")
        assert heap.usage().cap_bytes == 32 * MIB
        heap.reload_environment()
        assert heap.usage().cap_bytes == 16 * MIB
        heap.configure("max_memory:24M")
        monkeypatch.delenv("GAPLESS_CONF")
        heap.reload_environment()
        assert heap.usage().cap_bytes == 24 * MIB
        heap.configure("")
        assert heap.usage().cap_bytes == 0


def test_conf_of_a_heap_is_checked():
    with pytest.raises(gapless.ConfigError) as raised:
        gapless.Heap("host", conf="grow_limit:0.1")
    assert "grow_limit" in str(raised.value)
    with pytest.raises(ValueError):
        gapless.Heap("tpu")


def test_statistics(heap):
    address = heap.alloc(4 * MIB)
    stats = heap.stats()
    assert stats["allocated_bytes.all.current"] == 4 * MIB == heap.stat("allocated_bytes.all.current")
    assert len([name for name in stats if name.count(".") == 2]) >= 108
    heap.free(address)
    heap.reset_peaks()
    heap.reset_accumulated()
    assert heap.stat("allocated_bytes.all.peak") == 0 and heap.stat("allocated_bytes.all.allocated") == 0
    with pytest.raises(gapless.Error):
        heap.stat("no.such.figure")


def test_summary_is_for_a_person(heap):
    heap.free(heap.alloc(MIB))
    assert len(heap.memory_summary().splitlines()) > 3


def test_closed_heap_says_so():
    heap = gapless.Heap("host")
    heap.close()
    heap.close()
    with pytest.raises(ValueError):
        heap.alloc(1)


def test_forgotten_heap_and_pool_go_away():
    heap = gapless.Heap("host")
    heap.pool(tag="lost").__enter__().__exit__()
    del heap
    gc.collect()


def test_without_a_driver():
    if ctypes.util.find_library("cuda"):
        pytest.skip("there is a driver here")
    with pytest.raises(gapless.NotSupportedError) as raised:
        gapless.default_heap()
    assert "libcuda" in str(raised.value)


def test_many_threads(heap):
    """ctypes lets go of the interpreter's lock: callers wait for each other in the heap only."""

    def work(seed):
        for step in range(200):
            heap.free(heap.alloc((seed * 7919 + step * 104729) % (3 * MIB) + 1, device=seed % 2))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heap.usage(0).live_bytes == 0 == heap.usage(1).live_bytes
