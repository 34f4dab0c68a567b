"""Result files: a row is in the file from the moment that its job has ended, whatever happens next.

A file is taken over when it is opened: a torn last row and rows that will be written anew are left
out, by an atomic rename. So resuming needs no state of its own: the rows are the state.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, Self

import msgspec

from thinkq.client.batches import counts, unanswered
from thinkq.client.errors import ThinkqError
from thinkq.client.rows import Format, Row, decode_row, encode_row

ROW_STARTS = (b'{"job_id":"', b'{"id":"batch_req_')
OF_ANOTHER_INPUT = 0
"""The line number that sorts kept rows of other inputs to the front."""


class Output(Protocol):
    """Where rows go. Used as a context, it is closed at the end, finished or not."""

    present: dict[str, int]
    """The lines of jobs that need not run again, because their row is there, by custom_id."""
    kept: Counter[str]
    """The counts of those rows, see `batches.counts`."""
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


class StreamOutput:
    """Rows for a pipe or terminal: in input order, each as soon as all before it are there."""

    def __init__(
        self, stream: BinaryIO, form: Format, lines: Iterable[int], *, unordered: bool = False
    ) -> None:
        self._stream, self._unordered = stream, unordered
        self._form: Format = form
        self._pending: dict[int, _Slot] = {}
        self._aside = tempfile.TemporaryFile()  # noqa: SIM115  # it closes in __exit__
        self._order = iter(sorted(lines))
        self._next = next(self._order, None)
        self.present: dict[str, int] = {}
        self.kept: Counter[str] = Counter()
        self.changed = self.retried = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The stream is not ours to close."""
        self._aside.close()

    def append(self, row: Row) -> None:
        """Take a row; write what is next in order. Rows that must wait do so on disk."""
        data = encode_row(row, self._form)
        if not self._unordered and row.line != self._next:
            self._pending[row.line] = _Slot(row.line, self._aside.seek(0, os.SEEK_END), len(data))
            self._aside.write(data)
            return
        self._write(data)
        if not self._unordered:
            self._next = next(self._order, None)
            while self._next in self._pending:
                self._write_pending(self._next)
                self._next = next(self._order, None)

    def finish(self) -> None:
        """Write what still waits for a row that never came."""
        for line in sorted(self._pending):
            self._write_pending(line)

    def _write_pending(self, line: int) -> None:
        slot = self._pending.pop(line)
        self._aside.seek(slot.offset)
        self._write(self._aside.read(slot.length))

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush()


class _Slot(NamedTuple):
    """Where in the file the row of an input line is."""

    line: int
    offset: int
    length: int


class ResultFile:
    """The result file of a batch; one process writes it at a time.

    `wanted` has the line and the hash of each job of the input, by custom_id. Raises ThinkqError
    for a file that is no result file, is in another form, or is being written.
    """

    def __init__(
        self,
        path: Path,
        form: Format,
        wanted: Mapping[str, tuple[int, str]],
        *,
        again: bool = False,
        retry_failed: bool = False,
        unordered: bool = False,
    ) -> None:
        self._path = Path(os.path.realpath(path))
        self._form: Format = form
        self._again, self._retry_failed, self._unordered = again, retry_failed, unordered
        self._wanted = wanted
        self._slots: list[_Slot] = []
        self.present: dict[str, int] = {}
        self.kept: Counter[str] = Counter()
        self.changed = self.retried = 0
        self._file = _open_locked(self._path)
        try:
            self._take_over()
        except BaseException:
            self._file.close()
            raise

    def append(self, row: Row) -> None:
        """Write the row now, at the end; the whole row or nothing of it."""
        data = encode_row(row, self._form)
        slot = _Slot(row.line, self._size, len(data))
        try:
            _write_at(self._file.fileno(), data, slot.offset)
        except OSError as error:
            os.ftruncate(self._file.fileno(), slot.offset)
            raise self._full(error) from None
        self._slots.append(slot)

    def finish(self) -> None:
        """All rows are there: sort them into input order."""
        if not self._unordered and self._slots != sorted(self._slots):
            self._replace(sorted(self._slots))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def _size(self) -> int:
        last = self._slots[-1] if self._slots else _Slot(0, 0, 0)
        return last.offset + last.length

    def _take_over(self) -> None:
        """Keep the rows that count, and rewrite the file if there are others."""
        offset, dropped = 0, False
        for data in self._file:
            line = self._line_to_keep(data)
            if line is None:
                dropped = True
            else:
                self._slots.append(_Slot(line, offset, len(data)))
            offset += len(data)
        if dropped:
            self._replace(self._slots)

    def _line_to_keep(self, data: bytes) -> int | None:
        """The input line of a row that is kept."""
        if not data.endswith(b"\n"):
            if not any(data.startswith(start) or start.startswith(data) for start in ROW_STARTS):
                raise self._foreign()
            return None
        row = self._decoded(data)
        custom_id = row.custom_id or ""
        line, hash_now = self._wanted.get(custom_id, (OF_ANOTHER_INPUT, row.job_hash))
        if row.job_hash is None or custom_id in self.present:
            return None
        if line == OF_ANOTHER_INPUT:
            return line
        if row.job_hash != hash_now:
            self.changed += 1
            return None
        if self._again:
            return None
        if self._retry_failed and unanswered(row):
            self.retried += 1
            return None
        self.present[custom_id] = line
        self.kept.update(counts(row))
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

    def _replace(self, slots: list[_Slot]) -> None:
        """Put a file with these rows in place of the present one."""
        temporary = self._path.with_name(f"{self._path.name}.tmp")
        try:
            moved = self._copy(slots, temporary)
            os.replace(temporary, self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise self._full(error) from None
        self._file.close()
        self._file, self._slots = _open_locked(self._path), moved

    def _copy(self, slots: Iterable[_Slot], path: Path) -> list[_Slot]:
        """Write these rows to a new file of the same mode; where they are there."""
        moved: list[_Slot] = []
        offset = 0
        with open(path, "wb", opener=_private) as file:
            for slot in slots:
                self._file.seek(slot.offset)
                file.write(self._file.read(slot.length))
                moved.append(slot._replace(offset=offset))
                offset += slot.length
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(self._file.fileno()).st_mode))
        return moved

    def _full(self, error: OSError) -> ThinkqError:
        return ThinkqError(
            f"{self._path} cannot be written ({error.strerror}); make room and run the same "
            "command again, the rows that are there are kept"
        )


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _open_locked(path: Path) -> BinaryIO:
    """The file, made if need be, and locked against a second writer."""
    if path.exists() and not path.is_file():
        raise ThinkqError(f"{path} is not a plain file; use `-o -` and redirect the output")
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ThinkqError(
            f"{path} is being written by another thinkq; wait, or choose -o"
        ) from None
    return file
