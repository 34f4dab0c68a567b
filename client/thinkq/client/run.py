"""A whole batch in one go: read, start what is missing, queue, write each result as it comes."""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

import msgspec
import redis

from thinkq.client import batches, keys, launch, live, stream
from thinkq.client.batchfile import BatchFile, FileJobs, Line, read_batch
from thinkq.client.client import Client
from thinkq.client.progress import Observer, Pace, observing
from thinkq.client.queue import JobQueue
from thinkq.client.render import summary
from thinkq.client.result import Result
from thinkq.client.resultfile import Output, ResultFile, StreamOutput
from thinkq.client.rows import Format, error_row, result_row
from thinkq.client.settings import Settings
from thinkq.client.workers import note_of_workers

EXIT_ANSWERED: Final = 0
EXIT_UNANSWERED: Final = 3
"""Some jobs failed, were cancelled or came back empty."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `thinkq run` is asked for."""

    source: str
    """A path, or `-` for standard input."""
    output: str = "-"
    """A path, or `-` for standard output."""
    form: Format = "thinkq"
    defaults: dict[str, Any] = {}
    """Fields of jobs that do not state them."""
    skip_invalid: bool = False
    retry_failed: bool = False
    again: bool = False
    unordered: bool = False


def run(options: RunOptions, settings: Settings, out: BinaryIO, err: TextIO) -> int:
    """Run the batch and return the exit code. Raises ThinkqError; rows that came stay written."""
    file = read_checked(options.source, settings, options.defaults, err, options.skip_invalid)
    with _opened(options, file, out) as output:
        batch = file.batch_id(secrets.token_hex(8) if options.again else "")
        pace = Pace(len(file.lines))
        pace.tally.update(output.kept)
        for line in file.lines:
            if line.error:
                row = error_row(keys.job_id(batch, line.number), line.custom_id, line.error)
                output.append(row)
                pace.count(row)
        pace.start()
        todo = [line for line in file.good if line.custom_id not in output.present]
        _report_resumption(output, todo, err)
        if todo:
            model = _model_to_load(todo)
            with launch.running(settings, model) as check, Client(settings=settings) as client:
                _Work(client, batch, FileJobs(file, todo), output, pace, err).run(options, check)
        output.finish()
    for text in summary(pace.tally, new_tokens=pace.new_tokens, seconds=pace.seconds):
        print(text, file=err)
    code = exit_code(pace.tally)
    if code == EXIT_UNANSWERED:
        print("some jobs have no answer; --retry-failed runs those again", file=err)
    if options.output != "-":
        print(f"results: {options.output}", file=err)
    return code


def read_checked(
    source: str,
    settings: Settings,
    defaults: Mapping[str, Any],
    err: TextIO,
    skip_invalid: bool = False,
) -> BatchFile:
    """The batch file, with its warnings told. Raises InvalidBatch for bad lines, unless skipped."""
    file = read_batch(source, max_line_bytes=settings.max_line_bytes, defaults=defaults)
    for warning in file.warnings:
        print(warning, file=err)
    if not skip_invalid:
        file.require_good()
    for error in file.errors:
        print(f"skipped: {error}", file=err)
    if settings.model == "demo" and any(line.model is None for line in file.good):
        print("no model is named: using the small demo model that comes with thinkq", file=err)
    return file


def exit_code(tally: Counter[str]) -> int:
    """0 if every job has an answer, else 3."""
    unanswered = tally["failed"] + tally["cancelled"] + tally["empty"]
    return EXIT_UNANSWERED if unanswered else EXIT_ANSWERED


class _Work:
    """The part of a run that needs Redis and a worker."""

    def __init__(
        self,
        client: Client,
        batch: str,
        jobs: FileJobs,
        output: Output,
        pace: Pace,
        err: TextIO,
    ) -> None:
        self._client, self._batch, self._jobs = client, batch, jobs
        self._output, self._pace, self._err = output, pace, err
        self._waiting = {keys.job_id(batch, line): known for line, known in jobs.hashes.items()}

    def run(self, options: RunOptions, check: launch.Check) -> None:
        """Queue the jobs and take all their results."""
        self._submit(options)
        connection = self._client.connection
        for result in batches.results(connection, list(self._waiting)):
            self._take(result)
        self._pace.start()
        if not self._waiting:
            print(f"batch {self._batch} had finished already", file=self._err)
            return
        self._pace.speed = live.speed(connection)
        with observing(self._pace, self._err) as observer:
            idle = Idle(connection, observer, check)
            for result in stream.completed(connection, self._batch, list(self._waiting), idle):
                self._take(result)
                observer.changed()

    def _submit(self, options: RunOptions) -> None:
        with self._client.reaching():
            queue = JobQueue(self._client.connection, self._client.settings.retention_s)
            if options.retry_failed:
                queue.retry(self._batch, self._jobs)
            new = queue.submit(self._batch, self._jobs, name=Path(options.source).name)
            queue.wait_durable()
        there = f", {len(self._jobs) - new} were there already" if new < len(self._jobs) else ""
        print(f"batch {self._batch}: {new} jobs queued{there}", file=self._err)

    def _take(self, result: Result) -> None:
        self._output.append(result_row(result, self._waiting.pop(result.job_id)))
        self._pace.count(result)


class Idle:
    """What is done at each quiet second: look for the daemon and the worker, and tell."""

    def __init__(
        self,
        connection: redis.Redis,
        observer: Observer,
        check: launch.Check = launch.nothing,
    ) -> None:
        self._connection, self._observer, self._check = connection, observer, check
        self._note = ""

    def __call__(self) -> None:
        self._check()
        # A server that is away is the reader's to wait for.
        with contextlib.suppress(redis.RedisError):
            note = note_of_workers(self._connection)
            if note and note != self._note:
                self._observer.note(note)
            self._note = note
        self._observer.changed()


def _opened(options: RunOptions, file: BatchFile, out: BinaryIO) -> Output:
    if options.output == "-":
        lines = [line.number for line in file.lines]
        return StreamOutput(out, options.form, lines, unordered=options.unordered)
    return ResultFile(
        Path(options.output),
        options.form,
        {line.custom_id or "": (line.number, line.hash) for line in file.good},
        again=options.again,
        retry_failed=options.retry_failed,
        unordered=options.unordered,
    )


def _report_resumption(output: Output, todo: Sequence[Line], err: TextIO) -> None:
    if output.changed:
        print(
            f"{output.changed} lines have changed since their row was written: run anew", file=err
        )
    if output.retried:
        print(f"{output.retried} jobs without an answer are run again", file=err)
    if output.present:
        print(f"{len(output.present)} rows are there already, {len(todo)} jobs to go", file=err)


def _model_to_load(lines: Iterable[Line]) -> str | None:
    """The model that a worker started for these jobs has to load, where they agree on one."""
    named = {line.model for line in lines}
    return named.pop() if len(named) == 1 else None
