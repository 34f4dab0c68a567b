"""How RQ's books on a job are closed: once, whatever died in between."""

from __future__ import annotations

import time
from typing import Final

from rq.job import JobStatus
from rq.registry import CanceledJobRegistry
from rq.results import Result as RQResult
from rq.utils import now as utc_now
from rq.worker import BaseWorker

from thinkq.client import keys
from thinkq.client.result import Status
from thinkq.worker.lease import Lease

RQ_STATUS: Final[dict[Status, JobStatus]] = {
    "done": JobStatus.FINISHED,
    "failed": JobStatus.FAILED,
    "cancelled": JobStatus.STOPPED,
}


class Endings(BaseWorker):
    """The part of a worker that ends executions. Methods raise redis.RedisError."""

    def close(self, lease: Lease, status: Status) -> None:
        """Record in RQ that the job has ended, once. RQ keeps the job id in place of the answer."""
        job = lease.job
        job.ended_at = utc_now()
        if self._told(job.id):
            self._close_again(lease, status)
        elif status == "done":
            job._result = job.id  # RQ offers no other way to say what a job returned.
            self.handle_job_success(
                job, lease.queue, lease.queue.started_job_registry, lease.execution
            )
        else:
            self._close_failed(lease, status)

    def close_answered(self, lease: Lease, status: Status) -> None:
        """Record the end of a job that has its result from elsewhere; this attempt was none."""
        if status == "cancelled" and not self._told(lease.job.id):
            self._close_cancelled(lease)
        else:
            self.close(lease, status)

    def _told(self, job_id: str) -> bool:
        """Whether RQ knows of the job's end. The attempt that asks is not counted any more."""
        with self.connection.pipeline() as pipeline:
            # First: whoever finds the execution open after a crash comes here again.
            pipeline.hdel(keys.ATTEMPTS, job_id)
            pipeline.xlen(RQResult.get_key(job_id))  # type: ignore[no-untyped-call]  # RQ's
            _, told = pipeline.execute()
        return bool(told)

    def _close_again(self, lease: Lease, status: Status) -> None:
        with self.connection.pipeline() as pipeline:
            lease.job.set_status(RQ_STATUS[status], pipeline)
            self.cleanup_execution(lease.job, pipeline, lease.execution)
            pipeline.execute()

    def _close_cancelled(self, lease: Lease) -> None:
        """Undo the start of a job that was cancelled in the queue at that moment."""
        job = lease.job
        with self.connection.pipeline() as pipeline:
            job.set_status(JobStatus.CANCELED, pipeline)
            job.cleanup(job.failure_ttl, pipeline)
            self.cleanup_execution(job, pipeline, lease.execution)
            pipeline.zadd(
                CanceledJobRegistry.key_template.format(job.origin), {job.id: time.time()}
            )
            pipeline.execute()

    def _close_failed(self, lease: Lease, status: Status) -> None:
        # Not RQ's handle_job_failure: it would run the job again, and swallows errors of Redis.
        job, ttl = lease.job, lease.job.failure_ttl
        with self.connection.pipeline() as pipeline:
            job.set_status(RQ_STATUS[status], pipeline)
            self.cleanup_execution(job, pipeline, lease.execution)
            job.failed_job_registry.add(job, ttl, status, pipeline)
            RQResult.create_failure(
                job,
                ttl,
                status,
                self.name,
                pipeline,
                lease.execution.id,
                lease.execution.created_at,
                job.ended_at,
            )
            self.increment_failed_job_count(pipeline)
            pipeline.execute()
