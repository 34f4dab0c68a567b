"""Which job starts next: by priority, by the model that is loaded, and alone if it is dangerous."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from rq import Queue
from rq.job import Job as RQJob

from thinkq.client import keys
from thinkq.client.errors import InvalidJob, JobFailed
from thinkq.client.settings import Settings
from thinkq.worker.books import Books
from thinkq.worker.decoder import Decoder
from thinkq.worker.payload import read_job
from thinkq.worker.shelves import Shelves
from thinkq.worker.ticket import Ticket

MAX_ATTEMPTS: Final = 3
"""A job's last attempt; it runs alone, so that what it does to the process hits no other job."""


class Admission:
    """Takes jobs from the queues. Methods raise redis.RedisError when Redis fails.

    Jobs of the loaded model run until there are none of that priority left, or for
    `model_switch_s`; then, when all rows are empty, the next model has its turn.
    """

    def __init__(
        self, books: Books, settings: Settings, decoder: Decoder, tickets: Collection[Ticket]
    ) -> None:
        """`tickets` are the jobs that are here; a view of what changes."""
        self.suspended = False
        """Whether RQ was told that workers take no jobs."""
        self._books = books
        self._settings = settings
        self._decoder = decoder
        self._tickets = tickets
        self._shelves = Shelves(books)
        self._model_since = time.monotonic()
        self._draining = False

    def look(self) -> None:
        """See what has changed in Redis; each second."""
        self.suspended = self._books.suspended
        self._shelves.look()

    def next(self) -> tuple[Queue, RQJob] | None:
        """The next job that may start now, popped from its queue."""
        while popped := self._pop():
            queue, job_id = popped
            job = self._books.popped(queue, job_id)
            if job is None:
                continue
            if self._tickets and self._books.attempts(job_id) == MAX_ATTEMPTS - 1:
                self._books.put_back(queue, job_id)
                self._draining = True
            elif (model := _model_of(job)) in self._served:
                return queue, job
            else:
                self._shelves.put(queue, job_id, model)
        return None

    def change_model(self) -> None:
        """Nothing is here: let those have their turn who wait for another model."""
        if self._decoder.model is None:
            return
        self._decoder.unloadable.clear()
        if self._settings.other_models and (model := self._shelves.next_model(self._served)):
            self._decoder.use(self._settings.model if model == keys.DEFAULT_MODEL else model)
            self._model_since = time.monotonic()

    @property
    def _served(self) -> set[str]:
        """Names of models whose jobs can be started now, or cannot be run at all."""
        decoder = self._decoder
        served = {decoder.wanted, decoder.model or decoder.wanted, *decoder.unloadable}
        if decoder.wanted == self._settings.model:
            served.add(keys.DEFAULT_MODEL)
        return served

    def _pop(self) -> tuple[Queue, str] | None:
        self._draining = self._draining and bool(self._tickets)
        if self.suspended or self._draining or self._last_attempt or self._decoder.room < 1:
            return None
        served = self._served
        for queue in self._queues_to_look_at():
            others_wait = self._settings.other_models and self._shelves.waiting(queue, served)
            if others_wait and self._had_its_turn:
                return None
            if job_id := self._shelves.pop(queue, served) or self._pop_from_queue(queue):
                return queue, job_id
            if others_wait:
                return None
        return None

    def _pop_from_queue(self, queue: Queue) -> str | None:
        # What lies there may be of another model, and would have to be put aside.
        return None if self._shelves.full else self._books.pop(queue)

    def _queues_to_look_at(self) -> list[Queue]:
        """By priority. One of several rows is kept for high."""
        running = [t.lease.queue for t in self._tickets if t.result is None]
        unhurried = sum(queue.name != keys.QUEUES["high"] for queue in running)
        kept = unhurried >= max(1, self._settings.max_batch - 1)
        return self._books.queues[:1] if kept else self._books.queues

    @property
    def _had_its_turn(self) -> bool:
        return time.monotonic() - self._model_since > self._settings.model_switch_s

    @property
    def _last_attempt(self) -> bool:
        """Whether a job is here that must be alone until its books are closed."""
        return any(ticket.lease.attempt >= MAX_ATTEMPTS for ticket in self._tickets)


def _model_of(job: RQJob) -> str:
    """The model that the job names. One that cannot be read fails with any."""
    try:
        model = read_job(job).model
    except (JobFailed, InvalidJob):
        model = None
    return model or keys.DEFAULT_MODEL
