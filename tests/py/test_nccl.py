"""Registering a pool with NCCL: what would be taken for its first piece is left out, in words."""

from types import SimpleNamespace

import pytest
from conftest import ROOT  # noqa: F401  (the package's folder is put on the path)

from gapless import _nccl, _torch

CONTIGUOUS = 2


class Pool:
    def __init__(self, number, allocator=None):
        self.id, self.allocator = (0, number), allocator


class Door:
    """Takes flags of pools that have had no block."""

    def __init__(self):
        self.flags, self.used = {}, set()

    def pool_flags(self, pool, flags, tag):
        if pool in self.used:
            raise RuntimeError("the pool is in use already")
        self.flags[pool] = flags


@pytest.fixture
def nccl(monkeypatch):
    """A process group that keeps what it is asked, with ours around it; `segments` are those of each pool."""

    class Group:
        asked = []

        def register_mem_pool(self, pool, symm=False):
            self.asked.append(("register", pool.id, symm))

        def deregister_mem_pool(self, pool):
            self.asked.append(("deregister", pool.id))

    segments = {}
    cuda = SimpleNamespace(memory_snapshot=lambda pool: [{"is_expandable": one} for one in segments.get(tuple(pool), ())])
    torch = SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=SimpleNamespace(ProcessGroupNCCL=Group)), cuda=cuda)
    door = Door()
    monkeypatch.setattr(_torch.state, "door", door)
    monkeypatch.setattr(_nccl, "_left_out", set())
    monkeypatch.setattr(_nccl, "contiguous", set())
    _nccl.attach(torch)
    return SimpleNamespace(group=Group(), asked=Group.asked, segments=segments, door=door)


def test_pieces_are_left_out(nccl, capfd):
    pool = Pool(1)
    nccl.segments[pool.id] = [False, True]
    nccl.group.register_mem_pool(pool)
    nccl.group.deregister_mem_pool(pool)
    assert nccl.asked == []
    assert "not registered: the blocks of this pool lie in several driver allocations" in capfd.readouterr().err
    with pytest.raises(RuntimeError, match=r"gapless.pool\(contiguous=True\)"):
        nccl.group.register_mem_pool(pool, symm=True)
    with pytest.raises(RuntimeError):
        nccl.group.register_mem_pool(pool, True)
    nccl.group.deregister_mem_pool(pool)  # it is not left out any more: torch's own answer
    assert nccl.asked == [("deregister", pool.id)]


def test_whole_blocks_are_registered(nccl, capfd):
    pool = Pool(2)
    nccl.segments[pool.id] = [False, False]
    nccl.group.register_mem_pool(pool, symm=True)
    nccl.group.deregister_mem_pool(pool)
    assert nccl.asked == [("register", pool.id, True), ("deregister", pool.id)]
    assert nccl.door.flags == {} and capfd.readouterr().err == ""


def test_an_empty_pool_becomes_contiguous(nccl):
    fresh, used, made = Pool(3), Pool(4), Pool(5)
    nccl.door.used.add(used.id)
    _nccl.contiguous.add(made.id)
    for pool in (fresh, used, made):
        nccl.group.register_mem_pool(pool)
    assert nccl.asked == [("register", fresh.id, False), ("register", made.id, False)]
    assert nccl.door.flags == {fresh.id: CONTIGUOUS}


def test_memory_of_others(nccl, monkeypatch):
    """A pool with an allocator of its own, and everything while gapless does not serve."""
    own, plain = Pool(6, allocator=object()), Pool(7)
    nccl.segments[own.id] = nccl.segments[plain.id] = [True]
    nccl.group.register_mem_pool(own)
    monkeypatch.setattr(_torch.state, "door", None)
    nccl.group.register_mem_pool(plain)
    assert nccl.asked == [("register", own.id, False), ("register", plain.id, False)]


def test_a_torch_without_nccl():
    _nccl.attach(SimpleNamespace(_C=SimpleNamespace()))
    _nccl.attach(SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=SimpleNamespace())))
