"""The jobs of one worker, from their admission until the books on them are closed.

What the engine finishes goes through four steps. Each may be the last before a crash, and each
may be done again:

    result spooled -> commit -> RQ's books -> spool file removed
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import redis

from thinkq.client import keys
from thinkq.client.commit import Commit, Committer
from thinkq.client.errors import InvalidJob, JobFailed
from thinkq.client.job import Job
from thinkq.client.result import Result, decode_result
from thinkq.client.settings import Settings
from thinkq.worker.admission import MAX_ATTEMPTS, Admission
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
        self._connection = connection
        self._settings = settings
        self._decoder = decoder
        self._wake = wake
        self._spool = Spool(settings.home_path / "spool")
        self._committer = Committer(connection, settings)
        self._tickets: dict[str, Ticket] = {}
        self._admission = Admission(self.books, settings, decoder, self._tickets.values())

    @property
    def rows(self) -> int:
        """How many jobs run, or wait for room in the engine."""
        return sum(ticket.result is None for ticket in self._tickets.values())

    @property
    def paused(self) -> str:
        """Why no jobs are taken, if so."""
        return self._admission.paused

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
            if not (ticket.lost or self._connection.exists(keys.result(ticket.lease.job.id))):
                ticket.deltas.rewind()

    def beat(self) -> None:
        """Renew the leases that are still this worker's."""
        self.check_leases()
        self.books.beat([ticket.lease for ticket in self._tickets.values() if not ticket.lost])

    def maintain(self) -> None:
        """Let RQ sweep what was abandoned, and give every job that it failed a result."""
        self.beat()  # First: a machine that has slept must not sweep its own jobs.
        self.books.clean_registries()
        reconcile(self.books, self._committer)

    # --- in ---

    def admit(self) -> None:
        """Start as many queued jobs as there is room for; change the model if it has no more."""
        while found := self._admission.next():
            if lease := self.books.start(*found):
                self._begin(lease)
        if not self._tickets:
            self._admission.change_model()

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
        if reason := self._decoder.unloadable.get(job.model or ""):
            raise JobFailed("unknown_model", reason)

    # --- while they run ---

    def end_cancelled(self) -> None:
        """Tell the engine which jobs are to end with what they have."""
        running = {t.lease: t for t in self._tickets.values() if t.result is None}
        for lease in self.books.cancelled(list(running)):
            running[lease].cancel()

    def check_leases(self) -> None:
        """Let go of jobs that are no longer this worker's, and see what has changed in Redis."""
        held = {ticket.lease: ticket for ticket in self._tickets.values() if not ticket.lost}
        for lease in self.books.lost(list(held)):
            _log.warning("job %s is no longer this worker's; its result is dropped", lease.job.id)
            held[lease].lost = True
            held[lease].cancel()
        self._admission.look()

    # --- out ---

    def collect(self) -> None:
        """Take what the decode thread has finished. Needs no Redis."""
        ended = {id(task): task.result for task in self._decoder.ended()}
        for ticket in self._tickets.values():
            if result := ended.get(id(ticket.task)):
                if ticket.broken and ticket.lease.attempt < MAX_ATTEMPTS:
                    ticket.again = True
                else:
                    ticket.end(result, self.books.name)

    def store(self) -> None:
        """Bring finished results to the local disk. Needs no Redis."""
        for ticket, result in self._finished():
            self._store(ticket, result)

    def hand_out(self, now: float) -> None:
        """Bring new text and finished results to Redis, and close RQ's books on their jobs."""
        publish(self._connection, [t.deltas for t in self._tickets.values() if not t.lost], now)
        self._give_back([t for t in self._tickets.values() if t.again], refund=False)
        for ticket, result in self._finished():
            self._store(ticket, result)
            self._settle(ticket.lease, result, lost=ticket.lost)
            self._spool.remove(ticket.lease.execution.id)
            del self._tickets[ticket.lease.execution.id]

    def give_back(self) -> None:
        """Put unfinished jobs back at the front of their queues, in their order; uncharged."""
        self._give_back([t for t in self._tickets.values() if t.result is None], refund=True)

    def _give_back(self, tickets: list[Ticket], *, refund: bool) -> None:
        for ticket in reversed(tickets):
            if ticket.lost:
                self.books.abandon(ticket.lease)
            else:
                self.books.give_back(ticket.lease, refund=refund)
            del self._tickets[ticket.lease.execution.id]

    def _finished(self) -> list[tuple[Ticket, Result]]:
        return [(t, t.result) for t in self._tickets.values() if t.result is not None]

    def _store(self, ticket: Ticket, result: Result) -> None:
        if ticket.spooled or ticket.lost:
            return
        known = self._spool.failing
        try:
            self._spool.put(ticket.spooled_as(result))
        except OSError as error:
            # Redis may well take it now; until then the result is only in memory.
            if not known:
                _log.error("the spool takes no result (%s); look after that disk", error.strerror)
            return
        ticket.spooled = True

    def _settle(self, lease: Lease, result: Result, *, lost: bool) -> None:
        if lost or self._committer.commit(lease.queue.name, lease.member, result) is Commit.LOST:
            self.books.abandon(lease)
            return
        self.books.close(lease, result.status)
        _log.info("job %s: %s, %s", lease.job.id, result.status, result.finish_reason)
