"""Which saves leave the device: the plan beside a slow one that asks the definition, and what it does with other sizes."""

import random

import pytest
from gapless._offload_plan import Recording, make_plan


def in_reverse(sizes):
    recording = Recording()
    for size in sizes:
        recording.save(size)
    for number in reversed(range(len(sizes))):
        recording.use(number)
        recording.end(number)
    return recording


def test_what_is_used_soonest_stays():
    plan = make_plan(in_reverse([10, 20, 30, 40]))
    assert plan.peak == 100 and plan.needs == [100, 90, 70, 40] and plan.ranks == [3, 2, 1, 0]
    assert [n for n in range(4) if plan.leaves(n, 70)] == [0, 1]
    assert not any(plan.leaves(n, 100) for n in range(4)) and all(plan.leaves(n, 0) for n in range(4))


def test_what_stays_anyway_costs_nothing():
    plan = make_plan(in_reverse([10, 20, 30, 40]), {3})
    assert plan.peak == 60 and not plan.leaves(3, 0) and plan.leaves(2, 29) and not plan.leaves(2, 30)


def test_used_out_of_order():
    """The first is used first: it stays where the second cannot."""
    recording = Recording()
    for size in (5, 7):
        recording.save(size)
    for number in (0, 1):
        recording.use(number)
        recording.end(number)
    plan = make_plan(recording)
    assert plan.needs == [5, 12] and plan.ranks == [0, 1]


def test_recomputed_in_the_backward():
    """Saved and used while the others wait: it never leaves, however small the budget that the others do not fit into."""
    recording = Recording()
    recording.save(50)
    recording.save(60)
    for number in (1, 0):
        recording.use(number)
        again = recording.save(9)
        recording.use(again)
        recording.end(again)
        recording.end(number)
    plan = make_plan(recording)
    assert plan.needs == [110, 60, 9, 9]


def slow_needs(saves, tick):
    needs = []
    for one in saves:
        sooner = [s for s in saves if (s.use, s.begin) <= (one.use, one.begin)]
        times = range(one.begin, max(one.use, one.begin + 1))
        needs.append(max(sum(s.bytes for s in sooner if s.begin <= t < max(s.use, s.begin + 1)) for t in times))
    return needs


@pytest.mark.parametrize("seed", range(20))
def test_beside_the_definition(seed):
    rng = random.Random(seed)
    recording, alive = Recording(), []
    for _ in range(60):
        if not alive or rng.random() < 0.5:
            alive.append(recording.save(rng.randint(1, 100)))
        else:
            number = alive.pop(rng.randrange(len(alive)))
            if rng.random() < 0.9:
                recording.use(number)
            if rng.random() < 0.8:
                recording.end(number)
    assert make_plan(recording).needs == slow_needs(recording.saves(), recording.tick)


@pytest.mark.parametrize("seed", range(5))
def test_a_budget_is_kept(seed):
    """Bytes that the plan leaves on the device never exceed it, whatever the budget."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 50) for _ in range(40)]
    plan = make_plan(in_reverse(sizes))
    for budget in range(0, sum(sizes) + 1, 37):
        kept = sum(size for number, size in enumerate(sizes) if not plan.leaves(number, budget))
        assert kept <= budget
        assert kept == sum(sizes) or kept + max(sizes) > budget  # and no more leaves than must


def test_other_sizes():
    plan = make_plan(in_reverse([10, 20, 30, 40]))
    assert plan.ratio(0, 0) == 1.0 and plan.ratio(2, 60) == 2.0 and plan.ratio(5, 60) == 1.0


def test_what_is_used_last_goes_to_the_disk():
    plan = make_plan(in_reverse([10, 20, 30, 40]))
    plan.place(40, 40, 10)
    assert plan.to_disk == {0, 1}  # of 10, 20 and 30
    plan.place(40, 60, 10)
    assert plan.to_disk == set()
    plan.place(40, 30, 16)  # in units: 16, 32 and 32
    assert plan.to_disk == {0, 1, 2}
