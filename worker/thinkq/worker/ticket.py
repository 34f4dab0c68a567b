"""One job in this worker."""

from __future__ import annotations

from dataclasses import dataclass

from rq.utils import now as utc_now

from thinkq.client.job import Job
from thinkq.client.result import Result
from thinkq.worker.lease import Lease
from thinkq.worker.publish import Deltas
from thinkq.worker.spool import Spooled
from thinkq.worker.task import Task


@dataclass(eq=False, kw_only=True)
class Ticket:
    """A job from its admission until the books on it are closed."""

    lease: Lease
    deltas: Deltas
    task: Task | None = None
    """What the decode thread works on; None for a job that failed before."""
    result: Result | None = None
    spooled: bool = False
    lost: bool = False
    """The lease is gone: whatever comes of the job is dropped."""

    again: bool = False
    """The engine failed with this job among its rows: it is to be tried again."""

    @property
    def broken(self) -> bool:
        """Whether the job ended because the engine failed."""
        return self.task is not None and self.task.broken

    def begin(self, job: Job) -> Task:
        """The job as a task for the decode thread."""
        queued = self.lease.job.enqueued_at
        self.task = Task(
            job=job,
            job_id=self.lease.job.id,
            attempt=self.lease.attempt,
            queued_s=max(0.0, (utc_now() - queued).total_seconds()) if queued else 0.0,
            sink=self.deltas.add,
        )
        return self.task

    def end(self, result: Result, worker: str) -> None:
        """The job's result is there."""
        result.worker = worker
        self.result = result
        self.deltas.close()

    def cancel(self) -> None:
        """Let the job end at the next turn with what it has."""
        if self.task:
            self.task.cancelled = True

    def spooled_as(self, result: Result) -> Spooled:
        """The result as it is written to the spool."""
        return Spooled(
            job_id=self.lease.job.id,
            queue=self.lease.queue.name,
            execution_id=self.lease.execution.id,
            result=result,
        )
