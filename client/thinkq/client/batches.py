"""What Redis knows of a batch, read with plain commands: RQ's own counting would sweep leases."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

import msgspec
import redis
from rq.registry import StartedJobRegistry

from thinkq.client import keys
from thinkq.client.errors import NotFound, ThinkqError
from thinkq.client.result import SCHEMA, Result, decode_result

CHUNK: Final = 500
"""Keys of one MGET."""

T = TypeVar("T")


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a batch at one moment."""

    batch: str
    name: str = ""
    state: str = "queued"
    """`submitting` until all jobs are queued (for ever, if the client died), then `queued`."""
    created: float = 0.0
    """Unix seconds."""
    total: int = 0
    queued: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    empty: int = 0
    """Jobs of `done` that came back without an answer."""
    length: int = 0
    """Jobs of `done` that were cut by `max_tokens`."""
    thinking_tokens: int = 0
    answer_tokens: int = 0
    closes: dict[str, int] = {}
    """How the thinking of how many jobs was closed."""
    seconds_left: float | None = None
    """At the pace since the submission; null until a job has ended."""

    @property
    def ended(self) -> int:
        """Jobs that have a result."""
        return self.done + self.failed + self.cancelled

    @property
    def finished(self) -> bool:
        """Whether every job has a result."""
        return self.state == "queued" and self.ended >= self.total


def counts(result: Result) -> dict[str, int]:
    """What one result adds to the counters in its batch's hash."""
    added = {
        result.status: 1,
        f"close:{result.close_reason}": 1,
        "thinking_tokens": result.usage.thinking_tokens,
        "answer_tokens": result.usage.answer_tokens,
        "empty": int(result.empty),
        "length": int(result.finish_reason == "length"),
    }
    return {field: number for field, number in added.items() if number}


def unanswered(result: Result) -> bool:
    """Whether the job failed, was cancelled or came back empty: what a retry runs again."""
    return result.status != "done" or result.empty


def text(value: bytes | str | None) -> str:
    """A field as the connection returns it, as text."""
    return value.decode() if isinstance(value, bytes) else value or ""


def chunked(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Lists of at most `size` items."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def batch_ids(connection: redis.Redis) -> list[str]:
    """All batches, the newest first."""
    ids: list[bytes] = connection.zrevrange(keys.BATCHES, 0, -1)  # type: ignore[assignment]  # no scores asked for
    return [text(batch) for batch in ids]


def listed_ids(connection: redis.Redis, batch: str) -> list[str]:
    """The ids of the jobs queued so far, in input order; none of a batch that is not there."""
    ids = [text(job_id) for job_id in connection.lrange(keys.batch_jobs(batch), 0, -1)]
    # A submission that was completed later appended its lines at the end.
    return sorted(ids, key=line_of)


def line_of(job_id: str) -> int:
    """The input line (from 1) of a job id."""
    return int(job_id.rpartition("-")[2])


def job_ids(connection: redis.Redis, batch: str) -> list[str]:
    """The batch's job ids in input order. Raises NotFound."""
    require(connection, batch)
    return listed_ids(connection, batch)


def exists(connection: redis.Redis, batch: str) -> bool:
    """Whether there is such a batch."""
    return bool(connection.exists(keys.batch(batch)))


def require(connection: redis.Redis, batch: str) -> None:
    """Raise NotFound if there is no such batch."""
    if not exists(connection, batch):
        raise no_batch(batch)


def no_batch(batch: str) -> NotFound:
    """The error that there is no such batch."""
    return NotFound(f"there is no batch {batch[:60]!r}; `thinkq status` lists all batches")


def status(connection: redis.Redis, batch: str) -> BatchStatus:
    """The batch's counts. Raises NotFound."""
    stored = connection.hgetall(keys.batch(batch))
    if not stored:
        require(connection, batch)
    fields = {text(name): text(value) for name, value in stored.items()}
    number = {name: int(fields.get(name, 0)) for name in _COUNTERS}
    left = max(0, number["total"] - number["done"] - number["failed"] - number["cancelled"])
    running = min(running_jobs(connection, batch), left)
    created = float(fields.get("created", 0))
    return BatchStatus(
        batch=batch,
        name=fields.get("name", ""),
        state=fields.get("state", "submitting"),
        created=created,
        queued=left - running,
        running=running,
        closes=closes(fields),
        seconds_left=_seconds_left(created, number["total"] - left, left),
        **number,
    )


_COUNTERS: Final = (
    "total",
    "done",
    "failed",
    "cancelled",
    "empty",
    "length",
    "thinking_tokens",
    "answer_tokens",
)


def closes(fields: Mapping[str, str | int]) -> dict[str, int]:
    """How the thinking was closed, from the counters of a batch."""
    counted = {name: int(n) for name, n in fields.items() if name.startswith("close:")}
    return {name.removeprefix("close:"): n for name, n in counted.items() if n}


def _seconds_left(created: float, ended: int, left: int) -> float | None:
    return (time.time() - created) / ended * left if ended else None


def running_jobs(connection: redis.Redis, batch: str) -> int:
    """How many jobs of the batch workers hold now."""
    with connection.pipeline(transaction=False) as pipe:
        for queue in keys.QUEUES.values():
            pipe.zrange(StartedJobRegistry.key_template.format(queue), 0, -1)
        leases = [text(lease) for queue in pipe.execute() for lease in queue]
    held = {lease.partition(":")[0] for lease in leases}
    return sum(keys.batch_of(job_id) == batch for job_id in held)


def find_result(connection: redis.Redis, job_id: str) -> Result | None:
    """The job's result, or None while there is none."""
    data = connection.get(keys.result(job_id))
    return None if data is None else read_result(data)


def results(connection: redis.Redis, ids: Iterable[str]) -> Iterator[Result]:
    """The results of those jobs that have one, in the order of the ids, a chunk in memory."""
    for chunk in chunked(ids):
        for data in connection.mget([keys.result(job_id) for job_id in chunk]):
            if data is not None:
                yield read_result(data)


def read_result(data: bytes | str) -> Result:
    """A stored result. Raises ThinkqError if a newer thinkq wrote it."""
    result = decode_result(data)
    if result.schema > SCHEMA:
        raise ThinkqError(
            f"the result of {result.job_id} was written by a newer thinkq "
            f"(format {result.schema}, this one reads {SCHEMA}); update thinkq"
        )
    return result
