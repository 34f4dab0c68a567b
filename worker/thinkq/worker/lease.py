"""A started job, as RQ knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rq import Queue
from rq.executions import Execution
from rq.job import Job as RQJob


class GuardedJob(RQJob):
    """A queued job that cannot make this process run code or call addresses of its own choice."""

    success_callback = failure_callback = stopped_callback = None

    def perform(self) -> Any:
        """Refuse: the worker reads a job, it never calls what it names."""
        raise RuntimeError("thinkq never calls the function that a job names")

    def send_webhooks(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


@dataclass(eq=False, frozen=True)
class Lease:
    """One execution of a job by this worker. `attempt` counts from 1."""

    job: RQJob
    queue: Queue
    execution: Execution
    attempt: int = 1
    answered: bool = False
    """The job has a result already: an earlier attempt died between its commit and RQ's books."""
    streamed: bool = False
    """An earlier attempt has written to the job's stream."""

    @property
    def member(self) -> str:
        """The lease itself: this member of RQ's registry of started jobs."""
        return str(self.execution.composite_key)
