"""Where the jobs are that have not ended: in a queue, on the way to a worker, or with one.

RQ's own counting would sweep leases, so this reads with plain commands.
"""

from __future__ import annotations

import time
from collections import Counter
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


def ask(pipe: Pipeline, peek: int = PEEK) -> None:
    """Add the commands to a transaction; `read` takes their replies."""
    for key in QUEUE_KEYS:
        pipe.lrange(key, 0, peek)  # one more than is looked at
    for key in POPPED:
        pipe.lrange(key, 0, -1)
    for key in LEASES:
        pipe.zrange(key, 0, -1)


def read(replies: list[Any], peek: int = PEEK) -> Places:
    """The replies to `ask`."""
    each = len(QUEUE_KEYS)
    queues, popped, leases = replies[:each], replies[each : 2 * each], replies[2 * each :]
    known = all(len(queue) <= peek for queue in queues)
    return Places(
        queued=frozenset(job.decode() for ids in queues + popped for job in ids) if known else None,
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
    return lease.decode().partition(":")[0]
