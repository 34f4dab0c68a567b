"""Every Redis key and queue name of thinkq. RQ's own keys begin with `rq:`."""

from __future__ import annotations

from typing import Final, Literal

Priority = Literal["high", "normal", "low"]

QUEUES: Final[dict[Priority, str]] = {
    "high": "thinkq:high",
    "normal": "thinkq:normal",
    "low": "thinkq:low",
}
"""RQ queue name of each priority, in the order in which workers look at them."""


def priority_of(queue: str) -> Priority:
    """The priority of a queue by its RQ name; normal for a queue that is not ours."""
    return next((priority for priority, name in QUEUES.items() if name == queue), "normal")


TASK: Final = "thinkq.generate"
"""The one task name that workers accept. It is looked up, never imported."""

BATCHES: Final = "thinkq:batches"
"""Sorted set of batch ids by the time of their submission (Unix seconds)."""

CANCELLED: Final = "thinkq:cancelled"
"""Set of job ids whose cancellation was asked for and not yet carried out."""

WORKERS: Final = "thinkq:workers"
"""Hash of worker name to its JSON status line."""

ATTEMPTS: Final = "thinkq:attempts"
"""Hash of job id to the number of attempts that were admitted."""

NEVER: Final = "thinkq:never"
"""A key that does not exist, to ask by whether Redis takes writes."""


DEFAULT_MODEL: Final = "(default)"
"""In the name of a shelf: the model of jobs that name none, whichever a worker's is."""


def shelf(queue: str, model: str | None) -> str:
    """The RQ queue for jobs of `queue` (its name) that a worker with another model has met."""
    return f"{queue}:{model or DEFAULT_MODEL}"


def result(job_id: str) -> str:
    """String: the result as JSON."""
    return f"thinkq:result:{job_id}"


def stream(job_id: str) -> str:
    """Stream: what the job's model writes, as it writes it."""
    return f"thinkq:stream:{job_id}"


def batch(batch_id: str) -> str:
    """Hash: name, total and the counts of a batch."""
    return f"thinkq:batch:{batch_id}"


def batch_jobs(batch_id: str) -> str:
    """List: the batch's job ids in input order."""
    return f"thinkq:batch:{batch_id}:jobs"


def batch_events(batch_id: str) -> str:
    """Stream: one entry for each job of the batch that has ended."""
    return f"thinkq:batch:{batch_id}:events"


def job_id(batch_id: str, line: int) -> str:
    """The id of the job on a line (from 1) of a batch; it is also RQ's job id."""
    return f"{job_prefix(batch_id)}{line}"


def job_prefix(batch_id: str) -> str:
    """What the ids of a batch's jobs begin with."""
    return f"{batch_id}-"


def batch_of(job_id: str) -> str:
    """The batch that a job id belongs to."""
    return job_id.rpartition("-")[0]
