"""What a worker finds when it starts, or when Redis is back, and makes good.

The caller holds the host lock, so no other worker of this installation lives: whatever is open
under this host's name and is not the caller's own belongs to the dead.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator
from uuid import uuid4

from rq import Queue
from rq.registry import BaseRegistry
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from thinkq.client import keys
from thinkq.client.commit import NO_LEASE, Commit, Committer
from thinkq.client.errors import InvalidJob, JobFailed
from thinkq.client.job import Job
from thinkq.client.losses import without_result
from thinkq.client.result import Result, cancelled_result, decode_result
from thinkq.client.settings import Settings
from thinkq.client.stream import retold
from thinkq.worker.books import NAME_PREFIX, Books
from thinkq.worker.lease import Lease
from thinkq.worker.outcome import failed_result
from thinkq.worker.payload import read_job
from thinkq.worker.publish import add_entries
from thinkq.worker.spool import Spool

_log = logging.getLogger(__name__)


def host_id(settings: Settings) -> str:
    """The id of this installation, made at its first start; a host name could change."""
    path = settings.home_path / "host"
    if path.exists() and (text := path.read_text().strip()):
        return text
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(uuid4().hex[:12])
    return path.read_text()


def recover(books: Books, own: Container[str]) -> int:
    """Give this host's orphans back to their queues, in their old order; returns how many.

    `own` are the ids of the executions that the caller still works on.
    """
    _bury(books)
    given = sum(_recover_started(books, queue, own) for queue in books.queues)
    if _alone(books):
        given += sum(_recover_popped(books, queue) for queue in books.queues)
    return given


def replay(books: Books, committer: Committer, spool: Spool, own: Container[str]) -> None:
    """Commit the results that an earlier process spooled and did not bring to Redis."""
    queues = {queue.name: queue for queue in books.queues}
    for entry in spool.entries():
        if entry.execution_id in own:
            continue
        lease = books.reopen(queues[entry.queue], entry.job_id, entry.execution_id)
        if lease:
            _bring(books, committer, lease, entry.result)
        spool.remove(entry.execution_id)


def _bring(books: Books, committer: Committer, lease: Lease, result: Result) -> None:
    key = keys.result(lease.job.id)
    if not books.lost([lease]) and not books.connection.exists(key):
        # The end of the text may have been only in the memory of the process that died.
        with books.connection.pipeline() as pipeline:
            told = [event for event in retold(result) if event.type != "done"]
            add_entries(pipeline, keys.stream(lease.job.id), told)
            pipeline.execute()
    if committer.commit(lease.queue.name, lease.member, result) is Commit.LOST:
        books.abandon(lease)
    else:
        books.close(lease, result.status)


def reconcile(books: Books, committer: Committer) -> None:
    """Give every job that RQ holds for failed or canceled a result, if it has none.

    RQ fails a job by itself when it may not run again, as when somebody else has queued it; and
    people cancel jobs with tools of RQ.
    """
    for queue in books.queues:
        for lease in _unanswered(books, queue, queue.failed_job_registry):
            error = JobFailed(
                "worker_crashed",
                "the job's worker died and RQ has given the job up; submit it again",
            )
            job_id = lease.job.id
            result = failed_result(job_id, error, job=_readable(lease), attempt=lease.attempt)
            committer.commit(queue.name, NO_LEASE, result)
        for lease in _unanswered(books, queue, queue.canceled_job_registry):
            job = _readable(lease)
            label = (job.custom_id, job.metadata) if job else (None, None)
            committer.commit(queue.name, NO_LEASE, cancelled_result(lease.job.id, *label))


def _bury(books: Books) -> None:
    """Remove this host's dead workers from the lists, where they would be shown for minutes."""
    for key in books.all_keys(books.connection):
        name = key.removeprefix(books.redis_worker_namespace_prefix)
        if name == books.name or not _of_host(books, name):
            continue
        with books.connection.pipeline() as pipeline:
            pipeline.srem(books.redis_workers_keys, key)
            for queue in books.queues:
                pipeline.srem(WORKERS_BY_QUEUE_KEY % queue.name, key)
            pipeline.delete(key, f"{key}:executions")
            pipeline.hdel(keys.WORKERS, name)
            pipeline.execute()


def _of_host(books: Books, worker_name: str) -> bool:
    return worker_name.startswith(f"{NAME_PREFIX}-{books.host}-")


def _alone(books: Books) -> bool:
    """Whether no worker of another host lives, which might be about to start what it has popped.

    Otherwise such a job is given back when two sweeps have found it there.
    """
    others = [
        key
        for key in books.all_keys(books.connection)
        if not _of_host(books, key.removeprefix(books.redis_worker_namespace_prefix))
    ]
    return not others or not books.connection.exists(*others)


def _recover_started(books: Books, queue: Queue, own: Container[str]) -> int:
    ids = queue.started_job_registry.get_job_and_execution_ids(cleanup=False)
    orphans = [lease for lease in _orphans(books, queue, ids) if lease.execution.id not in own]
    # By the time of their start, latest first: each goes to the front.
    orphans.sort(key=lambda lease: str(lease.job.started_at), reverse=True)  # ISO 8601
    for lease in orphans:
        answer = books.connection.get(keys.result(lease.job.id))
        if answer is not None:
            books.close_answered(lease, decode_result(answer).status)
        else:
            books.give_back(lease, refund=False)
    return len(orphans)


def _orphans(books: Books, queue: Queue, ids: list[tuple[str, str]]) -> Iterator[Lease]:
    for job_id, execution_id in ids:
        lease = books.reopen(queue, job_id, execution_id)
        if lease is None:
            books.connection.zrem(queue.started_job_registry.key, f"{job_id}:{execution_id}")
        elif _of_host(books, lease.job.worker_name or ""):
            yield lease


def _recover_popped(books: Books, queue: Queue) -> int:
    popped = queue.intermediate_queue.get_job_ids()
    for job_id in reversed(popped):
        books.put_back(queue, job_id)
    return len(popped)


def _unanswered(books: Books, queue: Queue, registry: BaseRegistry) -> Iterator[Lease]:
    ids = registry.get_job_ids(cleanup=False)
    for job_id in without_result(books.connection, ids):
        if lease := books.reopen(queue, job_id, ""):
            yield lease


def _readable(lease: Lease) -> Job | None:
    try:
        return read_job(lease.job)
    except (JobFailed, InvalidJob):
        return None
