"""The Python interface: submit jobs, follow them, take their results."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import redis
from msgspec.structs import replace

from thinkq.client import batches, stream
from thinkq.client.batches import BatchStatus
from thinkq.client.cancel import Cancellation, cancel
from thinkq.client.connection import connect, unavailable
from thinkq.client.errors import InvalidBatch, InvalidJob, LineError, ResultTimeout
from thinkq.client.events import Event
from thinkq.client.job import Job, convert_job
from thinkq.client.keys import Priority
from thinkq.client.queue import JobQueue, batch_id
from thinkq.client.removal import remove
from thinkq.client.result import Result
from thinkq.client.settings import Settings, load_settings
from thinkq.client.steps import Idle, Script, nothing

T = TypeVar("T")


class Batch:
    """A batch in the queue, by its id."""

    def __init__(self, client: Client, id: str, job_ids: list[str]) -> None:
        self._client = client
        self.id = id
        self.job_ids = job_ids
        """In input order."""
        self.new_jobs = 0
        """How many of them this submission has queued; the others were there already."""

    def __repr__(self) -> str:
        return f"<Batch {self.id}: {len(self.job_ids)} jobs>"

    def status(self) -> BatchStatus:
        """The counts now."""
        return self._client.status(self.id)

    def results(self) -> Iterator[Result]:
        """The results that are there, in input order."""
        return self._client.read(stream.stored_results(self.job_ids))

    def completed(self, idle: Idle = nothing) -> Iterator[Result]:
        """Every result once, as the jobs end; those that are there come first.

        `idle` is called at each quiet second and ends the waiting by raising.
        """
        return self._client.read(stream.ended_results(self.id, self.job_ids), idle)


class Client:
    """A client of the queue at `url`, else at the Redis of the settings.

    Raises RedisUnavailable, from every method, when the server cannot be reached.
    """

    clock = staticmethod(time.monotonic)
    """What time-outs go by, in seconds."""

    def __init__(self, url: str | None = None, settings: Settings | None = None) -> None:
        settings = settings or load_settings()
        self.settings = settings if url is None else replace(settings, redis_url=url)
        self.connection = connect(self.settings)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def submit(
        self,
        jobs: Iterable[Job | Mapping[str, Any]],
        *,
        name: str = "",
        priority: Priority | None = None,
        again: bool = False,
        durable: bool = True,
    ) -> Batch:
        """Queue jobs as one batch. The same jobs make the same batch, which is not run twice.

        `priority` is that of jobs that state none. `again` makes a new batch of jobs that were
        submitted before. `durable` waits until the server has the jobs on its disk (1 s at most
        where it syncs each second). Raises InvalidBatch, which lists every bad job; then none
        is queued.
        """
        checked = _checked(jobs, priority)
        return self.submit_lines(checked, name=name, again=again, durable=durable)

    def submit_lines(
        self,
        jobs: Mapping[int, Job],
        *,
        name: str = "",
        id: str | None = None,
        again: bool = False,
        durable: bool = True,
    ) -> Batch:
        """As `submit`, for jobs that have the numbers (from 1) of the lines they were read from.

        `id` is the batch's, where it is known already (`queue.batch_id`).
        """
        batch = id or batch_id(jobs, secrets.token_hex(8) if again else "")
        with self.reaching():
            queue = self._queue()
            new_jobs = queue.submit(batch, jobs, name=name)
            if durable:
                queue.wait_durable()
        submitted = self.batch(batch)
        submitted.new_jobs = new_jobs
        return submitted

    def batch(self, id: str) -> Batch:
        """A batch that was submitted. Raises NotFound."""
        with self.reaching():
            return Batch(self, id, batches.job_ids(self.connection, id))

    def status(self, batch_id: str) -> BatchStatus:
        """The counts of a batch now. Raises NotFound."""
        with self.reaching():
            return batches.status(self.connection, batch_id)

    def cancel(self, id: str) -> Cancellation:
        """Cancel a job, or all jobs of a batch; results that are there stay.

        Jobs that wait have ended when this returns; jobs that run end within a second. Raises
        NotFound.
        """
        with self.reaching():
            return cancel(self.connection, self.settings, id)

    def retry(self, batch: str) -> int:
        """Queue those jobs of a batch anew that have no answer; returns how many. Raises NotFound.

        Their old results are gone. Jobs that Redis no longer has are left as they are.
        """
        with self.reaching():
            batches.require(self.connection, batch)
            return self._queue().retry(batch)

    def remove(self, batch: str) -> None:
        """Remove a batch and its results.

        Raises NotFound, and NotFinished while jobs of the batch are queued or run.
        """
        with self.reaching():
            remove(self.connection, batch)

    def follow(
        self, job_id: str, after: str = stream.BEGINNING, idle: Idle = nothing
    ) -> Iterator[Event]:
        """The job's events as they come, from the beginning or after the `id` of one, up to `done`.

        `restart` says: drop what you have. A Redis that is restarted meanwhile is waited for.
        `idle` as in `Batch.completed`. Raises NotFound.
        """
        return self.read(stream.job_events(job_id, after), idle)

    def result(self, job_id: str, timeout: float | None = None) -> Result:
        """The job's result, waiting for its end.

        Raises NotFound, and ResultTimeout after `timeout` seconds (looked at once a second).
        """
        check = deadline(job_id, timeout, self.clock)
        return next(self.read(stream.result_when_ended(job_id, check)))

    def ask(self, text: str, **fields: Any) -> Result:
        """Ask one question, before all batches, and wait for its result.

        `fields` are further fields of the job. Raises InvalidBatch.
        """
        batch = self.submit([question(text, fields)], name="ask", again=True, durable=False)
        return self.result(batch.job_ids[0])

    def read(self, script: Script[T], idle: Idle = nothing) -> Iterator[T]:
        """Carry out one of the scripts of `stream`."""
        with self.reaching():
            yield from stream.read(self.connection, script, idle)

    def _queue(self) -> JobQueue:
        return JobQueue(self.connection, self.settings.retention_s)

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn errors of the server into RedisUnavailable."""
        try:
            yield
        except redis.RedisError as error:
            raise unavailable(self.settings, error) from error


def deadline(job_id: str, timeout: float | None, clock: Callable[[], float]) -> Callable[[], None]:
    """A check that raises ResultTimeout once `timeout` seconds have passed from now."""
    end = None if timeout is None else clock() + timeout

    def check() -> None:
        if end is not None and clock() > end:
            raise ResultTimeout(f"job {job_id} has not ended yet; it goes on, ask again later")

    return check


def question(text: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The job of one question that somebody waits for."""
    return {"messages": [{"role": "user", "content": text}], "priority": "high", **fields}


def _checked(jobs: Iterable[Job | Mapping[str, Any]], priority: Priority | None) -> dict[int, Job]:
    checked: dict[int, Job] = {}
    errors: list[LineError] = []
    for line, given in enumerate(jobs, start=1):
        try:
            job = given if isinstance(given, Job) else convert_job(given)
            # Checked anew: a Job may have been changed since it was made.
            checked[line] = replace(job, priority=job.priority or priority)
        except InvalidJob as error:
            errors.append(LineError(line, error.code, str(error)))
    if errors:
        raise InvalidBatch(f"nothing was queued: {errors[0]}", errors)
    if not checked:
        raise InvalidBatch("nothing was queued: there are no jobs", [])
    return checked
