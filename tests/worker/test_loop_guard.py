"""The loop guard: every true loop is convicted at the very token, and nothing else ever is."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinkq.worker.loop_guard import MAX_PERIOD, MIN_COPIES, MIN_COVERED, LoopGuard


def convicted_at(tokens: Sequence[int]) -> tuple[int, int] | None:
    """How many tokens the guard needed, and the period; None if it never convicts."""
    guard = LoopGuard()
    for i, token in enumerate(tokens, 1):
        if guard.push(token):
            assert guard.period is not None
            return i, guard.period
    return None


def obviously(tokens: Sequence[int]) -> tuple[int, int] | None:
    """The definition, spelled out: after each token, is there a period that covers enough?"""
    for end in range(MIN_COVERED, len(tokens) + 1):
        for p in range(1, MAX_PERIOD + 1):
            covered = max(MIN_COVERED, MIN_COPIES * p)
            if covered <= end:
                tail = tokens[end - covered : end]
                if all(tail[i] == tail[i - p] for i in range(p, covered)):
                    return end, p
    return None


@pytest.mark.parametrize("period", [1, 2, 3, 7, 15, 16, 17, 21, 22, 48, 64, 100, 255, 256])
@pytest.mark.parametrize("prefix", [0, 1, 50, 700])
def test_a_loop_is_convicted_when_it_has_covered_enough(period: int, prefix: int) -> None:
    source = random.Random(period)
    before = [source.randrange(1000, 50_000) for _ in range(prefix)]
    cycle = [*range(period)]
    tokens = [*before, *(cycle * 80)][: prefix + 4 * period + 200]
    assert convicted_at(tokens) == (prefix + max(64, 4 * period), period)


def test_a_cycle_longer_than_the_longest_period_is_not_convicted() -> None:
    assert convicted_at([*range(257)] * 6) is None


def test_three_copies_and_most_of_a_fourth_are_not_enough() -> None:
    cycle = [*range(100)]
    assert convicted_at([*cycle, *cycle, *cycle, *cycle[:-1], 7777, *cycle[:50]]) is None


def test_a_loop_whose_parts_repeat_among_themselves_is_convicted() -> None:
    """Every window of this cycle occurs twice within it, at other distances than its period."""
    joint = [*range(900, 950)]
    p, q, r = [*range(0, 5)], [*range(10, 15)], [*range(20, 25)]
    cycle = [token for part in (p, q, p, r, q, r) for token in (*part, *joint)][:250]
    tokens = cycle * 5
    assert convicted_at(tokens) == obviously(tokens) is not None


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=6), st.data()
)
def test_the_guard_agrees_with_the_definition(words: list[list[int]], data: st.DataObject) -> None:
    """On texts of few words and many repetitions, where near-loops abound."""
    tokens: list[int] = []
    for _ in range(data.draw(st.integers(1, 8))):
        word = data.draw(st.sampled_from(words))
        tokens += word * data.draw(st.integers(1, 40))
    assert convicted_at(tokens[:260]) == obviously(tokens[:260])
