"""What Redis knows of a batch, read with plain commands: RQ's own counting would sweep leases."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypeVar

import msgspec
import redis
from redis.client import Pipeline

from thinkq.client import keys, places
from thinkq.client.errors import NotFound, ThinkqError
from thinkq.client.result import SCHEMA, Result, decode_result

CHUNK: Final = 500
"""Keys of one MGET."""

State = Literal["submitting", "queued", "running", "finished"]

T = TypeVar("T")


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a batch at one moment."""

    batch: str
    name: str = ""
    state: State = "queued"
    """`submitting` until all jobs are queued (for ever, if the client died), `queued` while none
    runs, `running`, and `finished` when no job is left that could still end.
    """
    created: float = 0.0
    """Unix seconds."""
    total: int = 0
    queued: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    """Jobs without a result that Redis no longer has, or has in no queue: evicted or deleted.

    Looked for while the queues hold at most `places.PEEK` jobs each.
    """
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
        """Whether no job is left that could still end."""
        return self.state == "finished"


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
    """All batches, the newest first. Those that have expired are taken off the list."""
    listed: list[Any] = connection.zrevrange(keys.BATCHES, 0, -1)
    ids = [text(batch) for batch in listed]
    with connection.pipeline(transaction=False) as pipe:
        for batch in ids:
            pipe.exists(keys.batch(batch))
        there = dict(zip(ids, pipe.execute(), strict=True))
    return [batch for batch in ids if there[batch] or not _expired(connection, batch)]


def _expired(connection: redis.Redis, batch: str) -> bool:
    """Take the batch off the list if it is not there; whether it was so."""
    with connection.pipeline() as pipe:
        pipe.watch(keys.batch(batch))  # type: ignore[no-untyped-call]
        if pipe.exists(keys.batch(batch)):
            return False
        pipe.multi()
        pipe.zrem(keys.BATCHES, batch)
        return execute(pipe)


def execute(pipe: Pipeline) -> bool:
    """Run the transaction; False if a watched key has changed."""
    try:
        pipe.execute()
    except redis.WatchError:
        return False
    return True


def keep(pipe: Pipeline, batch: str) -> None:
    """Undo, in a transaction that queues a job, that a finished batch was about to expire."""
    for key in (keys.batch(batch), keys.batch_jobs(batch), keys.batch_events(batch)):
        pipe.persist(key)


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
    found = statuses(connection, [batch])
    if not found:
        require(connection, batch)
    return found[0]


def statuses(connection: redis.Redis, ids: Sequence[str]) -> list[BatchStatus]:
    """The counts of those batches that are there, all of one moment."""
    replies, where = places.look(
        connection, lambda pipe: [pipe.hgetall(keys.batch(batch)) for batch in ids]
    )
    queued, running = where.queued_of(), where.running_of()
    return [
        _status(batch, stored, None if queued is None else queued[batch], running[batch])
        for batch, stored in zip(ids, replies, strict=True)
        if stored
    ]


def _status(
    batch: str, stored: dict[bytes, bytes], queued: int | None, running: int
) -> BatchStatus:
    """`queued` None: all that do not run and have not ended."""
    fields = {text(name): text(value) for name, value in stored.items()}
    number = {name: int(fields.get(name, 0)) for name in _COUNTERS}
    ended = number["done"] + number["failed"] + number["cancelled"]
    left = max(0, number["total"] - ended)
    running = min(running, left)
    waiting = left - running if queued is None else min(queued, left - running)
    created = float(fields.get("created", 0))
    return BatchStatus(
        batch=batch,
        name=fields.get("name", ""),
        state=_state(fields.get("state", "submitting"), waiting, running),
        created=created,
        queued=waiting,
        running=running,
        lost=left - running - waiting,
        closes=closes(fields),
        seconds_left=_seconds_left(created, ended, waiting + running),
        **number,
    )


def _state(stored: str, waiting: int, running: int) -> State:
    if stored == "submitting":
        return "submitting"
    if running:
        return "running"
    return "queued" if waiting else "finished"


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
