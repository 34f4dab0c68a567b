"""The jobs of one worker, from their admission until the books on them are closed.

What the engine finishes goes through four steps. Each may be the last before a crash, and each
may be done again:

    result spooled -> commit -> RQ's books -> spool file removed
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import redis
from rq import Queue

from thinkq.client import keys
from thinkq.client.commit import Commit, Committer
from thinkq.client.errors import InvalidJob, JobFailed
from thinkq.client.job import Job
from thinkq.client.result import Result, decode_result
from thinkq.client.settings import Settings
from thinkq.worker.books import Books
from thinkq.worker.decoder import Decoder
from thinkq.worker.lease import Lease
from thinkq.worker.outcome import failed_result
from thinkq.worker.payload import read_job
from thinkq.worker.publish import Deltas, publish
from thinkq.worker.recovery import reconcile, recover, replay
from thinkq.worker.spool import Spool
from thinkq.worker.ticket import Ticket

_log = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 3
"""A job's last attempt; it runs alone, so that what it does to the process hits no other job."""


class Desk:
    """All jobs in this worker. Methods raise redis.RedisError where they need Redis and it fails.

    They can all be called again after such an error.
    """

    def __init__(
        self,
        connection: redis.Redis,
        settings: Settings,
        host: str,
        decoder: Decoder,
        wake: Callable[[], None],
    ) -> None:
        self.books = Books(connection, settings, host)
        _log.info("worker %s", self.books.name)
        self.suspended = False
        """Whether RQ was told that workers take no jobs."""
        self._connection = connection
        self._settings = settings
        self._decoder = decoder
        self._wake = wake
        self._spool = Spool(settings.home_path / "spool")
        self._committer = Committer(connection, settings)
        self._tickets: dict[str, Ticket] = {}
        self._draining = False

    @property
    def rows(self) -> int:
        """How many jobs run, or wait for room in the engine."""
        return sum(ticket.result is None for ticket in self._tickets.values())

    @property
    def empty(self) -> bool:
        """Whether no job is here at all."""
        return not self._tickets

    def put_in_order(self) -> None:
        """Make good what a crash or an outage of Redis has left: at the start, and after each."""
        self.beat()
        self.books.enter()
        replay(self.books, self._committer, self._spool, self._tickets)
        if given_back := recover(self.books, self._tickets):
            _log.info("gave %d unfinished jobs back to their queues", given_back)
        for ticket in self._tickets.values():
            # A job whose result is there has a whole stream; nothing may follow `done`.
            if not self._connection.exists(keys.result(ticket.lease.job.id)):
                ticket.deltas.rewind()

    def beat(self) -> None:
        """Renew the leases."""
        self.books.beat([ticket.lease for ticket in self._tickets.values() if not ticket.lost])

    def maintain(self) -> None:
        """Let RQ sweep what was abandoned, and give every job that it failed a result."""
        self.beat()  # First: a machine that has slept must not sweep its own jobs.
        self.books.clean_registries()  # type: ignore[no-untyped-call]  # RQ's
        reconcile(self.books, self._committer)

    # --- in ---

    def admit(self) -> None:
        """Start as many queued jobs as there is room for."""
        while popped := self._pop():
            queue, job_id = popped
            if self._tickets and self.books.attempts(job_id) == MAX_ATTEMPTS - 1:
                self.books.put_back(queue, job_id)
                self._draining = True
            elif lease := self.books.start(queue, job_id):
                self._begin(lease)

    def _pop(self) -> tuple[Queue, str] | None:
        """The next job that may start now, by priority. One of several rows is kept for high."""
        self._draining = self._draining and bool(self._tickets)
        if self.suspended or self._draining or self._last_attempt or self._decoder.room < 1:
            return None
        queues = self.books.queues
        running = [t.lease.queue for t in self._tickets.values() if t.result is None]
        unhurried = sum(queue.name != keys.QUEUES["high"] for queue in running)
        if unhurried >= max(1, self._settings.max_batch - 1):
            queues = queues[:1]
        for queue in queues:
            if job_id := self.books.pop(queue):
                return queue, job_id
        return None

    @property
    def _last_attempt(self) -> bool:
        """Whether a job is here that must be alone until its books are closed."""
        return any(ticket.lease.attempt >= MAX_ATTEMPTS for ticket in self._tickets.values())

    def _begin(self, lease: Lease) -> None:
        if lease.answered:
            self._close_answered(lease)
            return
        deltas = Deltas(
            lease.job.id,
            attempt=lease.attempt,
            opening="restart" if lease.streamed else "start",
            coalesce_s=self._settings.coalesce_ms / 1000,
            wake=self._wake,
        )
        ticket = self._tickets[lease.execution.id] = Ticket(lease=lease, deltas=deltas)
        job = None
        try:
            job = read_job(lease.job)
            self._check(lease, job)
        except (JobFailed, InvalidJob) as error:
            failed = failed_result(lease.job.id, error, job=job, attempt=lease.attempt)
            ticket.end(failed, self.books.name)
        else:
            self._decoder.submit(ticket.begin(job))

    def _close_answered(self, lease: Lease) -> None:
        answer = self._connection.get(keys.result(lease.job.id))
        self.books.close_answered(lease, decode_result(answer).status if answer else "failed")

    def _check(self, lease: Lease, job: Job) -> None:
        if lease.attempt > MAX_ATTEMPTS:
            raise JobFailed(
                "worker_crashed", f"the worker died at each of {MAX_ATTEMPTS} attempts; see its log"
            )
        if job.model not in (None, self._decoder.model, self._settings.model):
            raise JobFailed(
                "unknown_model",
                f"the job names the model {str(job.model)[:200]!r}, but this worker runs "
                f"{self._decoder.model!r}; start a worker with that model",
            )

    # --- while they run ---

    def end_cancelled(self) -> None:
        """Tell the engine which jobs are to end with what they have."""
        running = {t.lease: t for t in self._tickets.values() if t.result is None}
        for lease in self.books.cancelled(list(running)):
            running[lease].cancel()

    def check_leases(self) -> None:
        """Let go of jobs that are no longer this worker's, and see whether RQ is suspended."""
        held = {ticket.lease: ticket for ticket in self._tickets.values() if not ticket.lost}
        for lease in self.books.lost(list(held)):
            _log.warning("job %s is no longer this worker's; its result is dropped", lease.job.id)
            held[lease].lost = True
            held[lease].cancel()
        self.suspended = self.books.suspended

    # --- out ---

    def collect(self) -> None:
        """Take what the decode thread has finished. Needs no Redis."""
        ended = {id(task): task.result for task in self._decoder.ended()}
        for ticket in self._tickets.values():
            if result := ended.get(id(ticket.task)):
                ticket.end(result, self.books.name)

    def store(self) -> None:
        """Bring finished results to the local disk. Needs no Redis."""
        for ticket, result in self._finished():
            self._store(ticket, result)

    def hand_out(self, now: float) -> None:
        """Bring new text and finished results to Redis, and close RQ's books on their jobs."""
        publish(self._connection, [t.deltas for t in self._tickets.values() if not t.lost], now)
        for ticket, result in self._finished():
            self._store(ticket, result)
            self._settle(ticket.lease, result, lost=ticket.lost)
            self._spool.remove(ticket.lease.execution.id)
            del self._tickets[ticket.lease.execution.id]

    def give_back(self) -> None:
        """Put unfinished jobs back at the front of their queues, in their order; uncharged."""
        for ticket in reversed(self._tickets.values()):
            if ticket.result is None and not ticket.lost:
                self.books.give_back(ticket.lease, refund=True)

    def _finished(self) -> list[tuple[Ticket, Result]]:
        return [(t, t.result) for t in self._tickets.values() if t.result is not None]

    def _store(self, ticket: Ticket, result: Result) -> None:
        if ticket.spooled or ticket.lost:
            return
        try:
            self._spool.put(ticket.spooled_as(result))
        except OSError as error:
            # Redis may well take it now; until then the result is only in memory.
            _log.error("the spool takes no result (%s); make room on that disk", error.strerror)
            return
        ticket.spooled = True

    def _settle(self, lease: Lease, result: Result, *, lost: bool) -> None:
        if lost or self._committer.commit(lease.queue.name, lease.member, result) is Commit.LOST:
            self.books.abandon(lease)
            return
        self.books.close(lease, result.status)
        _log.info("job %s: %s, %s", lease.job.id, result.status, result.finish_reason)
