"""Which saved tensors leave the device: decided from a step that was recorded.

Time is counted in saves and uses.  The *need* of a save is the smallest budget under which it can stay: the most bytes that wait on the device
for their use while it does, of what is used no later than it itself.  So with any budget those are kept that are used soonest, and the bytes that
are copied are as few as the budget allows where uses come in reverse order of saving.  What is in use is on the device in any case, and does not
count.
"""

from typing import Dict, List, NamedTuple, Optional, Set

__all__ = ["Recording", "Plan", "make_plan"]


class Save(NamedTuple):
    """One storage, from its save to its first use."""

    bytes: int
    begin: int
    use: int


class Recording:
    """The saves of a step in their order, and when each was used and let go."""

    def __init__(self) -> None:
        self.tick = 0
        self.sizes: List[int] = []
        self._begin: List[int] = []
        self._use: Dict[int, int] = {}
        self._end: Dict[int, int] = {}

    def save(self, size: int) -> int:
        """Its number."""
        self.tick += 1
        self.sizes.append(size)
        self._begin.append(self.tick)
        return len(self.sizes) - 1

    def use(self, number: int) -> None:
        """The first use counts."""
        self.tick += 1
        self._use.setdefault(number, self.tick)

    def end(self, number: int) -> None:
        """Nobody needs it any more."""
        self.tick += 1
        self._end[number] = self.tick

    @property
    def used(self) -> int:
        """How many were used."""
        return len(self._use)

    def saves(self) -> List[Save]:
        """What was never used waits until its end."""
        last = self.tick + 1
        found = []
        for number, size in enumerate(self.sizes):
            end = min(self._use.get(number, last), self._end.get(number, last))
            found.append(Save(size, self._begin[number], end))
        return found


class _Heights:
    """Sums over a line of ticks: add to a range, ask for the highest of a range."""

    def __init__(self, length: int) -> None:
        self._size = 1 << max(length - 1, 1).bit_length()
        self._most = [0] * (2 * self._size)  # of what is below a node, its own addition included
        self._added = [0] * (2 * self._size)

    def add(self, begin: int, end: int, value: int) -> None:
        """On [begin, end)."""
        left, right = begin + self._size, end + self._size
        first, last = left, right - 1
        while left < right:
            if left & 1:
                self._put(left, value)
                left += 1
            if right & 1:
                right -= 1
                self._put(right, value)
            left >>= 1
            right >>= 1
        self._renew(first)
        self._renew(last)

    def _put(self, node: int, value: int) -> None:
        self._most[node] += value
        self._added[node] += value

    def _renew(self, node: int) -> None:
        while node > 1:
            node >>= 1
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1]) + self._added[node]

    def most(self, begin: int, end: int) -> int:
        """Of [begin, end)."""
        found = 0
        left, right = begin + self._size, end + self._size
        while left < right:
            if left & 1:
                found = max(found, self._above(left))
                left += 1
            if right & 1:
                right -= 1
                found = max(found, self._above(right))
            left >>= 1
            right >>= 1
        return found

    def _above(self, node: int) -> int:
        height = self._most[node]
        while node > 1:
            node >>= 1
            height += self._added[node]
        return height


class Plan:
    """What a recorded step says about the next ones, which may have other sizes but the same saves."""

    def __init__(self, sizes: List[int], needs: List[int], ranks: List[int], stays: Set[int]) -> None:
        self.sizes, self.needs, self.ranks, self.stays = sizes, needs, ranks, stays
        self.peak = max(needs, default=0)
        self.sums = [0]
        for size in sizes:
            self.sums.append(self.sums[-1] + size)
        self.to_disk: Set[int] = set()

    def __len__(self) -> int:
        return len(self.sizes)

    def leaves(self, number: int, budget: float) -> bool:
        """Whether this save leaves the device, with a budget in bytes of the recorded step."""
        return number not in self.stays and number < len(self.needs) and self.needs[number] > budget

    def ratio(self, count: int, bytes_now: int) -> float:
        """How much larger the present step is, after so many saves of so many bytes."""
        before = self.sums[min(count, len(self.sizes))]
        return bytes_now / before if before and count <= len(self.sizes) else 1.0

    def place(self, budget: float, host_bytes: int, unit: int) -> None:
        """What is used last goes to the disk, until the rest finds room in host memory."""
        leaving = [n for n in range(len(self.needs)) if self.leaves(n, budget)]
        left = sum(-(-self.sizes[n] // unit) * unit for n in leaving)
        self.to_disk = set()
        for number in sorted(leaving, key=lambda n: -self.ranks[n]):
            if left <= host_bytes:
                return
            self.to_disk.add(number)
            left -= -(-self.sizes[number] // unit) * unit


def make_plan(recording: Recording, stays: Optional[Set[int]] = None) -> Plan:
    """`stays`: saves that live on the device anyway; they cost nothing there and never leave."""
    saves, stays = recording.saves(), set(stays or ())
    heights = _Heights(recording.tick + 2)
    by_use = sorted(range(len(saves)), key=lambda n: (saves[n].use, saves[n].begin))
    needs, ranks = [0] * len(saves), [0] * len(saves)
    for rank, number in enumerate(by_use):
        save = saves[number]
        ranks[number] = rank
        if number in stays:
            continue
        until = max(save.use, save.begin + 1)
        heights.add(save.begin, until, save.bytes)
        needs[number] = heights.most(save.begin, until)
    return Plan(recording.sizes, needs, ranks, stays)
