"""Take jobs out of Redis: off the queues, or with every trace."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import redis
from redis.client import Pipeline
from rq.job import Job as RQJob
from rq.registry import CanceledJobRegistry, FailedJobRegistry, FinishedJobRegistry
from rq.results import Result as RQResult

from thinkq.client import batches, keys, places
from thinkq.client.errors import NotFinished

_DROP_ENDED: Final = files(__package__).joinpath("drop_ended.lua").read_text()

REGISTRIES: Final = tuple(
    registry.key_template.format(queue)
    for registry in (FinishedJobRegistry, FailedJobRegistry, CanceledJobRegistry)
    for queue in keys.QUEUES.values()
)
"""RQ's lists of jobs that have ended."""


def drop_ended(connection: redis.Redis, batch: str) -> int:
    """Take the batch's jobs that have a result off the queues; returns how many there were."""
    script = connection.register_script(_DROP_ENDED)
    return sum(
        script(keys=[queue], args=[keys.job_prefix(batch), keys.result("")])
        for queue in places.queues(connection)
    )


def forget(pipe: Pipeline, ids: Sequence[str]) -> None:
    """Add the commands that remove all traces of ended jobs, ours and RQ's; `ids` is not empty."""
    for of_job in (keys.result, keys.stream, RQJob.key_for, RQResult.get_key):
        pipe.unlink(*map(of_job, ids))
    for popped in places.POPPED:
        pipe.unlink(*(f"{popped}:first_seen:{job_id}" for job_id in ids))
    pipe.hdel(keys.ATTEMPTS, *ids)
    pipe.srem(keys.CANCELLED, *ids)
    for registry in REGISTRIES:
        pipe.zrem(registry, *ids)


def remove(connection: redis.Redis, batch: str) -> None:
    """Remove a batch and its results.

    Raises NotFound, and NotFinished while jobs of the batch are queued or run.
    """
    status = batches.status(connection, batch)
    if left := status.queued + status.running:
        raise NotFinished(
            f"batch {batch} has {left} jobs that have not ended; "
            f"cancel them with `thinkq cancel {batch}`, or use `thinkq rm --cancel {batch}`"
        )
    if places.held(connection, batch):
        # What it will still write on them would stay for ever.
        raise NotFinished(
            f"a worker still closes its books on jobs of batch {batch}; try again in a moment"
        )
    drop_ended(connection, batch)
    for chunk in batches.chunked(batches.listed_ids(connection, batch)):
        with connection.pipeline() as pipe:
            forget(pipe, chunk)
            pipe.execute()
    with connection.pipeline() as pipe:
        pipe.delete(keys.batch(batch), keys.batch_jobs(batch), keys.batch_events(batch))
        pipe.zrem(keys.BATCHES, batch)
        pipe.execute()
