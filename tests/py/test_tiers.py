"""Memory beyond the card, on host memory."""

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
    assert heap.tiers() == {"host_locked_bytes": 10 * MIB, "host_used_bytes": 0, "host_more_bytes": 32 * MIB}
    heap.reserve_host(0)
    assert heap.tiers()["host_locked_bytes"] == 0
    with pytest.raises(ValueError):
        heap.reserve_host(-1)


def test_refused_in_words(heap):
    with pytest.raises(gapless.Error, match="34 MiB more of host memory would have to be locked, 32 MiB may be"):
        heap.reserve_host(34 * MIB)
    assert heap.tiers()["host_locked_bytes"] == 0
