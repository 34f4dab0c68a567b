"""Jobs that can never end, because Redis no longer has them.

A server that evicts keys drops queued jobs silently; so does whoever deletes keys. Such a job has
no result and is in no queue, and no worker holds it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

import redis

from thinkq.client import batches, keys, places
from thinkq.client.errors import JobsLost


def lost_ids(connection: redis.Redis, batch: str) -> list[str]:
    """The batch's lost jobs, in input order, however long the queues are."""
    (listed,), where = places.look(
        connection, lambda pipe: pipe.lrange(keys.batch_jobs(batch), 0, -1), sys.maxsize - 1
    )
    placed = where.running | (where.queued or frozenset())
    missing = [id for id in map(batches.text, listed) if id not in placed]
    return sorted(without_result(connection, missing), key=batches.line_of)


def without_result(connection: redis.Redis, ids: Collection[str]) -> list[str]:
    """Those of the jobs that have no result."""
    found: list[str] = []
    for chunk in batches.chunked(ids):
        if connection.exists(*map(keys.result, chunk)) == len(chunk):
            continue
        stored = connection.mget([keys.result(job_id) for job_id in chunk])
        found += [job_id for job_id, data in zip(chunk, stored, strict=True) if data is None]
    return found


def forget(connection: redis.Redis, batch: str) -> int:
    """Take lost jobs off the batch, so that they can be submitted anew; returns how many."""
    if not any(status.lost for status in batches.statuses(connection, [batch])):
        return 0
    while True:
        with connection.pipeline() as pipe:
            pipe.watch(keys.batch_jobs(batch))  # type: ignore[no-untyped-call]
            lost = set(lost_ids(connection, batch))
            if not lost:
                return 0
            kept = [id for id in batches.listed_ids(connection, batch) if id not in lost]
            pipe.multi()
            pipe.delete(keys.batch_jobs(batch))
            for chunk in batches.chunked(kept):
                pipe.rpush(keys.batch_jobs(batch), *chunk)
            pipe.hset(keys.batch(batch), "total", str(len(kept)))
            if batches.execute(pipe):
                return len(lost)


def refuse_lost(connection: redis.Redis, batch: str, waiting: Collection[str]) -> None:
    """Raise JobsLost if none of the jobs, which had no result a moment ago, can get one any more.

    Raises NotFound if the batch is not there.
    """
    if not batches.status(connection, batch).finished:
        return
    gone = without_result(connection, waiting)
    if len(gone) == len(waiting):
        raise JobsLost(
            f"{len(gone)} jobs of batch {batch} are lost: Redis no longer has them, or their "
            "results have expired; submit the same file again to run those"
        )
