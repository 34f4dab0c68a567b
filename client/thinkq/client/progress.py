"""Progress of a batch: a live view on a terminal, plain lines elsewhere. Nothing depends on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from thinkq.client.batches import counts
from thinkq.client.live import Tail, nobody, unknown
from thinkq.client.render import duration
from thinkq.client.result import Result

LINE_S: Final = 2.0
"""Plain lines are at least so far apart."""
QUIET_S: Final = 5.0
"""A plain line comes at least so often while nothing ends."""
SETTLED_S: Final = 3.0
"""Before so much time has passed, no rate says anything."""
WIDE: Final = 110
"""Columns from which on the bar is long."""


class Pace:
    """What has ended, how fast, and how long the rest will take."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self._clock = total, clock
        self.speed: Callable[[], float | None] = unknown
        """Tokens per second of all workers just now, if anybody knows."""
        self.tally: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        """Begin to measure; what is counted already says nothing about the pace."""
        self._began, self._before, self.new_tokens = self._clock(), self.tally.copy(), 0

    @property
    def ended(self) -> int:
        """Jobs with a result."""
        return _ended(self.tally)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._began

    def count(self, result: Result) -> None:
        """A result has come."""
        self.tally.update(counts(result))
        self.new_tokens += result.usage.completion_tokens

    def line(self, room: int | None = None) -> str:
        """All of it in one line; where `room` is short, without what matters least."""
        tally = self.tally
        counts = f"{tally['done']} done, {tally['failed']} failed, {tally['empty']} empty"
        line = f"{self.ended}/{self.total}: {counts}"
        for part in (self._time_left(), self._speed()):
            if part and (room is None or len(line) + len(part) + 2 <= room):
                line += f"; {part}"
        return line

    def _time_left(self) -> str:
        new, left = self.ended - _ended(self._before), self.total - self.ended
        return f"{duration(self.seconds / new * left)} left" if new and left else ""

    def _speed(self) -> str:
        if self.seconds < SETTLED_S or self.ended == self.total:
            return ""  # The workers have told of the time before, or work for others now.
        now = self.speed()
        rate = self.new_tokens / self.seconds if now is None and self.seconds else now
        if not rate:
            return ""
        thinking, answer = (self._new(f"{kind}_tokens") for kind in ("thinking", "answer"))
        if not thinking + answer:
            return f"{rate:,.0f} tokens/s"
        of_answers = rate * answer / (thinking + answer)
        return f"{rate - of_answers:,.0f} thinking and {of_answers:,.0f} answer tokens/s"

    def _new(self, name: str) -> int:
        return self.tally[name] - self._before[name]


def _ended(tally: Counter[str]) -> int:
    return tally["done"] + tally["failed"] + tally["cancelled"]


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


class View:
    """A bar with the counts, and what the running jobs are writing, redrawn in place."""

    def __init__(
        self, pace: Pace, console: Console, tails: Callable[[], Sequence[Tail]] = nobody
    ) -> None:
        self.tails = tails
        self._pace, self._console = pace, console
        self._bar = BarColumn()
        line = TextColumn("{task.fields[line]}", markup=False, table_column=Column(no_wrap=True))
        self._progress = Progress(self._bar, line, console=console)
        self._task = self._progress.add_task("", total=pace.total, line="")

    def __rich__(self) -> RenderableType:
        """What is drawn now; called by the thread that draws."""
        width = self._console.width
        self._bar.bar_width = 20 if width >= WIDE else 8
        line = self._pace.line(width - self._bar.bar_width - 1)
        self._progress.update(self._task, completed=self._pace.ended, line=line)
        return Group(self._progress.get_renderable(), *map(self._drawn, self.tails()))

    def changed(self) -> None:
        """It is drawn again four times a second anyway."""

    def note(self, text: str) -> None:
        """Write the text above the view."""
        self._console.print(text, markup=False, highlight=False)

    def _drawn(self, tail: Tail) -> Text:
        room = max(10, self._console.width - len(tail.name) - 4)
        line = Text(f"  {tail.name}  ", style="bold", no_wrap=True, overflow="crop")
        line.append(tail.text[-room:], style="dim not bold" if tail.is_reasoning else "not bold")
        return line


@contextmanager
def observing(
    pace: Pace, stream: TextIO, tails: Callable[[], Sequence[Tail]] = nobody
) -> Iterator[Observer]:
    """The observer that suits the stream."""
    if not stream.isatty():
        yield Lines(pace, stream)
        return
    console = Console(file=stream)
    view = View(pace, console, tails)
    with Live(view, console=console, refresh_per_second=4):
        try:
            yield view
        finally:
            view.tails = nobody
