"""Results of jobs that could not be decoded."""

from __future__ import annotations

from typing import Final

from thinkq.client.errors import InvalidJob, JobFailed
from thinkq.client.job import Job
from thinkq.client.result import JobError, Result

MAX_MESSAGE_BYTES: Final = 4096


def failed_result(
    job_id: str,
    error: JobFailed | InvalidJob,
    *,
    job: Job | None = None,
    attempt: int = 1,
    model: str | None = None,
) -> Result:
    """A failed job's result. `job` is None where its payload cannot be read."""
    kind = error.kind if isinstance(error, JobFailed) else error.code
    message = str(error).encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    return Result(
        job_id=job_id,
        custom_id=job.custom_id if job else None,
        metadata=job.metadata if job else None,
        status="failed",
        finish_reason="error",
        error=JobError(kind, message),
        attempt=attempt,
        model=model,
    )
