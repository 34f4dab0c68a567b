"""Clocks that jump, and what must not be made of it."""

from __future__ import annotations

import pytest

from thinkq.worker.timing import Every, Naps, Patience

HOURS = 7 * 3600.0


@pytest.mark.parametrize(("mono", "wall"), [(HOURS, 0.0), (0.0, HOURS), (HOURS, HOURS)])
def test_a_nap_is_noticed_by_either_clock_and_once(mono: float, wall: float) -> None:
    """Whether the monotonic clock goes on while a machine sleeps depends on the system."""
    naps = Naps(10)
    assert not naps.over(1.0, 1e9)
    assert not naps.over(2.0, 1e9 + 1)
    assert naps.over(2.1 + mono, 1e9 + 1.1 + wall)
    assert not naps.over(2.2 + mono, 1e9 + 1.2 + wall)


def test_a_clock_that_was_set_back_is_no_nap() -> None:
    """The wall clock may be corrected at any time."""
    naps = Naps(10)
    naps.over(1.0, 1e9)
    assert not naps.over(2.0, 1e9 - HOURS)


def test_patience_counts_what_it_has_watched() -> None:
    """A process that was stopped for hours has not waited for anything meanwhile."""
    patience = Patience()
    assert patience.lasted(100.0, since=100.0) == 0
    assert patience.lasted(100.5, since=100.0) == 0.5
    assert patience.lasted(100.5 + HOURS, since=100.0) == 1.5
    assert patience.lasted(101.0 + HOURS, since=100.0) == 2.0
    assert patience.lasted(101.5 + HOURS, since=101.2 + HOURS) == 0
    assert patience.lasted(102.0 + HOURS, since=None) == 0


def test_what_is_in_a_hurry_is_due_at_once_and_then_in_its_time() -> None:
    """After a nap the heartbeat does not wait for its turn."""
    every = Every(10)
    assert every.due(100.0)
    assert not every.due(101.0)
    every.hurry()
    assert every.due(101.0)
    assert not every.due(110.9)
