"""Batch files: JSON lines, each a thinkq job or an OpenAI batch line, checked as a whole."""

from __future__ import annotations

import sys
import zlib
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final

import msgspec

from thinkq.client import openai_format
from thinkq.client.errors import InvalidBatch, InvalidJob, LineError
from thinkq.client.job import Job, convert_job, job_hash, nearest
from thinkq.client.queue import id_of_hashes
from thinkq.client.source import Source

BOM: Final = b"\xef\xbb\xbf"
UTF16_STARTS: Final = (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"\x00{")
"""With a byte order mark, and JSON without one."""

MESSAGE_CHARACTERS: Final = 1000
"""An error's text is cut here: under 4 KiB in any script."""
NAME_CHARACTERS: Final = 64
SKIP_BYTES: Final = 1 << 20


class Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is kept of a line that is not blank. The job itself stays in the file."""

    number: int
    """Physical, from 1; blank lines count."""
    custom_id: str | None = None
    hash: str = ""
    """Of the job, see `job_hash`; nothing where there is an error."""
    model: str | None = None
    error: LineError | None = None


class BatchFile:
    """A batch file that was read once as a whole. Its jobs are read again when they are used."""

    def __init__(
        self, source: Source, max_line_bytes: int, defaults: Mapping[str, Any] | None
    ) -> None:
        self.lines: list[Line] = []
        self.warnings: list[str] = []
        self._source, self._limit, self._defaults = source, max_line_bytes, defaults or {}

    @property
    def good(self) -> list[Line]:
        """The lines that hold a job. Each has a custom_id."""
        return [line for line in self.lines if line.error is None]

    @property
    def errors(self) -> list[LineError]:
        """What is wrong with the bad lines."""
        return [line.error for line in self.lines if line.error is not None]

    @property
    def jobs(self) -> FileJobs:
        """The good jobs by line number."""
        return FileJobs(self, self.good)

    def batch_id(self, salt: str = "") -> str:
        """The id of the batch that the good jobs make, see `queue.batch_id`."""
        return id_of_hashes(((line.number, line.hash) for line in self.good), salt)

    def require_good(self) -> None:
        """Raise InvalidBatch if there is a bad line."""
        if self.errors:
            raise InvalidBatch(
                f"{len(self.errors)} of {len(self.lines)} lines cannot run, so nothing was queued; "
                "correct them, or run the others with --skip-invalid",
                self.errors,
            )

    def read(self) -> Iterator[Line | tuple[Line, Job]]:
        """Every line that is not blank, with its job if it has one, as the file is now.

        Raises InvalidBatch for a file that cannot be read.
        """
        reader = _Reader(self._defaults)
        try:
            with self._source.opened() as file:
                yield from reader.read(file, self._limit)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidBatch(f"cannot read {self._source.path}: {reason}", []) from None
        self.warnings = reader.warnings


class FileJobs(Mapping[int, Job]):
    """Jobs of a file by their lines. Going through them reads the file, a job at a time.

    Raises InvalidBatch if the file has changed since it was checked.
    """

    def __init__(self, file: BatchFile, lines: Iterable[Line]) -> None:
        self._file = file
        self.hashes = {line.number: line.hash for line in lines}

    def __len__(self) -> int:
        return len(self.hashes)

    def __iter__(self) -> Iterator[int]:
        return iter(self.hashes)

    def __getitem__(self, line: int) -> Job:
        return next(job for number, job in self.read() if number == line)

    def items(self) -> ItemsView[int, Job]:
        """The lines and their jobs."""
        return _Items(self)

    def read(self) -> Iterator[tuple[int, Job]]:
        """The lines and their jobs, one after the other."""
        left = len(self.hashes)
        for read in self._file.read():
            if isinstance(read, tuple) and (known := self.hashes.get(read[0].number)):
                if known != read[0].hash:
                    break
                left -= 1
                yield read[0].number, read[1]
        if left:
            raise InvalidBatch(
                "the file has changed while it was being queued; run the command again "
                "(`thinkq status` shows what was queued of the old one)",
                [],
            )


class _Items(ItemsView[int, Job]):
    def __init__(self, jobs: FileJobs) -> None:
        super().__init__(jobs)
        self._jobs = jobs

    def __iter__(self) -> Iterator[tuple[int, Job]]:
        return self._jobs.read()


def read_batch(
    path: str, *, max_line_bytes: int, defaults: Mapping[str, Any] | None = None
) -> BatchFile:
    """Read a whole file (`-`: standard input; gzip is recognised) and check every line.

    `defaults` fill in what a job does not state itself. Bad lines are part of what is returned.
    Raises InvalidBatch for a file that cannot be read, or holds no jobs.
    """
    try:
        source = Source(path)
    except OSError as error:
        raise InvalidBatch(f"cannot read {path}: {error.strerror or error}", []) from None
    batch = BatchFile(source, max_line_bytes, defaults)
    batch.lines = [read[0] if isinstance(read, tuple) else read for read in batch.read()]
    if not batch.lines:
        raise InvalidBatch(f"{path} holds no jobs; write one JSON object per line", [])
    return batch


def physical_lines(file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Number and bytes of each line without its line end; None in place of more than `limit` bytes.

    A line that is too long is skipped while reading, never held.
    """
    number = 0
    while raw := file.readline(limit + len(b"\r\n")):
        number += 1
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) <= limit:
            yield number, line
            continue
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(SKIP_BYTES)
        yield number, None


