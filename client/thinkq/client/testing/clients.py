"""The clients of the pretended queue."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from thinkq.client import batches, keys
from thinkq.client.aio import AsyncClient
from thinkq.client.batches import BatchStatus
from thinkq.client.cancel import Cancellation
from thinkq.client.client import Batch, Client
from thinkq.client.errors import NotFinished, NotFound, ThinkqError
from thinkq.client.job import Job
from thinkq.client.queue import batch_id
from thinkq.client.settings import Settings
from thinkq.client.steps import Ask, Idle, Perform, Script, Step, drive, drive_async, nothing
from thinkq.client.testing.memory import Memory
from thinkq.client.testing.reply import ScriptedAnswers

MAX_QUIET_STEPS: Final = 10_000
"""Whoever waits longer for a job that never ends would wait for ever."""

A = TypeVar("A")
T = TypeVar("T")


class MemoryClient(Client):
    """A `Client` without Redis and without a model. `max_batch` jobs run at once.

    Time-outs count steps: `result(id, timeout=3)` gives up after the fourth.
    """

    def __init__(self, answers: ScriptedAnswers, *, max_batch: int = 4) -> None:
        self.settings = Settings(home=os.devnull)
        self.memory = Memory(answers, max_batch)
        """The pretended server and worker."""

    def close(self) -> None:
        """Nothing: what was submitted stays readable."""

    def clock(self) -> float:
        """Steps taken so far."""
        return self.memory.steps

    def step(self, number: int = 1) -> None:
        """Let so many steps pass."""
        for _ in range(number):
            self.memory.step()

    def submit_lines(
        self,
        jobs: Mapping[int, Job],
        *,
        name: str = "",
        id: str | None = None,
        again: bool = False,
        durable: bool = True,
    ) -> Batch:
        """As `Client.submit_lines`."""
        id = id or batch_id(jobs, secrets.token_hex(8) if again else "")
        new_jobs = self.memory.submit(id, jobs, name)
        batch = self.batch(id)
        batch.new_jobs = new_jobs
        return batch

    def batch(self, id: str) -> Batch:
        """As `Client.batch`."""
        self._require(id)
        return Batch(self, id, list(self.memory.batches[id].job_ids))

    def status(self, batch_id: str) -> BatchStatus:
        """As `Client.status`; then a step passes, so that whoever polls sees the batch end."""
        self._require(batch_id)
        status = self.memory.status(batch_id)
        self.memory.step()
        return status

    def cancel(self, id: str) -> Cancellation:
        """As `Client.cancel`."""
        if id in self.memory.batches:
            return self.memory.cancel(self.memory.batches[id].job_ids)
        if keys.batch_of(id) not in self.memory.batches:
            raise NotFound(f"there is no batch and no job {id[:60]!r}")
        return self.memory.cancel([id])

    def retry(self, batch: str) -> int:
        """As `Client.retry`."""
        self._require(batch)
        return self.memory.retry(batch)

    def remove(self, batch: str) -> None:
        """As `Client.remove`."""
        self._require(batch)
        if not self.memory.status(batch).finished:
            raise NotFinished(f"batch {batch} has jobs that have not ended; cancel them first")
        self.memory.remove(batch)

    def read(self, script: Script[T], idle: Idle = nothing) -> Iterator[T]:
        """As `Client.read`. Raises ThinkqError instead of waiting for ever."""
        return drive(self._patient(), script, idle)

    def _patient(self) -> Perform:
        quiet = 0

        def perform(step: Step) -> Any:
            nonlocal quiet
            reply = self.memory.ask(step)
            if isinstance(step, Ask) and step.waits:
                quiet = 0 if reply else quiet + 1
            if quiet > MAX_QUIET_STEPS:
                raise ThinkqError(
                    f"nothing has happened for {MAX_QUIET_STEPS:,} steps: does a script say that "
                    "the job never ends? wait with a timeout"
                )
            return reply

        return perform

    def _require(self, id: str) -> None:
        if id not in self.memory.batches:
            raise batches.no_batch(id)


class AsyncMemoryClient(AsyncClient):
    """An `AsyncClient` without Redis and without a model; see `MemoryClient`, which it drives."""

    client: MemoryClient

    def __init__(self, answers: ScriptedAnswers, *, max_batch: int = 4) -> None:
        self.client = MemoryClient(answers, max_batch=max_batch)

    async def close(self) -> None:
        """Nothing: what was submitted stays readable."""

    def read(self, script: Script[T]) -> AsyncGenerator[T, None]:
        """As `AsyncClient.read`; other tasks run between two steps."""

        async def perform(step: Step) -> Any:
            await asyncio.sleep(0)
            return self.client.memory.ask(step)

        return drive_async(perform, script)

    async def _call(self, call: Callable[[A], T], argument: A) -> T:
        return call(argument)
