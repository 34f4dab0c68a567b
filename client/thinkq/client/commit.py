"""The commit: one script that takes a result, or nothing of it.

Workers commit what they have decoded, under their lease. A client commits the results of jobs that
it cancels in the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from importlib.resources import files
from typing import Final, Literal

import msgspec
import redis
from rq.job import Job as RQJob
from rq.registry import CanceledJobRegistry, StartedJobRegistry

from thinkq.client import batches, keys
from thinkq.client.result import Result, encode_result
from thinkq.client.settings import Settings

_SCRIPT: Final = files(__package__).joinpath("commit.lua").read_text()

NO_LEASE: Final = ""
"""In place of a lease where none can exist: the job lies in RQ's failed registry."""

Guard = Literal["lease", "queued", "none"]


class Commit(Enum):
    """What became of a result."""

    COMMITTED = "committed"
    KNOWN = "known"
    """The job had a result already; it stays."""
    LOST = "lost"
    """The lease is gone: the job was deleted, or is somebody else's. The result is dropped."""
    RUNNING = "running"
    """The job to be cancelled has left the queue; its worker was told to stop it."""


class Committer:
    """Commits results to one Redis."""

    def __init__(self, connection: redis.Redis, settings: Settings) -> None:
        self._script = connection.register_script(_SCRIPT)
        self._stream_ttl_s = settings.stream_ttl_s
        self._retention_s = settings.retention_s or 0

    def commit(self, queue: str, lease: str, result: Result) -> Commit:
        """Store the result, end the stream, and count the job in its batch, together.

        `lease` is the member in RQ's registry of started jobs of the queue (its name), or NO_LEASE.
        """
        (outcome,) = self._run("none" if lease == NO_LEASE else "lease", queue, lease, [result])
        return outcome

    def withdraw(self, queue: str, results: Sequence[Result]) -> list[Commit]:
        """Commit the results of jobs of one batch, in one queue, that no worker has taken.

        They are cancelled, and alike but for their ids and labels. A job that a worker has taken is
        noted for that worker instead.
        """
        return self._run("queued", queue, NO_LEASE, results)

    def _run(self, guard: Guard, queue: str, lease: str, results: Sequence[Result]) -> list[Commit]:
        outcomes = self._script(
            keys=self._keys(queue, results), args=self._arguments(guard, lease, results)
        )
        return [Commit(outcome.decode()) for outcome in outcomes]

    def _keys(self, queue: str, results: Sequence[Result]) -> list[str]:
        batch = keys.batch_of(results[0].job_id)
        shared = [
            StartedJobRegistry.key_template.format(queue),
            CanceledJobRegistry.key_template.format(queue),
            keys.batch(batch),
            keys.batch_events(batch),
            keys.batch_jobs(batch),
            keys.ATTEMPTS,
            keys.CANCELLED,
        ]
        for result in results:
            id = result.job_id
            shared += [keys.result(id), keys.stream(id), RQJob.key_for(id)]
        return shared

    def _arguments(
        self, guard: Guard, lease: str, results: Sequence[Result]
    ) -> list[str | int | bytes]:
        alike = results[0]
        arguments: list[str | int | bytes] = [
            guard,
            lease,
            self._stream_ttl_s,
            self._retention_s,
            alike.status,
            alike.finish_reason,
            int(alike.empty),
            msgspec.json.encode(batches.counts(alike)),
        ]
        for result in results:
            short = msgspec.structs.replace(result, thinking=None, answer="")
            arguments += [
                result.job_id,
                result.attempt,
                encode_result(result),
                encode_result(short),
            ]
        return arguments
