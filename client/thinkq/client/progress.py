"""Progress of a batch: a bar on a terminal, plain lines elsewhere. Nothing depends on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from thinkq.client.batches import counts
from thinkq.client.render import duration
from thinkq.client.result import Result

LINE_S: Final = 2.0
"""Plain lines are at least so far apart."""
QUIET_S: Final = 5.0
"""A plain line comes at least so often while nothing ends."""


class Pace:
    """What has ended, how fast, and how long the rest will take."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self._clock = total, clock
        self.tally: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        """Begin to measure; what is counted already says nothing about the pace."""
        self._began, self._ended_before, self.new_tokens = self._clock(), self.ended, 0

    @property
    def ended(self) -> int:
        """Jobs with a result."""
        return self.tally["done"] + self.tally["failed"] + self.tally["cancelled"]

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._began

    def count(self, result: Result) -> None:
        """A result has come."""
        self.tally.update(counts(result))
        self.new_tokens += result.usage.completion_tokens

    def line(self) -> str:
        """All of it in one line."""
        tally, ended = self.tally, self.ended - self._ended_before
        rate = self.new_tokens / self.seconds if self.seconds else 0.0
        left = duration(self.seconds / ended * (self.total - self.ended)) if ended else "unknown"
        return (
            f"{self.ended}/{self.total}: {tally['done']} done, {tally['failed']} failed, "
            f"{tally['empty']} empty; {rate:,.1f} tokens/s; time left {left}"
        )


class Observer(Protocol):
    """Whoever is told how a batch goes."""

    def changed(self) -> None:
        """A result has come, or a second has passed."""

    def note(self, text: str) -> None:
        """Something that people should know once."""


class Lines:
    """Plain lines, for logs."""

    def __init__(
        self, pace: Pace, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pace, self._stream, self._clock = pace, stream, clock
        self._written, self._ended = clock(), pace.ended

    def changed(self) -> None:
        """Write a line if it is time for one."""
        wait = QUIET_S if self._pace.ended == self._ended else LINE_S
        if self._clock() - self._written >= wait:
            self._written, self._ended = self._clock(), self._pace.ended
            self.note(self._pace.line())

    def note(self, text: str) -> None:
        """Write the text."""
        print(text, file=self._stream, flush=True)


class Bar:
    """A bar that is redrawn in place."""

    def __init__(self, pace: Pace, progress: Progress) -> None:
        self._pace, self._progress = pace, progress
        self._task = progress.add_task("", total=pace.total, completed=pace.ended, line=pace.line())

    def changed(self) -> None:
        """Redraw."""
        self._progress.update(self._task, completed=self._pace.ended, line=self._pace.line())

    def note(self, text: str) -> None:
        """Write the text above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)


@contextmanager
def observing(pace: Pace, stream: TextIO) -> Iterator[Observer]:
    """The observer that suits the stream."""
    if not stream.isatty():
        yield Lines(pace, stream)
        return
    columns = (BarColumn(bar_width=24), TextColumn("{task.fields[line]}", markup=False))
    with Progress(*columns, console=Console(file=stream)) as progress:
        yield Bar(pace, progress)
