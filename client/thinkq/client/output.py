"""Where rows go: what a run needs of it, and the kind for pipes and terminals."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, NamedTuple, Protocol, Self

from thinkq.client.errors import ThinkqError
from thinkq.client.rows import Format, Row, encode_row

HELD_BYTES: Final = 8_000_000
"""Rows that wait for an earlier one stay in memory up to this size."""


class Output(Protocol):
    """Where rows go. Used as a context, it is closed at the end, finished or not."""

    present: set[int]
    """The input lines of jobs that have a row and need not run again."""
    tally: Counter[str]
    """What these rows add to the counts of a batch."""
    changed: int
    """Rows left out because their line is another job now."""
    retried: int
    """Rows left out because their job is to be retried."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def append(self, row: Row) -> None:
        """Take a row, in any order."""

    def finish(self) -> None:
        """All rows were appended: put them into input order, unless that is not wanted."""


class Slot(NamedTuple):
    """Where in a file the row of an input line is."""

    line: int
    offset: int
    length: int


class StreamOutput:
    """Rows for a pipe or terminal: in input order, each as soon as all before it are there.

    Rows that have to wait do so in a temporary file without a name, however many they are.
    """

    def __init__(
        self, stream: BinaryIO, form: Format, lines: Iterable[int], *, unordered: bool = False
    ) -> None:
        self._stream, self._unordered = stream, unordered
        self._form: Format = form
        self._order = iter(sorted(lines))
        self._next = next(self._order, None)
        # Closed with this object.
        self._held = tempfile.SpooledTemporaryFile(HELD_BYTES, prefix="thinkq-")  # noqa: SIM115
        self._slots: dict[int, Slot] = {}
        self.present: set[int] = set()
        self.tally: Counter[str] = Counter()
        self.changed = self.retried = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The stream is not ours to close."""
        self._held.close()

    def append(self, row: Row) -> None:
        """Take a row; write what is next in order."""
        data = encode_row(row, self._form)
        if not self._unordered and row.line != self._next:
            self._hold(row.line, data)
            return
        self._write(data)
        self._next = next(self._order, None)
        while slot := self._slots.pop(self._next or 0, None):
            self._write(self._read(slot))
            self._next = next(self._order, None)

    def finish(self) -> None:
        """Write what still waits for a row that never came."""
        for slot in sorted(self._slots.values()):
            self._write(self._read(slot))
        self._slots.clear()

    def _hold(self, line: int, data: bytes) -> None:
        self._held.seek(0, os.SEEK_END)
        self._slots[line] = Slot(line, self._held.tell(), len(data))
        self._held.write(data)

    def _read(self, slot: Slot) -> bytes:
        self._held.seek(slot.offset)
        return self._held.read(slot.length)

    def _write(self, data: bytes) -> None:
        with telling_of_stdout():
            self._stream.write(data)
            self._stream.flush()


@contextmanager
def telling_of_stdout() -> Iterator[None]:
    """Say what a failed write to stdout means for the results; a reader that has gone is none."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ThinkqError(
            f"cannot write to stdout: {error.strerror}; "
            "results are kept in Redis, run the same command again"
        ) from None
