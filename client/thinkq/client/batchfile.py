"""Batch files: JSON lines, each a thinkq job or an OpenAI batch line, checked as a whole."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, cast

import msgspec

from thinkq.client import openai_format
from thinkq.client.errors import InvalidBatch, InvalidJob, LineError
from thinkq.client.job import Job, convert_job, nearest

BOM: Final = b"\xef\xbb\xbf"
GZIP_START: Final = b"\x1f\x8b"
UTF16_STARTS: Final = (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"\x00{")
"""With a byte order mark, and JSON without one."""

MESSAGE_CHARACTERS: Final = 1000
"""An error's text is cut here: under 4 KiB in any script."""
NAME_CHARACTERS: Final = 64
SKIP_BYTES: Final = 1 << 20


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not blank: a job or an error, never both."""

    number: int
    """Physical, from 1; blank lines count."""
    custom_id: str | None = None
    job: Job | None = None
    error: LineError | None = None


class BatchFile(msgspec.Struct, kw_only=True):
    """A batch file as it was read."""

    lines: list[Line] = []
    warnings: list[str] = []

    @property
    def jobs(self) -> dict[int, Job]:
        """The good jobs by line number. Each has a custom_id."""
        return {line.number: line.job for line in self.lines if line.job is not None}

    @property
    def errors(self) -> list[LineError]:
        """What is wrong with the bad lines."""
        return [line.error for line in self.lines if line.error is not None]

    def require_good(self) -> None:
        """Raise InvalidBatch if there is a bad line."""
        if self.errors:
            raise InvalidBatch(
                f"{len(self.errors)} of {len(self.lines)} lines cannot run, so nothing was queued; "
                "correct them, or run the others with --skip-invalid",
                self.errors,
            )


def read_batch(
    path: str, *, max_line_bytes: int, defaults: Mapping[str, Any] | None = None
) -> BatchFile:
    """Read a whole file (`-`: standard input; gzip is recognised) and check every line.

    `defaults` fill in what a job does not state itself. Bad lines are part of what is returned.
    Raises InvalidBatch for a file that cannot be read, or holds no jobs.
    """
    try:
        with _opened(path) as file:
            batch = _Reader(defaults or {}).read(file, max_line_bytes)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidBatch(f"cannot read {path}: {reason}", []) from None
    if not batch.lines:
        raise InvalidBatch(f"{path} holds no jobs; write one JSON object per line", [])
    return batch


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    with io.BufferedReader(cast(io.RawIOBase, _raw(path))) as file:
        if file.peek(2)[:2] == GZIP_START:
            with gzip.open(file) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield cast(BinaryIO, file)


def _raw(path: str) -> BinaryIO:
    return sys.stdin.buffer if path == "-" else open(path, "rb", buffering=0)


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

    def read(self, file: BinaryIO, limit: int) -> BatchFile:
        batch = BatchFile()
        for number, raw in physical_lines(file, limit):
            if raw is None:
                error = InvalidJob("line_too_long", f"longer than {limit} bytes (max_line_bytes)")
                batch.lines.append(_bad(number, error))
                continue
            if number == 1:
                raw = raw.removeprefix(BOM)
                if raw.startswith(UTF16_STARTS):
                    error = InvalidJob("bad_encoding", "the file is UTF-16; save it as UTF-8")
                    return BatchFile(lines=[_bad(number, error)])
            if raw.strip():
                batch.lines.append(self._line(number, raw))
        batch.warnings = [
            f"line {number}: unknown field `{name}` is ignored, here and further on"
            f"{nearest(name, tuple(openai_format.BODY_FIELDS))}"
            for name, number in self._unknown.items()
        ]
        return batch

    def _line(self, number: int, raw: bytes) -> Line:
        custom_id = None
        try:
            value = _decoded(raw)
            custom_id = value.get("custom_id")
            job = self._job(number, value)
        except InvalidJob as error:
            return _bad(number, error, custom_id if isinstance(custom_id, str) else None)
        return Line(number=number, custom_id=job.custom_id, job=job)

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
