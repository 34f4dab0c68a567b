"""Keeps one child alive: when to start it again, and when to give up."""

from __future__ import annotations

import logging
import math
import time
from typing import Final, Literal

from thinkq.client.errors import ThinkqError
from thinkq.daemon.child import Child
from thinkq.daemon.state import ChildState

FIRST_DELAY_S: Final = 1.0
"""The wait before a new start. It doubles with each death of a short life."""

LONGEST_DELAY_S: Final = 30.0

LONG_LIFE_S: Final = 60.0
"""After a life of this length the delays begin anew."""

CRASH_LOOP: Final = 3
"""Deaths in a row without having been ready once; another start would end the same way."""

_log = logging.getLogger(__name__)


class CrashLoop(ThinkqError):
    """A child that ends again and again and never becomes ready."""


class Keeper:
    """Starts a child and, after its death and a delay, starts it again.

    Delays go by the caller's clock alone; the wall clock is only reported.
    """

    def __init__(self, child: Child) -> None:
        self.child = child
        self.running = False
        """Whether the child was started and its death was not seen yet."""
        self.ready = False
        """Whether the process that runs now has been ready."""
        self._started_at = 0.0
        self._start_at = -math.inf
        self._waiting = False
        self._delay = FIRST_DELAY_S
        self._vain_starts = 0
        self._starts = 0
        self._last_ending: str | None = None
        self._last_ended: float | None = None

    def tick(self, now: float) -> None:
        """Look at the child once. `now` is in seconds and never runs backwards.

        Raises CrashLoop when the child died CRASH_LOOP times without becoming ready.
        """
        if self.running and self.child.alive():
            self._watch()
        elif self.running:
            self._ended(now)
        elif now >= self._start_at:
            self._start(now)

    def stop(self, timeout: float) -> None:
        """Stop the child within `timeout` seconds."""
        self.running = self.ready = False
        self.child.stop(timeout)

    def report(self) -> ChildState:
        """The child as the state file shows it."""
        up: Literal["ready", "starting"] = "ready" if self.ready else "starting"
        return ChildState(
            name=self.child.name,
            state=up if self.running else "waiting",
            pid=self.child.pid if self.running else None,
            restarts=max(0, self._starts - 1),
            last_ending=self._last_ending,
            last_ended=self._last_ended,
        )

    def _start(self, now: float) -> None:
        if not self.child.start():
            if not self._waiting:
                _log.info("a former %s still runs; waiting for its end", self.child.name)
            self._waiting = True
            return
        _log.info("%s started with pid %s", self.child.name, self.child.pid)
        self.running, self._waiting = True, False
        self._started_at = now
        self._starts += 1

    def _watch(self) -> None:
        if not self.ready and self.child.ready():
            _log.info("%s is ready", self.child.name)
            self.ready, self._vain_starts = True, 0

    def _ended(self, now: float) -> None:
        self._vain_starts += not self.ready
        self._last_ending, self._last_ended = self.child.ending(), time.time()
        self.running = self.ready = False
        if self._vain_starts == CRASH_LOOP:
            raise CrashLoop(self._explain())
        if now - self._started_at >= LONG_LIFE_S:
            self._delay = FIRST_DELAY_S
        _log.warning(
            "%s %s; starting it again in %g s", self.child.name, self.child.ending(), self._delay
        )
        self._start_at = now + self._delay
        self._delay = min(2 * self._delay, LONGEST_DELAY_S)

    def _explain(self) -> str:
        return (
            f"{self.child.name} ended {CRASH_LOOP} times before it was ready, "
            f"the last time it {self.child.ending()}; "
            f"its log is {self.child.log} and ends with:\n{self.child.last_words()}"
        )
