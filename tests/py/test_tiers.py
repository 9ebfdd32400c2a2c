"""Memory beyond the card, on host memory."""

import ctypes

import gapless
import pytest
from conftest import ROOT
from gapless import _library

MIB = 1 << 20


@pytest.fixture
def heap():
    options = {"device_bytes": 256 * MIB, "environment": False, "threads": False}
    with gapless.Heap("host", conf="tiers:host=32M", **options) as made:
        yield made
        made.check(0)


def test_every_function_of_the_header_has_a_prototype():
    import re

    text = (ROOT / "include" / "gapless" / "tier.h").read_text()
    declared = set(re.findall(r"^GAP_API .*?\b(gap_\w+)\(", text, re.M))
    assert declared and declared - set(_library._SIGNATURES) == set()


def test_reserve_host(heap):
    heap.reserve_host(10 * MIB)
    now = heap.tiers()
    assert (now["host_locked_bytes"], now["host_used_bytes"], now["host_more_bytes"]) == (10 * MIB, 0, 32 * MIB)
    heap.reserve_host(0)
    assert heap.tiers()["host_locked_bytes"] == 0
    with pytest.raises(ValueError):
        heap.reserve_host(-1)


def test_refused_in_words(heap):
    with pytest.raises(gapless.Error, match="34 MiB more of host memory would have to be locked, 32 MiB may be"):
        heap.reserve_host(34 * MIB)
    assert heap.tiers()["host_locked_bytes"] == 0


def fill(address, size, byte):
    ctypes.memset(address, byte, size)


def holds(address, size, byte):
    return ctypes.string_at(address, size) == bytes([byte]) * size


def test_sleep_and_wake(heap):
    with heap.pool("weights") as weights:
        one, two = heap.alloc(5 * MIB), heap.alloc(700)
    fill(one, 5 * MIB, 17)
    fill(two, 700, 34)
    held = heap.stat("reserved_bytes.all.current")
    assert heap.sleep("weights") == 8 * MIB
    assert heap.stat("reserved_bytes.all.current") == held - 8 * MIB
    assert heap.stat("asleep_bytes") == heap.tiers()["asleep_bytes"] == 8 * MIB
    with pytest.raises(gapless.Error, match="not allowed in the present state"):
        heap.alloc(512, pool=weights)
    heap.wake_block(one)
    assert holds(one, 5 * MIB, 17)
    heap.wake("weights")
    assert holds(one, 5 * MIB, 17) and holds(two, 700, 34)
    heap.free(one)
    heap.free(two)


def test_copies_that_are_kept_or_dropped(heap):
    with heap.pool("weights"):
        one = heap.alloc(4 * MIB)
    fill(one, 4 * MIB, 1)
    heap.sleep("weights")
    heap.wake("weights", keep=True)
    heap.sleep("weights", unchanged=True)
    heap.wake()
    assert heap.tiers()["spared_bytes"] == heap.tiers()["saved_bytes"] == 4 * MIB
    assert holds(one, 4 * MIB, 1)
    heap.sleep(drop=True)
    heap.wake()
    assert heap.tiers()["saved_bytes"] == 4 * MIB
    heap.free(one)


def test_errors_say_why(heap):
    with pytest.raises(gapless.Error, match="no pool of the device has that tag"):
        heap.sleep("nobody")
    with pytest.raises(gapless.Error):
        heap.wake_block(4096)
    with heap.pool("large"):
        large = heap.alloc(40 * MIB)
    fill(large, 40 * MIB, 3)
    with pytest.raises(gapless.Error, match="32 MiB may be"):
        heap.sleep("large")
    assert holds(large, 40 * MIB, 3)
    heap.free(large)


def test_errors_say_why_and_nothing_else(heap):
    """What an earlier call failed for is not what this one did."""
    with pytest.raises(gapless.Error, match="no pool of the device has that tag"):
        heap.sleep("nobody")
    with heap.pool("weights") as weights:
        one = heap.alloc(MIB)
    said = {
        "no other flag goes with that": lambda: heap.sleep("weights", drop=True, disk=True),
        "kept or dropped, not both": lambda: heap.wake("weights", keep=True, drop=True),
        "no spans were given": lambda: heap.put([]),
        "no such item": lambda: heap.join(5),
        "there is no device 7: the heap has 1": lambda: heap.sleep("weights", device=7),
    }
    for words, call in said.items():
        with pytest.raises(gapless.Error, match=words) as caught:
            call()
        assert "has that tag" not in str(caught.value)
    heap.sleep("weights")
    with pytest.raises(gapless.Error, match="the pool that the request is for is asleep"):
        heap.alloc(MIB, pool=weights)
    heap.wake("weights")
    heap.free(one)
    weights.close()
    with pytest.raises(gapless.Error, match="the pool that the request is for is not in use"):
        heap.alloc(MIB, pool=weights)


def test_to_disk(tmp_path):
    with gapless.Heap("host", device_bytes=64 * MIB, conf=f"tiers:disk={tmp_path}:50M", environment=False) as heap:
        with heap.pool("weights"):
            one = heap.alloc(20 * MIB)
        fill(one, 20 * MIB, 9)
        heap.sleep("weights")
        assert heap.tiers()["disk_used_bytes"] == 20 * MIB
        heap.wake("weights")
        assert holds(one, 20 * MIB, 9)
        assert heap.tiers()["disk_used_bytes"] == 0
        heap.free(one)
    assert list(tmp_path.iterdir()) == []


def test_not_in_use():
    assert gapless.sleep("weights") == 0
    gapless.wake("weights")


# ---- items ----


def test_items(heap):
    one, two = heap.alloc(3 * MIB), heap.alloc(3 * MIB)
    fill(one, 2 * MIB, 5)
    fill(one + 2 * MIB, MIB, 6)
    item = heap.put([(one, 2 * MIB), (one + 2 * MIB, MIB)])
    heap.join(item)
    fill(one, 3 * MIB, 0)
    heap.get(item, [(two, MIB + 1)], start=2 * MIB - 1)
    heap.wait(item)
    assert holds(two, 1, 5) and holds(two + 1, MIB, 6)
    assert heap.look(item) == {"bytes": 3 * MIB, "host_bytes": 4 * MIB, "disk_bytes": 0, "copying": 0, "busy": 0, "error": 0}
    with pytest.raises(gapless.Error, match="outside its documented range"):
        heap.get(item, [(two, MIB)], start=3 * MIB)
    heap.drop(item)
    with pytest.raises(gapless.Error):
        heap.wait(item)
    with pytest.raises(gapless.Error, match="there is no disk in tiers"):
        heap.put([(one, 4096)], place="disk")
    with pytest.raises(ValueError, match="place 'tape': 'host', 'disk'"):
        heap.put([(one, 4096)], place="tape")
    assert heap.tiers()["host_used_bytes"] == 0
    heap.free(one)
    heap.free(two)


def test_items_that_find_no_room(heap):
    large = heap.alloc(34 * MIB)
    with pytest.raises(gapless.Error, match="32 MiB may be"):
        heap.put([(large, 34 * MIB)])
    heap.free(large)
