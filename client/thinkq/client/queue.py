"""Batches in Redis: submit, retry, remove.

A batch's list of job ids is the cursor of its submission: each chunk of jobs and their ids go in by
one transaction that fails if the list has changed meanwhile. So a client killed in the middle, or
two at once, never queue a job twice, and the same submission made again completes the first.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import redis
from redis.client import Pipeline
from rq import Queue, Retry
from rq.job import Job as RQJob
from rq.queue import EnqueueData

from thinkq.client import batches, keys, losses
from thinkq.client.errors import FileChanged
from thinkq.client.job import Job, encode_payload, job_hash
from thinkq.client.joblines import JobLines, id_of_hashes
from thinkq.client.removal import drop_ended, forget, remove
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.stored import stored_jobs

CHUNK_JOBS: Final = 1000
CHUNK_CHARACTERS: Final = 8_000_000
"""A transaction ends with the job that reaches either number."""

RETRY_CHUNK: Final = 200
"""Jobs of one transaction of a retry."""

MANY_RETRIES: Final = 1_000_000
"""RQ must never give a job up: the worker's own count of attempts decides."""

DURABLE_WAIT_MS: Final = 2000
"""The server syncs its append-only file every second."""


def batch_id(jobs: JobLines, salt: str = "") -> str:
    """The id of a batch: `b` and 12 hex digits that the jobs and their lines decide.

    A salt makes another batch of the same jobs.
    """
    return id_of_hashes(((line, job_hash(job)) for line, job in jobs.items()), salt)


class _Item(msgspec.Struct, frozen=True):
    """A job as it is queued."""

    job_id: str
    payload: str
    priority: keys.Priority


