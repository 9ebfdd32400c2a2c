"""KV pages below the device, from Python: they go down, leave, and come up as they were."""

import ctypes
import re

import gapless
import pytest
from conftest import ROOT
from gapless import _kv, kv

MIB = 1 << 20
TOKENS = list(range(1, 400))


@pytest.fixture
def heap(tmp_path):
    with gapless.Heap("host", conf=f"tiers:host=64M,disk={tmp_path}:64M", device_bytes=256 * MIB, environment=False) as made:
        yield made
        made.check(0)


def cache_in(heap, **options):
    return kv.Cache(heap, 4, 8, 64, bytes=32 * MIB, tokens=4096, block_major=True, sharing="sha256", **options)


def serve(cache):
    seq, hit = cache.open(TOKENS)
    cache.append([seq], [len(TOKENS) - hit], [TOKENS[hit:]])
    cache.flush()
    addresses = [cache.shape.first + slot // 16 * cache.shape.page_stride for slot in cache.slots(seq, 0, 384)[::16]]
    words = [ctypes.c_uint64.from_address(address) for address in addresses]
    found = [word.value for word in words[: hit // 16]]
    for i, word in enumerate(words):
        word.value = 1000 + i
    cache.end(seq)
    return hit, found


def test_down_and_up(heap):
    cache = cache_in(heap)
    cache.open_tiers()
    assert serve(cache)[0] == 0
    assert cache.drain(everything=True)
    cache.forget()
    assert cache.fetched(cache.fetch(TOKENS), 20000) == 384
    hit, found = serve(cache)
    assert hit >= 384 and found == [1000 + i for i in range(24)]
    stats = cache.tier_stats()
    assert stats["host_fetched"] == 24 and stats["lost"] == 0
    cache.tell_computed(100, 0.001)
    cache.check()
    cache.close()


def test_what_is_refused(heap):
    cache = kv.Cache(heap, 4, 8, 64, bytes=32 * MIB, tokens=4096, block_major=True, sharing="fast")
    with pytest.raises(gapless.Error, match="SHA-256"):
        cache.open_tiers()
    cache.close()


def test_every_function_of_the_header_that_is_bound_is_there():
    text = (ROOT / "include" / "gapless" / "kv_tiers.h").read_text()
    declared = set(re.findall(r"^GAP_API .*?\b(gap_\w+)\(", text, re.M))
    assert declared - set(_kv._SIGNATURES) == {"gap_kv_get_remote"}


def test_sleep_on_servers_that_are_not_named(heap):
    with pytest.raises(gapless.Error):
        heap.sleep("weights", remote=True)
