"""Batches in Redis: submit, retry, remove.

A batch's list of job ids is the cursor of its submission: each chunk of jobs and their ids go in by
one transaction that fails if the list has changed meanwhile. So a client killed in the middle, or
two at once, never queue a job twice, and the same submission made again completes the first.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import redis
from redis.client import Pipeline
from rq import Queue, Retry
from rq.job import Job as RQJob
from rq.queue import EnqueueData
from rq.results import Result as RQResult

from thinkq.client import batches, keys
from thinkq.client.errors import ThinkqError
from thinkq.client.job import Job, encode_payload, job_hash
from thinkq.client.result import Result
from thinkq.client.serializer import MsgpackSerializer

CHUNK_JOBS: Final = 1000
CHUNK_CHARACTERS: Final = 8_000_000
"""A transaction ends with the job that reaches either number."""

MANY_RETRIES: Final = 1_000_000
"""RQ must never give a job up: the worker's own count of attempts decides."""

DURABLE_WAIT_MS: Final = 2000
"""The server syncs its append-only file every second."""


def batch_id(jobs: Mapping[int, Job], salt: str = "") -> str:
    """The id of a batch: `b` and 12 hex digits that the jobs and their lines decide.

    A salt makes another batch of the same jobs.
    """
    digest = hashlib.sha256(salt.encode())
    for line, job in jobs.items():
        digest.update(f"{line} {job_hash(job)}\n".encode())
    return f"b{digest.hexdigest()[:12]}"


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

    def submit(self, batch: str, jobs: Mapping[int, Job], *, name: str = "") -> int:
        """Queue those jobs (by line, from 1) that the batch lacks; returns how many they were.

        A finished batch whose results have expired begins anew.
        """
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
        new = self._queue_missing(batch, jobs)
        self._connection.hset(keys.batch(batch), "state", "queued")
        return new

    def wait_durable(self) -> None:
        """Wait until all that was written is on the server's disk, where the server can tell."""
        # An older server does not know the command; one without an append-only file refuses it.
        with contextlib.suppress(redis.ResponseError):
            self._connection.execute_command("WAITAOF", 1, 0, DURABLE_WAIT_MS)  # type: ignore[no-untyped-call]

    def retry(self, batch: str, jobs: Mapping[int, Job]) -> int:
        """Queue anew those of the jobs that failed, were cancelled or came back empty.

        Returns how many they were. Their old results are gone.
        """
        ids = [keys.job_id(batch, line) for line in jobs]
        again = 0
        for result in batches.results(self._connection, ids):
            if batches.unanswered(result):
                item = _item(result.job_id, jobs[batches.line_of(result.job_id)])
                again += self._retry_one(batch, item, result)
        return again

    def remove(self, batch: str) -> None:
        """Remove a finished batch and its results.

        Raises NotFound, and ThinkqError while the batch has jobs that have not ended.
        """
        status = batches.status(self._connection, batch)
        if not status.finished:
            left = status.total - status.ended
            raise ThinkqError(f"batch {batch} has {left} jobs that have not ended; cancel it first")
        for chunk in batches.chunked(batches.listed_ids(self._connection, batch)):
            with self._connection.pipeline() as pipe:
                for job_id in chunk:
                    self._forget(pipe, job_id)
                pipe.execute()
        with self._connection.pipeline() as pipe:
            pipe.delete(keys.batch(batch), keys.batch_jobs(batch), keys.batch_events(batch))
            pipe.zrem(keys.BATCHES, batch)
            pipe.execute()

    def _expired(self, batch: str, jobs: Mapping[int, Job]) -> bool:
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

    def _queue_missing(self, batch: str, jobs: Mapping[int, Job]) -> int:
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
            self._enqueue(pipe, chunk)
            pipe.rpush(listed, *(item.job_id for item in chunk))
            pipe.hset(keys.batch(batch), "total", str(length + len(chunk)))
            return _execute(pipe)

    def _retry_one(self, batch: str, item: _Item, result: Result) -> bool:
        """Take the result back and queue the job anew; False if another client did so first."""
        with self._connection.pipeline() as pipe:
            pipe.watch(keys.result(item.job_id))  # type: ignore[no-untyped-call]
            if not self._connection.exists(keys.result(item.job_id)):
                return False
            pipe.multi()
            self._forget(pipe, item.job_id)
            for field, number in batches.counts(result).items():
                pipe.hincrby(keys.batch(batch), field, -number)
            self._enqueue(pipe, [item])
            return _execute(pipe)

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

    def _forget(self, pipe: Pipeline, job_id: str) -> None:
        """Add the commands that remove a job's traces, ours and RQ's."""
        pipe.delete(keys.result(job_id), keys.stream(job_id), RQJob.key_for(job_id))
        pipe.delete(RQResult.get_key(job_id))  # type: ignore[no-untyped-call]  # RQ's
        pipe.hdel(keys.ATTEMPTS, job_id)
        for queue in self._queues.values():
            pipe.zrem(queue.finished_job_registry.key, job_id)
            pipe.zrem(queue.failed_job_registry.key, job_id)


def _item(job_id: str, job: Job) -> _Item:
    return _Item(job_id, encode_payload(job), job.priority or "normal")


def _chunks(batch: str, jobs: Mapping[int, Job], listed: set[str]) -> Iterator[list[_Item]]:
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


def _execute(pipe: Pipeline) -> bool:
    """Run the transaction; False if a watched key has changed."""
    try:
        pipe.execute()
    except redis.WatchError:
        return False
    return True
