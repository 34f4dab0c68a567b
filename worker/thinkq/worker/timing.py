"""When to do something again."""

from __future__ import annotations

from typing import Final

FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 5.0


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
