"""Clocks without a clock: the time is an argument."""

from __future__ import annotations

from thinkq.worker.timing import Backoff, Every


def test_a_chore_is_due_at_once_and_then_after_its_interval() -> None:
    """A late one does not make the next one early."""
    chore = Every(10)
    assert [chore.due(now) for now in (3, 4, 12.9, 13, 30, 39, 40)] == [
        True,
        False,
        False,
        True,
        True,
        False,
        True,
    ]


def test_failures_are_retried_later_and_later_and_a_success_forgets_them() -> None:
    """So a server that comes back is found within seconds, and one that is away is left alone."""
    backoff = Backoff()
    assert backoff.due(0)
    for step, delay in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5), start=1):
        now = 100.0 * step
        backoff.failed(now)
        assert backoff.failing
        assert not backoff.due(now + delay - 0.01)
        assert backoff.due(now + delay + 0.01)
    backoff.succeeded()
    assert backoff.due(0)
    assert not backoff.failing