class _Reader:
    """What is remembered from line to line."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._defaults = defaults
        self._line_of: dict[str, int] = {}
        self._unknown: dict[str, int] = {}

    @property
    def warnings(self) -> list[str]:
        """What was ignored so far."""
        return [
            f"line {number}: unknown field `{name}` is ignored, here and further on"
            f"{nearest(name, tuple(openai_format.BODY_FIELDS))}"
            for name, number in self._unknown.items()
        ]

    def read(self, file: BinaryIO, limit: int) -> Iterator[Line | tuple[Line, Job]]:
        for number, raw in physical_lines(file, limit):
            if raw is None:
                error = InvalidJob("line_too_long", f"longer than {limit} bytes (max_line_bytes)")
                yield _bad(number, error)
                continue
            if number == 1:
                raw = raw.removeprefix(BOM)
                if raw.startswith(UTF16_STARTS):
                    error = InvalidJob("bad_encoding", "the file is UTF-16; save it as UTF-8")
                    yield _bad(number, error)
                    return
            if raw.strip():
                yield self._line(number, raw)

    def _line(self, number: int, raw: bytes) -> Line | tuple[Line, Job]:
        custom_id = None
        try:
            value = _decoded(raw)
            custom_id = value.get("custom_id")
            job = self._job(number, value)
        except InvalidJob as error:
            return _bad(number, error, custom_id if isinstance(custom_id, str) else None)
        model = None if job.model is None else sys.intern(job.model)
        line = Line(number=number, custom_id=job.custom_id, hash=job_hash(job), model=model)
        return line, job

    def _job(self, number: int, value: dict[str, Any]) -> Job:
        if "body" in value:
            fields, unknown = openai_format.job_fields(value)
            for name in unknown:
                self._unknown.setdefault(name[:NAME_CHARACTERS], number)
        else:
            fields = value
            if fields.get("custom_id") is None:
                fields["custom_id"] = f"line-{number}"
        job = convert_job(fields | self._missing(fields))
        first = self._line_of.setdefault(job.custom_id or "", number)
        if first != number:
            raise InvalidJob("duplicate_custom_id", f"line {first} already has this custom_id")
        return job

    def _missing(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults of what the line does not state."""
        stated = {name for name, value in fields.items() if value is not None}
        if "max_completion_tokens" in stated:
            stated.add("max_tokens")
        return {name: value for name, value in self._defaults.items() if name not in stated}


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        try:
            raw.decode()
        except UnicodeDecodeError as encoding:
            reason = f"not UTF-8 (byte {encoding.start}); save the file as UTF-8"
            raise InvalidJob("bad_encoding", reason) from None
        raise InvalidJob("bad_json", f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidJob("bad_type:line", "a line must be a JSON object")
    return value


def _bad(number: int, error: InvalidJob, custom_id: str | None = None) -> Line:
    code, message = error.code[:NAME_CHARACTERS], str(error)[:MESSAGE_CHARACTERS]
    return Line(number=number, custom_id=custom_id, error=LineError(number, code, message))
