"""Batch files: JSON lines, each a thinkq job or an OpenAI batch line, checked as a whole.

A file is read twice and may be larger than memory: once to check every line, then again to queue
the jobs. In between only an index of it is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping, Set
from typing import Any, Final, Self

import msgspec

from thinkq.client.errors import FileChanged, InvalidBatch, InvalidJob, LineError
from thinkq.client.job import Job, job_hash
from thinkq.client.joblines import JobIndex, JobLines, id_of_hashes
from thinkq.client.lineparser import NAME_CHARACTERS, LineParser, decode_line
from thinkq.client.source import Source, physical_lines

UTF16_STARTS: Final = (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"\x00{")
"""With a byte order mark, and JSON without one."""

MESSAGE_CHARACTERS: Final = 1000
"""An error's text is cut here: under 4 KiB in any script."""


class BadLine(msgspec.Struct, frozen=True, gc=False):
    """A line that cannot run, and its `custom_id` where it has one."""

    error: LineError
    custom_id: str | None = None


class BatchFile:
    """A batch file that has been checked. Its jobs, as `JobLines`, are read anew each time."""

    def __init__(self, source: Source, max_line_bytes: int, defaults: Mapping[str, Any]) -> None:
        self._source, self._limit, self._defaults = source, max_line_bytes, defaults
        self.index = JobIndex()
        """The good lines."""
        self.bad: list[BadLine] = []
        self.warnings: list[str] = []
        self.models: set[str | None] = set()
        """All models that jobs name; None: that of the settings."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget what was copied of a file that can be read only once."""
        self._source.close()

    @property
    def name(self) -> str:
        """What the file is called in lists."""
        return self._source.name

    @property
    def errors(self) -> list[LineError]:
        """What is wrong with the bad lines."""
        return [line.error for line in self.bad]

    def require_good(self) -> None:
        """Raise InvalidBatch if there is a bad line."""
        if self.bad:
            raise InvalidBatch(
                f"{len(self.bad)} of {len(self.bad) + len(self)} lines cannot run, "
                "so nothing was queued; correct them, or run the others with --skip-invalid",
                self.errors,
            )

    def batch_id(self, salt: str = "") -> str:
        """The id that these jobs have as a batch; see `queue.batch_id`."""
        return id_of_hashes(self.index.hashes(), salt)

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[int]:
        """The lines of the good jobs."""
        return iter(self.index)

    def items(self) -> Iterator[tuple[int, Job]]:
        """The good jobs with their lines, read from the file.

        Raises FileChanged where it is another file than the one that was checked.
        """
        return self.read_again(self.index, len(self.index))

    def only(self, lines: Set[int]) -> Selection:
        """Those of the good jobs that are on these lines."""
        return Selection(self, lines)

    def without(self, lines: Set[int]) -> JobLines:
        """The good jobs that are not on these lines."""
        return self.only({line for line in self if line not in lines}) if lines else self

    def read_again(self, lines: Container[int], count: int) -> Iterator[tuple[int, Job]]:
        """The `count` good jobs on these lines, as `items`."""
        if not count:
            return
        parser = LineParser(self._defaults)
        with self._source.opened() as file:
            for number, raw in physical_lines(file, self._limit):
                if number in lines:
                    yield number, self._same_job(parser, number, raw)
                    count -= 1
                if not count:
                    return
        raise FileChanged(f"{self.name} was changed after it had been checked: it is shorter")

    def _same_job(self, parser: LineParser, number: int, raw: bytes | None) -> Job:
        with contextlib.suppress(InvalidJob):
            job = parser.job(number, decode_line(raw or b""))
            if job_hash(job) == self.index.hash_of(number):
                return job
        raise FileChanged(f"{self.name} was changed after it had been checked (line {number})")

    def check(self) -> None:
        """Read and check every line. Raises InvalidBatch for a file that cannot be read."""
        parser = LineParser(self._defaults)
        with self._source.opened() as file:
            for number, raw in physical_lines(file, self._limit):
                if number == 1 and (fault := _fault_of_the_whole(raw or b"")):
                    self._refuse(number, fault)
                    break
                if raw is None:
                    self._refuse(number, _too_long(self._limit))
                elif raw.strip():
                    self._check_line(parser, number, raw)
        self.warnings = parser.warnings

    def _check_line(self, parser: LineParser, number: int, raw: bytes) -> None:
        custom_id = None
        try:
            fields = decode_line(raw)
            custom_id = fields.get("custom_id")
            job = parser.job(number, fields)
            self._remember(number, job)
        except InvalidJob as error:
            self._refuse(number, error, custom_id if isinstance(custom_id, str) else None)

    def _remember(self, number: int, job: Job) -> None:
        custom_id, hash_of_job = job.custom_id or "", job_hash(job)
        if (first := self.index.line_of(custom_id)) is not None:
            raise InvalidJob("duplicate_custom_id", f"line {first} already has this custom_id")
        self.index.add(number, custom_id, hash_of_job)
        self.models.add(job.model)

    def _refuse(self, number: int, error: InvalidJob, custom_id: str | None = None) -> None:
        code, message = error.code[:NAME_CHARACTERS], str(error)[:MESSAGE_CHARACTERS]
        self.bad.append(BadLine(LineError(number, code, message), custom_id))


class Selection:
    """Some of the jobs of a batch file, as `JobLines`."""

    def __init__(self, file: BatchFile, lines: Set[int]) -> None:
        self._file, self._lines = file, lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[int]:
        return (line for line in self._file if line in self._lines)

    def items(self) -> Iterator[tuple[int, Job]]:
        """As `BatchFile.items`."""
        return self._file.read_again(self._lines, len(self._lines))


def read_batch(
    path: str, *, max_line_bytes: int, defaults: Mapping[str, Any] | None = None
) -> BatchFile:
    """Read a whole file (`-`: standard input; gzip is recognised) and check every line.

    `defaults` are those of `LineParser`. Bad lines are part of what is returned, which is to be
    closed. Raises InvalidBatch for a file that cannot be read, or holds no jobs.
    """
    file = BatchFile(Source(path), max_line_bytes, defaults or {})
    try:
        file.check()
        if not file.bad and not len(file):
            raise InvalidBatch(f"{file.name} holds no jobs; write one JSON object per line", [])
    except BaseException:
        file.close()
        raise
    return file


def _fault_of_the_whole(first_line: bytes) -> InvalidJob | None:
    """What makes every line of a file a bad one."""
    if first_line.startswith(UTF16_STARTS):
        return InvalidJob("bad_encoding", "the file is UTF-16; save it as UTF-8")
    if first_line.strip() == b"[":
        reason = "the file is one JSON array; write one object per line, as `jq -c '.[]'` does"
        return InvalidJob("bad_json", reason)
    return None


def _too_long(limit: int) -> InvalidJob:
    return InvalidJob("line_too_long", f"longer than {limit} bytes (max_line_bytes)")
