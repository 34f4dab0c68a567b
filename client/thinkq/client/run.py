"""A whole batch in one go: read, start what is missing, queue, write each result as it comes."""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

import msgspec
import redis

from thinkq.client import batches, keys, launch, live, stream
from thinkq.client.batchfile import BatchFile, read_batch
from thinkq.client.client import Client
from thinkq.client.joblines import JobLines
from thinkq.client.output import Output, StreamOutput
from thinkq.client.progress import Observer, Pace, observing
from thinkq.client.queue import JobQueue
from thinkq.client.render import summary
from thinkq.client.result import Result
from thinkq.client.resultfile import ResultFile
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
    with (
        read_checked(options.source, settings, options.defaults, err, options.skip_invalid) as file,
        _opened(options, file, out) as output,
    ):
        pace = _run(file, output, options, settings, err)
    for text in summary(pace.tally, new_tokens=pace.new_tokens, seconds=pace.seconds):
        print(text, file=err)
    if file.bad:
        print(f"{len(file.bad)} of the failed are lines that could not run", file=err)
    if _unanswered(pace.tally) > len(file.bad):
        print("some jobs have no answer; --retry-failed runs those again", file=err)
    if options.output != "-":
        print(f"results: {options.output}", file=err)
    return exit_code(pace.tally)


def _run(
    file: BatchFile, output: Output, options: RunOptions, settings: Settings, err: TextIO
) -> Pace:
    """Bring the output what it lacks."""
    batch = file.batch_id(secrets.token_hex(8) if options.again else "")
    pace = Pace(len(file) + len(file.bad))
    pace.tally.update(output.tally)
    for bad in file.bad:
        row = error_row(keys.job_id(batch, bad.error.line), bad.custom_id, bad.error)
        output.append(row)
        pace.count(row)
    pace.start()
    todo = file.without(output.present)
    _report_resumption(output, todo, err)
    if todo:
        # A worker that is started here loads the model of the file, if it names just one.
        model = next(iter(file.models)) if len(file.models) == 1 else None
        with launch.running(settings, model) as check, Client(settings=settings) as client:
            work = _Work(client, batch, file, output, pace, err)
            work.queue(todo, retry_failed=options.retry_failed)
            work.take_results(check)
    output.finish()
    return pace


def read_checked(
    source: str,
    settings: Settings,
    defaults: Mapping[str, Any],
    err: TextIO,
    skip_invalid: bool = False,
) -> BatchFile:
    """The batch file, with its warnings told. Raises InvalidBatch for bad lines, unless skipped."""
    file = read_batch(source, max_line_bytes=settings.max_line_bytes, defaults=defaults)
    try:
        for warning in file.warnings:
            print(warning, file=err)
        if not skip_invalid:
            file.require_good()
        for error in file.errors:
            print(f"skipped: {error}", file=err)
        if settings.model == "demo" and None in file.models:
            print("no model is named: using the small demo model that comes with thinkq", file=err)
    except BaseException:
        file.close()
        raise
    return file


def exit_code(tally: Counter[str]) -> int:
    """0 if every job has an answer, else 3."""
    return EXIT_UNANSWERED if _unanswered(tally) else EXIT_ANSWERED


def _unanswered(tally: Counter[str]) -> int:
    return tally["failed"] + tally["cancelled"] + tally["empty"]


class _Work:
    """The part of a run that needs Redis and a worker."""

    def __init__(
        self,
        client: Client,
        batch: str,
        file: BatchFile,
        output: Output,
        pace: Pace,
        err: TextIO,
    ) -> None:
        self._client, self._batch, self._file = client, batch, file
        self._output, self._pace, self._err = output, pace, err
        self._waiting: set[str] = set()

    def queue(self, jobs: JobLines, *, retry_failed: bool) -> None:
        """Queue those jobs that the batch lacks and, if wanted, those that have no answer."""
        self._waiting = {keys.job_id(self._batch, line) for line in jobs}
        if retry_failed:
            self._retry()
        batch = self._client.submit_as(self._batch, jobs, name=self._file.name)
        there = len(jobs) - batch.new_jobs
        also = f", {there} were there already" if there else ""
        print(f"batch {self._batch}: {batch.new_jobs} jobs queued{also}", file=self._err)

    def _retry(self) -> None:
        with self._client.reaching():
            found = batches.results(self._client.connection, self._waiting)
            lines = {batches.line_of(r.job_id) for r in found if batches.unanswered(r)}
            queue = JobQueue(self._client.connection, self._client.settings.retention_s)
            for chunk in batches.chunked(self._file.only(lines).items()):
                queue.retry(self._batch, dict(chunk))

    def take_results(self, check: launch.Check) -> None:
        """Take all results, as they come."""
        connection = self._client.connection
        for result in batches.results(connection, sorted(self._waiting, key=batches.line_of)):
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

    def _take(self, result: Result) -> None:
        self._waiting.discard(result.job_id)
        line = batches.line_of(result.job_id)
        self._output.append(result_row(result, self._file.index.hash_of(line)))
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
        lines = [*file, *(bad.error.line for bad in file.bad)]
        return StreamOutput(out, options.form, lines, unordered=options.unordered)
    return ResultFile(
        Path(options.output),
        options.form,
        file.index,
        again=options.again,
        retry_failed=options.retry_failed,
        unordered=options.unordered,
    )


def _report_resumption(output: Output, todo: Sized, err: TextIO) -> None:
    if output.changed:
        print(
            f"{output.changed} lines have changed since their row was written: run anew", file=err
        )
    if output.retried:
        print(f"{output.retried} jobs without an answer are run again", file=err)
    if output.present:
        print(f"{len(output.present)} rows are there already, {len(todo)} jobs to go", file=err)
