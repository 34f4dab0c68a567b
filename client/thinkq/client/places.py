"""Where the jobs are that have not ended: in a queue, on the way to a worker, or with one.

RQ's own counting would sweep leases, so this reads with plain commands.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis
from redis.client import Pipeline
from rq import Queue
from rq.intermediate_queue import IntermediateQueue
from rq.registry import StartedJobRegistry

from thinkq.client import keys

PEEK: Final = 10_000
"""A longer queue is not looked through, because a status must come at once."""

QUEUE_KEYS: Final = tuple(f"{Queue.redis_queue_namespace_prefix}{n}" for n in keys.QUEUES.values())
POPPED: Final = tuple(IntermediateQueue.get_intermediate_queue_key(key) for key in QUEUE_KEYS)
"""Where a worker takes an id to, until it has a lease."""
LEASES: Final = tuple(StartedJobRegistry.key_template.format(n) for n in keys.QUEUES.values())
"""RQ's started jobs: a lease, `job:execution`, for each."""


@dataclass(frozen=True)
class Places:
    """The unfinished jobs of all batches at one moment."""

    queued: frozenset[str] | None
    """Ids in the queues, or just taken from one; None: they are too many to be looked through."""
    running: frozenset[str]
    """Ids of jobs that workers hold."""

    def queued_of(self) -> Counter[str] | None:
        """How many queued jobs each batch has; None: unknown."""
        return None if self.queued is None else Counter(map(keys.batch_of, self.queued))

    def running_of(self) -> Counter[str]:
        """How many running jobs each batch has."""
        return Counter(map(keys.batch_of, self.running))


def queues(connection: redis.Redis) -> list[str]:
    """The keys of the queues, and of their shelves that are not empty."""
    listed = sorted(_text(key) for key in connection.smembers(Queue.redis_queues_keys))
    starts = tuple(f"{key}:" for key in QUEUE_KEYS)
    return [*QUEUE_KEYS, *(key for key in listed if key.startswith(starts))]


def look(
    connection: redis.Redis, also: Callable[[Pipeline], object], peek: int | None = None
) -> tuple[list[Any], Places]:
    """Where the jobs are, and the replies to what `also` adds to the same transaction.

    Each queue is looked through as far as `peek` jobs, by default PEEK.
    """
    peek = PEEK if peek is None else peek
    while True:
        with connection.pipeline() as pipe:
            # A job must not be missed because it goes to a shelf that was not there before.
            pipe.watch(Queue.redis_queues_keys)  # type: ignore[no-untyped-call]
            keys_now = queues(pipe)
            pipe.multi()
            also(pipe)
            before = len(pipe)
            _ask(pipe, keys_now, peek)
            try:
                replies = pipe.execute()
            except redis.WatchError:
                continue
        return replies[:before], _read(replies[before:], len(keys_now), peek)


def _ask(pipe: Pipeline, queues: Sequence[str], peek: int) -> None:
    for key in queues:
        pipe.lrange(key, 0, peek)  # one more than is looked at
    for key in POPPED:
        pipe.lrange(key, 0, -1)
    for key in LEASES:
        pipe.zrange(key, 0, -1)


def _read(replies: list[Any], queues: int, peek: int) -> Places:
    """The replies to `_ask`."""
    waiting, leases = replies[: queues + len(POPPED)], replies[queues + len(POPPED) :]
    known = all(len(queue) <= peek for queue in waiting[:queues])
    return Places(
        queued=frozenset(job.decode() for ids in waiting for job in ids) if known else None,
        running=frozenset(_job_of(lease) for ids in leases for lease in ids),
    )


def running_ids(connection: redis.Redis) -> list[str]:
    """The jobs under leases that have not run out."""
    with connection.pipeline(transaction=False) as pipe:
        for key in LEASES:
            pipe.zrangebyscore(key, time.time(), "+inf")
        return sorted({_job_of(lease) for leases in pipe.execute() for lease in leases})


def held(connection: redis.Redis, batch: str) -> bool:
    """Whether a worker holds a job of the batch, be it one that has a result already."""
    return any(keys.batch_of(job_id) == batch for job_id in running_ids(connection))


def _job_of(lease: bytes) -> str:
    return _text(lease).partition(":")[0]


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
