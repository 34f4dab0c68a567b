"""Result files: a row is in the file from the moment that its job has ended, whatever happens next.

A file is taken over when it is opened: a torn last row and rows that will be written anew are left
out, by an atomic rename. So resuming needs no state of its own: the rows are the state.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import msgspec

from thinkq.client import files
from thinkq.client.batches import counts, unanswered
from thinkq.client.errors import ThinkqError
from thinkq.client.joblines import JobIndex
from thinkq.client.output import Slot
from thinkq.client.rows import Format, Row, decode_row, encode_row

ROW_STARTS: Final = (b'{"job_id":"', b'{"id":"batch_req_')
OF_ANOTHER_INPUT: Final = 0
"""The line number that sorts kept rows of other inputs to the front."""


class ResultFile:
    """The result file of a batch, an `Output`; one process writes it at a time.

    Raises ThinkqError for a file that is no result file, is in another form, is being written, or
    has no room; what is in it then stays.
    """

    def __init__(
        self,
        path: Path,
        form: Format,
        jobs: JobIndex,
        *,
        again: bool = False,
        retry_failed: bool = False,
        unordered: bool = False,
    ) -> None:
        self._path = Path(os.path.realpath(path))
        self._form: Format = form
        self._again, self._retry_failed, self._unordered = again, retry_failed, unordered
        self._jobs = jobs
        self._slots: list[Slot] = []
        self.present: set[int] = set()
        self.tally: Counter[str] = Counter()
        self.changed = self.retried = 0
        self._file = files.open_locked(self._path)
        try:
            self._take_over()
        except BaseException:
            self._file.close()
            raise

    def append(self, row: Row) -> None:
        """Write the row now, at the end."""
        data = encode_row(row, self._form)
        with self._told("its rows are whole"):
            files.append(self._file, data)
        self._slots.append(Slot(row.line, self._size, len(data)))

    def finish(self) -> None:
        """All rows are there: sort them into input order."""
        if not self._unordered and self._slots != sorted(self._slots):
            with self._told("all rows are there, but not yet in order"):
                self._replace(sorted(self._slots))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def _told(self, state: str) -> Iterator[None]:
        """Say of a failed write what state the file is in, and how to go on."""
        try:
            yield
        except OSError as error:
            raise ThinkqError(
                f"cannot write {self._path}: {error.strerror}; {state}; "
                "make room and run the same command again, it goes on"
            ) from None

    @property
    def _size(self) -> int:
        last = self._slots[-1] if self._slots else Slot(0, 0, 0)
        return last.offset + last.length

    def _take_over(self) -> None:
        """Keep the rows that count, and rewrite the file if there are others."""
        offset, dropped = 0, False
        for data in self._file:
            line = self._line_to_keep(data)
            if line is None:
                dropped = True
            else:
                self._slots.append(Slot(line, offset, len(data)))
            offset += len(data)
        if dropped:
            with self._told("it is as it was"):
                self._replace(self._slots)

    def _line_to_keep(self, data: bytes) -> int | None:
        """The input line of a row that is kept."""
        if not data.endswith(b"\n"):
            if not any(data.startswith(start) or start.startswith(data) for start in ROW_STARTS):
                raise self._foreign()
            return None
        row = self._decoded(data)
        line = self._jobs.line_of(row.custom_id)
        if row.job_hash is None or line in self.present:
            return None
        if line is None:
            return OF_ANOTHER_INPUT
        if row.job_hash != self._jobs.hash_of(line):
            self.changed += 1
            return None
        if self._again:
            return None
        if self._retry_failed and unanswered(row):
            self.retried += 1
            return None
        self.present.add(line)
        self.tally.update(counts(row))
        return line

    def _decoded(self, data: bytes) -> Row:
        try:
            row, form = decode_row(data)
        except msgspec.DecodeError:
            raise self._foreign() from None
        if form != self._form:
            raise ThinkqError(
                f"{self._path} has rows in {form} form; go on with --format {form}, "
                "or choose another file with -o"
            )
        return row

    def _foreign(self) -> ThinkqError:
        return ThinkqError(f"{self._path} is not a result file; choose another with -o")

    def _replace(self, slots: list[Slot]) -> None:
        """Put a file with these rows in place of the present one."""
        moved: list[Slot] = []
        offset = 0
        with files.replacing(self._path) as file:
            for slot in slots:
                self._file.seek(slot.offset)
                files.append(file, self._file.read(slot.length))
                moved.append(slot._replace(offset=offset))
                offset += slot.length
        self._file.close()
        self._file, self._slots = file, moved
