"""Sums that stay small however many jobs are added to them."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

EDGES: Final = (
    0,
    1,
    2,
    3,
    *(2**octave * quarter // 4 for octave in range(2, 28) for quarter in range(4, 8)),
)
"""Upper ends of ranges of tokens, four ranges to a doubling: 4 5 6 7 8 10 12 14 16 20 ..."""


def range_of(tokens: int) -> int:
    """The index of the range that ends at `EDGES[index]` and holds the number."""
    return min(bisect_left(EDGES, tokens), len(EDGES) - 1)


class Top(Generic[Item]):
    """The items of the highest ranks."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[float, int, Item]] = []
        self.seen = 0

    def add(self, rank: float, item: Item) -> None:
        """Take the item, if its rank is high enough."""
        self.seen += 1
        entry = (rank, -self.seen, item)  # The number keeps items from being compared.
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def items(self) -> list[Item]:
        """The highest rank first."""
        return [item for _, _, item in sorted(self._heap, reverse=True)]


class Rate:
    """Tokens per second over time.

    A job's tokens are spread evenly over the time that it was decoded in. Slots become longer as
    the time that they have to cover grows.
    """

    SLOTS: Final = 120
    LENGTHS_MS: Final = (
        *(250, 500, 1000, 5000, 15_000, 60_000, 300_000, 900_000),
        *(3_600_000, 14_400_000, 86_400_000, 604_800_000),
    )
    """Each a multiple of the one before it."""

    def __init__(self) -> None:
        self._level = 0
        self._slots: Counter[int] = Counter()
        self.start_ms, self.end_ms = 0, 0

    def add(self, tokens: int, start_ms: int, end_ms: int) -> None:
        """Tokens that were decoded from the one time to the other (Unix milliseconds)."""
        end_ms = max(end_ms, start_ms + 1)
        self.start_ms = min(self.start_ms or start_ms, start_ms)
        self.end_ms = max(self.end_ms, end_ms)
        while self._too_many():
            self._lengthen()
        length = self.slot_ms
        for slot in range(start_ms // length, (end_ms - 1) // length + 1):
            covered = min(end_ms, (slot + 1) * length) - max(start_ms, slot * length)
            self._slots[slot] += round(1000 * tokens * covered / (end_ms - start_ms))

    @property
    def slot_ms(self) -> int:
        """Length of a slot."""
        return self.LENGTHS_MS[self._level]

    def per_second(self) -> list[float]:
        """The rate in each slot, from the first to the last."""
        if not self._slots:
            return []
        first, last = min(self._slots), max(self._slots)
        return [self._slots[n] / self._covered_ms(n) for n in range(first, last + 1)]

    def _covered_ms(self, slot: int) -> float:
        """How much of a slot the work lies in; of too little no rate can be told."""
        start, length = slot * self.slot_ms, self.slot_ms
        covered = min(self.end_ms, start + length) - max(self.start_ms, start)
        return max(covered, length / 2)

    def _too_many(self) -> bool:
        longest = self._level == len(self.LENGTHS_MS) - 1
        return not longest and (self.end_ms - self.start_ms) // self.slot_ms > self.SLOTS

    def _lengthen(self) -> None:
        shorter, longer = self.LENGTHS_MS[self._level : self._level + 2]
        merged: Counter[int] = Counter()
        for slot, tokens in self._slots.items():
            merged[slot * shorter // longer] += tokens
        self._level, self._slots = self._level + 1, merged