class JobQueue:
    """The writing side of the queue.

    `retention_s`: seconds that results are kept; None: until they are removed.
    """

    def __init__(self, connection: redis.Redis, retention_s: int | None = None) -> None:
        self._connection = connection
        self._ttl = -1 if retention_s is None else retention_s
        self._queues = {
            priority: Queue(name, connection=connection, serializer=MsgpackSerializer)
            for priority, name in keys.QUEUES.items()
        }

    def submit(self, batch: str, jobs: JobLines, *, name: str = "") -> int:
        """Queue those jobs (by line, from 1) that the batch lacks; returns how many they were.

        A finished batch whose results have expired begins anew. Lost jobs are queued again. Raises
        FileChanged, which says what was queued until then.
        """
        losses.forget(self._connection, batch)
        if self._expired(batch, jobs):
            self.remove(batch)
        now = f"{time.time():.3f}"
        with self._connection.pipeline() as pipe:
            pipe.hsetnx(keys.batch(batch), "created", now)
            pipe.hsetnx(keys.batch(batch), "name", name)
            pipe.hsetnx(keys.batch(batch), "total", "0")
            pipe.hset(keys.batch(batch), "state", "submitting")
            pipe.zadd(keys.BATCHES, {batch: now}, nx=True)
            pipe.execute()
        try:
            new = self._queue_missing(batch, jobs)
        except FileChanged as changed:
            raise FileChanged(f"{changed}; {self._given_up(batch)}") from None
        self._connection.hset(keys.batch(batch), "state", "queued")
        return new

    def _given_up(self, batch: str) -> str:
        """What is left of a submission that cannot go on."""
        if not (queued := self._connection.llen(keys.batch_jobs(batch))):
            self.remove(batch)
            return "nothing was queued; run the command again"
        return (
            f"{queued} jobs of the file as it was are queued as batch {batch}; "
            f"`thinkq rm --cancel {batch}` removes them, the command run again queues the new file"
        )

    def wait_durable(self) -> None:
        """Wait until all that was written is on the server's disk, where the server can tell."""
        # An older server does not know the command; one without an append-only file refuses it.
        with contextlib.suppress(redis.ResponseError):
            self._connection.execute_command("WAITAOF", 1, 0, DURABLE_WAIT_MS)  # type: ignore[no-untyped-call]

    def retry(self, batch: str, jobs: Mapping[int, Job] | None = None) -> int:
        """Queue anew those of the jobs that failed, were cancelled or came back empty.

        Without `jobs`: all of the batch, as Redis still has them, lost ones among them. Returns how
        many they were. Their old results are gone.
        """
        # What a cancelled job has left in a queue would make it run twice.
        drop_ended(self._connection, batch)
        if jobs is None:
            ids = batches.listed_ids(self._connection, batch)
            lost = losses.lost_ids(self._connection, batch)
        else:
            ids, lost = [keys.job_id(batch, line) for line in jobs], []
        again = sum(self._retry_chunk(batch, chunk, jobs) for chunk in _retry_chunks(ids))
        return again + sum(self._requeue_chunk(batch, chunk) for chunk in _retry_chunks(lost))

    def remove(self, batch: str) -> None:
        """Remove a batch; see `removal.remove`."""
        remove(self._connection, batch)

    def _expired(self, batch: str, jobs: JobLines) -> bool:
        """Whether the batch is finished and results of these jobs are gone."""
        if not batches.exists(self._connection, batch):
            return False
        if not batches.status(self._connection, batch).finished:
            return False
        listed = set(batches.listed_ids(self._connection, batch))
        ids = listed & {keys.job_id(batch, line) for line in jobs}
        kept = sum(
            self._connection.exists(*map(keys.result, chunk)) for chunk in batches.chunked(ids)
        )
        return kept < len(ids)

    def _queue_missing(self, batch: str, jobs: JobLines) -> int:
        """Queue what the list lacks, looking again whenever another client has changed it."""
        new = 0
        while True:
            length = self._connection.llen(keys.batch_jobs(batch))
            listed = set(batches.listed_ids(self._connection, batch))
            for chunk in _chunks(batch, jobs, listed):
                if not self._queue_chunk(batch, chunk, length):
                    break
                length += len(chunk)
                new += len(chunk)
            else:
                return new

    def _queue_chunk(self, batch: str, chunk: list[_Item], length: int) -> bool:
        """Queue the chunk if the batch's list still has that length; whether it had."""
        listed = keys.batch_jobs(batch)
        with self._connection.pipeline() as pipe:
            pipe.watch(listed)  # type: ignore[no-untyped-call]
            if self._connection.llen(listed) != length:
                return False
            pipe.multi()
            batches.keep(pipe, batch)
            self._enqueue(pipe, chunk)
            pipe.rpush(listed, *(item.job_id for item in chunk))
            pipe.hset(keys.batch(batch), "total", str(length + len(chunk)))
            return batches.execute(pipe)

    def _retry_chunk(self, batch: str, ids: list[str], jobs: Mapping[int, Job] | None) -> int:
        """Take back the results of these jobs that have no answer, and queue the jobs anew."""
        while True:
            with self._connection.pipeline() as pipe:
                pipe.watch(*map(keys.result, ids))  # type: ignore[no-untyped-call]
                found = batches.results(self._connection, ids)
                unanswered = {r.job_id: r for r in found if batches.unanswered(r)}
                items = self._items(list(unanswered), jobs)
                if not items:
                    return 0
                taken_back: Counter[str] = Counter()
                for item in items:
                    taken_back.update(batches.counts(unanswered[item.job_id]))
                pipe.multi()
                forget(pipe, [item.job_id for item in items])
                for field, number in taken_back.items():
                    pipe.hincrby(keys.batch(batch), field, -number)
                batches.keep(pipe, batch)
                self._enqueue(pipe, items)
                if batches.execute(pipe):
                    return len(items)

    def _requeue_chunk(self, batch: str, ids: list[str]) -> int:
        """Queue anew those of these lost jobs that Redis still has; none if another client does."""
        with self._connection.pipeline() as pipe:
            pipe.watch(*map(RQJob.key_for, ids))  # type: ignore[no-untyped-call]
            still_lost = set(losses.lost_ids(self._connection, batch)).intersection(ids)
            items = self._items(sorted(still_lost, key=batches.line_of), None)
            pipe.multi()
            batches.keep(pipe, batch)
            self._enqueue(pipe, items)
            return len(items) if batches.execute(pipe) else 0

    def _items(self, ids: list[str], jobs: Mapping[int, Job] | None) -> list[_Item]:
        """The jobs as they are queued: as given, else as Redis still has them."""
        if jobs is not None:
            return [_item(job_id, jobs[batches.line_of(job_id)]) for job_id in ids]
        return [
            _Item(stored.job_id, stored.payload, keys.priority_of(stored.queue))
            for stored in stored_jobs(self._connection, ids)
        ]

    def _enqueue(self, pipe: Pipeline, items: list[_Item]) -> None:
        """Add RQ's commands for these jobs to an open transaction."""
        datas: defaultdict[keys.Priority, list[EnqueueData]] = defaultdict(list)
        for item in items:
            datas[item.priority].append(self._enqueue_data(item))
        for priority, group in datas.items():
            self._queues[priority].enqueue_many(group, pipeline=pipe)

    def _enqueue_data(self, item: _Item) -> EnqueueData:
        return Queue.prepare_data(
            keys.TASK,
            args=(item.payload,),
            job_id=item.job_id,
            timeout=-1,  # The deadline is the engine's.
            result_ttl=self._ttl,
            failure_ttl=self._ttl,
            description="thinkq job",  # RQ's default shows the prompt.
            retry=Retry(max=MANY_RETRIES),
        )


def _item(job_id: str, job: Job) -> _Item:
    return _Item(job_id, encode_payload(job), job.priority or "normal")


def _retry_chunks(ids: list[str]) -> Iterator[list[str]]:
    return batches.chunked(ids, RETRY_CHUNK)


def _chunks(batch: str, jobs: JobLines, listed: set[str]) -> Iterator[list[_Item]]:
    """The jobs that are not listed, in chunks of one transaction each."""
    chunk: list[_Item] = []
    characters = 0
    for line, job in jobs.items():
        if (job_id := keys.job_id(batch, line)) in listed:
            continue
        chunk.append(_item(job_id, job))
        characters += len(chunk[-1].payload)
        if len(chunk) == CHUNK_JOBS or characters > CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
