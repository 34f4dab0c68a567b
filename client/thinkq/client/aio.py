"""The Python interface for asyncio: the names of `Client`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from thinkq.client import stream
from thinkq.client.batches import BatchStatus
from thinkq.client.cancel import Cancellation
from thinkq.client.client import Batch, Client, deadline, question
from thinkq.client.connection import connect_async
from thinkq.client.events import Event
from thinkq.client.job import Job
from thinkq.client.joblines import JobLines
from thinkq.client.keys import Priority
from thinkq.client.result import Result
from thinkq.client.settings import Settings
from thinkq.client.steps import Script, Step, drive_async, patient_async

A = TypeVar("A")
T = TypeVar("T")


class AsyncBatch:
    """A batch in the queue, by its id."""

    def __init__(self, client: AsyncClient, batch: Batch) -> None:
        self._client = client
        self.id = batch.id
        self.job_ids = batch.job_ids
        """In input order."""
        self.new_jobs = batch.new_jobs
        """How many of them this submission has queued; the others were there already."""

    def __repr__(self) -> str:
        return f"<AsyncBatch {self.id}: {len(self.job_ids)} jobs>"

    async def status(self) -> BatchStatus:
        """The counts now."""
        return await self._client.status(self.id)

    def results(self) -> AsyncGenerator[Result, None]:
        """The results that are there, in input order."""
        return self._client.read(stream.stored_results(self.job_ids))

    def completed(self) -> AsyncGenerator[Result, None]:
        """Every result once, as the jobs end; those that are there come first."""
        return self._client.read(stream.ended_results(self.id, self.job_ids))


class AsyncClient:
    """A client of the queue at `url`, else at the Redis of the settings; for one event loop.

    Whatever waits, waits on the event loop. Short calls, which write with RQ, are those of `Client`
    in a thread: RQ knows no asyncio. A submission whose task is cancelled still goes through; the
    same submission made again finds it. Raises what `Client` raises.
    """

    def __init__(self, url: str | None = None, settings: Settings | None = None) -> None:
        self.client = Client(url, settings)
        """The client that the threads use."""
        self.connection = connect_async(self.client.settings)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.connection.aclose()
        self.client.close()

    async def submit(
        self,
        jobs: Iterable[Job | Mapping[str, Any]],
        *,
        name: str = "",
        priority: Priority | None = None,
        again: bool = False,
        durable: bool = True,
    ) -> AsyncBatch:
        """Queue jobs as one batch, as `Client.submit`."""
        submit = partial(
            self.client.submit, name=name, priority=priority, again=again, durable=durable
        )
        return AsyncBatch(self, await self._call(submit, jobs))

    async def submit_lines(
        self, jobs: JobLines, *, name: str = "", again: bool = False, durable: bool = True
    ) -> AsyncBatch:
        """As `submit`, for jobs that have the numbers (from 1) of the lines they were read from."""
        submit = partial(self.client.submit_lines, name=name, again=again, durable=durable)
        return AsyncBatch(self, await self._call(submit, jobs))

    async def batch(self, id: str) -> AsyncBatch:
        """A batch that was submitted. Raises NotFound."""
        return AsyncBatch(self, await self._call(self.client.batch, id))

    async def status(self, batch_id: str) -> BatchStatus:
        """The counts of a batch now. Raises NotFound."""
        return await self._call(self.client.status, batch_id)

    async def cancel(self, id: str) -> Cancellation:
        """Cancel a job, or all jobs of a batch, as `Client.cancel`."""
        return await self._call(self.client.cancel, id)

    async def retry(self, batch: str) -> int:
        """Queue those jobs of a batch anew that have no answer, as `Client.retry`."""
        return await self._call(self.client.retry, batch)

    async def remove(self, batch: str) -> None:
        """Remove a batch and its results, as `Client.remove`."""
        await self._call(self.client.remove, batch)

    def follow(self, job_id: str, after: str = stream.BEGINNING) -> AsyncGenerator[Event, None]:
        """The job's events as they come, as `Client.follow`."""
        return self.read(stream.job_events(job_id, after))

    async def result(self, job_id: str, timeout: float | None = None) -> Result:
        """The job's result, waiting for its end, as `Client.result`."""
        check = deadline(job_id, timeout, self.client.clock)
        async with aclosing(self.read(stream.result_when_ended(job_id, check))) as results:
            return await anext(results)

    async def ask(self, text: str, **fields: Any) -> Result:
        """Ask one question, before all batches, and wait for its result, as `Client.ask`."""
        batch = await self.submit([question(text, fields)], name="ask", again=True, durable=False)
        return await self.result(batch.job_ids[0])

    def read(self, script: Script[T]) -> AsyncGenerator[T, None]:
        """Carry out one of the scripts of `stream`."""
        patiently = patient_async(self.connection, self.client.connection)

        async def perform(step: Step) -> Any:
            with self.client.reaching():
                return await patiently(step)

        return drive_async(perform, script)

    async def _call(self, call: Callable[[A], T], argument: A) -> T:
        return await asyncio.to_thread(call, argument)
