"""When to do something again."""

from __future__ import annotations

from typing import Final

FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 5.0

LOOK_S: Final = 1.0
"""A longer gap between two looks was a nap."""


class Every:
    """Is due at once, and then again each time so many seconds have passed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Whether it is time; if so, the next time is counted from now."""
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True

    def hurry(self) -> None:
        """Be due at once."""
        self._next = 0.0


class Naps:
    """Notices that the machine has slept, or that this process was stopped.

    Which clocks go on meanwhile depends on the system, so both are looked at.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._looked: tuple[float, float] | None = None

    def over(self, now: float, wall: float) -> bool:
        """Whether more than `longest_s` have passed since the last look, by either clock."""
        before, self._looked = self._looked or (now, wall), (now, wall)
        return max(now - before[0], wall - before[1]) > self._longest_s


class Patience:
    """How long something has lasted before our eyes; a nap of this process is no time at all."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._looked = 0.0
        self._seen_s = 0.0

    def lasted(self, now: float, since: float | None) -> float:
        """Seconds since `since`, as far as they were watched by calling this again and again."""
        if since is None or since != self._since:
            self._since, self._looked, self._seen_s = since, now, 0.0
        self._seen_s += min(now - self._looked, LOOK_S)
        self._looked = now
        return self._seen_s


class Backoff:
    """Is due less and less often while attempts fail."""

    def __init__(self) -> None:
        self._delay = 0.0
        self._next = 0.0

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._delay > 0

    def due(self, now: float) -> bool:
        """Whether to try now."""
        return now >= self._next

    def failed(self, now: float) -> None:
        """Wait for twice as long as the last time, 5 s at most."""
        self._delay = min(LONGEST_DELAY_S, 2 * self._delay or FIRST_DELAY_S)
        self._next = now + self._delay

    def succeeded(self) -> None:
        """Try at once the next time."""
        self._delay = self._next = 0.0
