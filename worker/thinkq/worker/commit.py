"""The commit: one script that takes a result, or nothing of it."""

from __future__ import annotations

from enum import Enum
from importlib.resources import files
from typing import Final

import msgspec
import redis
from rq.registry import StartedJobRegistry

from thinkq.client import batches, keys
from thinkq.client.result import Result, encode_result
from thinkq.client.settings import Settings

_SCRIPT: Final = files(__package__).joinpath("commit.lua").read_text()

NO_LEASE: Final = ""
"""In place of a lease where none can exist: the job lies in RQ's failed registry."""


class Commit(Enum):
    """What became of a result."""

    COMMITTED = "committed"
    KNOWN = "known"
    """The job had a result already; it stays."""
    LOST = "lost"
    """The lease is gone: the job was deleted, or is somebody else's. The result is dropped."""


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
        job_id = result.job_id
        batch = keys.batch_of(job_id)
        reply = self._script(
            keys=[
                StartedJobRegistry.key_template.format(queue),
                keys.result(job_id),
                keys.stream(job_id),
                keys.batch(batch),
                keys.batch_events(batch),
                keys.ATTEMPTS,
                keys.CANCELLED,
            ],
            args=[
                lease,
                job_id,
                encode_result(result),
                encode_result(msgspec.structs.replace(result, thinking=None, answer="")),
                result.attempt,
                self._stream_ttl_s,
                self._retention_s,
                result.status,
                result.finish_reason,
                int(result.empty),
                *(part for count in batches.counts(result).items() for part in count),
            ],
        )
        return Commit(reply.decode())
