"""The jobs that run now."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import redis

from thinkq.client import keys, places
from thinkq.client.keys import Priority
from thinkq.client.stored import StoredJob, stored_jobs


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker holds."""

    job_id: str
    batch: str
    custom_id: str | None
    priority: Priority
    worker: str
    """RQ's name of it."""
    attempt: int
    running_s: float | None
    """Seconds since this attempt was admitted, by the clocks of worker and reader."""


def running_jobs(connection: redis.Redis) -> list[RunningJob]:
    """The jobs that workers hold now, those that have run longest first."""
    now = datetime.now(UTC)
    jobs = [_running(job, now) for job in stored_jobs(connection, places.running_ids(connection))]
    return sorted(jobs, key=lambda job: -(job.running_s or 0.0))


def _running(job: StoredJob, now: datetime) -> RunningJob:
    return RunningJob(
        job_id=job.job_id,
        batch=keys.batch_of(job.job_id),
        custom_id=job.label().custom_id,
        priority=keys.priority_of(job.queue),
        worker=job.worker,
        attempt=max(1, job.attempts),
        running_s=max(0.0, (now - job.started).total_seconds()) if job.started else None,
    )
