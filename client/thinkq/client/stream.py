"""Follow a job or a batch as it runs. Readers block in Redis for a second at a time, none polls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec
import redis
from rq.job import Job as RQJob

from thinkq.client import batches, keys
from thinkq.client.batches import text
from thinkq.client.errors import NotFound, RedisUnavailable
from thinkq.client.events import Event, parse_event
from thinkq.client.losses import refuse_lost
from thinkq.client.result import Result, encode_result

BLOCK_MS: Final = 1000
ENTRIES: Final = 500
"""A read returns at most so many entries, or none after so many milliseconds."""

RECONNECT_S: Final = 60.0
"""A server that is away longer than this ends the reading."""

BEGINNING: Final = "0-0"

Entry = tuple[str, dict[str, str]]
Idle = Callable[[], None]


class BatchEvent(msgspec.Struct, frozen=True):
    """One job of a batch has ended."""

    id: str
    job_id: str
    status: str
    finish_reason: str
    empty: bool


def nothing() -> None:
    """The `idle` of those who have nothing to do meanwhile."""


def follow(
    connection: redis.Redis, job_id: str, after: str = BEGINNING, idle: Idle = nothing
) -> Iterator[Event]:
    """The events of a job, from after an entry id up to `done`.

    Entries of an attempt older than the newest are left out. If the stream has expired, the stored
    result is told as events, beginning with `restart`. `idle` is called at each quiet second, and
    ends the following by raising. Raises NotFound and RedisUnavailable.
    """
    attempt = 0
    while True:
        entries = _read(connection, keys.stream(job_id), after, idle)
        for entry_id, fields in entries:
            event = parse_event(entry_id, fields)
            after = entry_id
            if event.attempt < attempt:
                continue
            attempt = event.attempt
            yield event
            if event.type == "done":
                return
        if not entries:
            newest, result = _look(connection, job_id)
            if newest == after and result:
                return
            if newest is None and result:
                yield from retold(result)
                return


def follow_batch(
    connection: redis.Redis, batch: str, after: str = BEGINNING, idle: Idle = nothing
) -> Iterator[BatchEvent]:
    """The jobs of a batch as they end, without an end of its own; the caller knows when to stop.

    `idle` as in `follow`. Raises NotFound when the batch is not there, or is removed.
    """
    while True:
        entries = _read(connection, keys.batch_events(batch), after, idle)
        for after, fields in entries:
            yield BatchEvent(
                id=after,
                job_id=fields["job_id"],
                status=fields["status"],
                finish_reason=fields["finish_reason"],
                empty=fields["empty"] == "1",
            )
        if not entries:
            batches.require(connection, batch)


def completed(
    connection: redis.Redis, batch: str, job_ids: Iterable[str], idle: Idle = nothing
) -> Iterator[Result]:
    """The results of those jobs, each once: first all that are there, then each as its job ends.

    Raises JobsLost when none that is missing can come any more.
    """
    ids = list(job_ids)
    waiting = set(ids)
    # Taken before the results are read: what ends from now on is an event after it.
    newest = _newest(connection, keys.batch_events(batch)) or BEGINNING
    for result in batches.results(connection, ids):
        waiting.discard(result.job_id)
        yield result
    if not waiting:
        return

    def quiet() -> None:
        idle()
        # A server that is away is the reader's to wait for.
        with suppress(redis.ConnectionError, redis.TimeoutError):
            refuse_lost(connection, batch, waiting)

    for event in follow_batch(connection, batch, newest, quiet):
        if event.job_id in waiting and (found := batches.find_result(connection, event.job_id)):
            waiting.discard(event.job_id)
            yield found
        if not waiting:
            return


def _read(connection: redis.Redis, key: str, after: str, idle: Idle) -> list[Entry]:
    """The next entries; none after a quiet second, when `idle` has been called."""
    deadline = time.monotonic() + RECONNECT_S
    pause = 0.05
    while True:
        try:
            reply: Any = connection.xread({key: after}, count=ENTRIES, block=BLOCK_MS)
            break
        except (redis.ConnectionError, redis.TimeoutError) as error:
            idle()
            if time.monotonic() > deadline:
                raise RedisUnavailable(
                    f"Redis has been away for {RECONNECT_S:.0f} s ({error}); start it again, "
                    "nothing that was queued is lost"
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
    if not reply:
        idle()
        return []
    ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
    return [_decoded(entry) for entry in entries]


def _decoded(entry: Any) -> Entry:
    entry_id, fields = entry
    return text(entry_id), {text(name): text(value) for name, value in fields.items()}


def _newest(connection: redis.Redis, key: str) -> str | None:
    entries: Any = connection.xrevrange(key, count=1)
    return text(entries[0][0]) if entries else None


def _look(connection: redis.Redis, job_id: str) -> tuple[str | None, Result | None]:
    """The stream's newest id and the result, at one moment. Raises NotFound."""
    with connection.pipeline() as pipe:
        pipe.xrevrange(keys.stream(job_id), count=1)
        pipe.get(keys.result(job_id))
        pipe.exists(RQJob.key_for(job_id))
        entries, data, queued = pipe.execute()
    if data is None and not queued:
        raise NotFound(f"there is no job {job_id[:60]!r}; it was never queued, or was removed")
    newest = text(entries[0][0]) if entries else None
    return newest, batches.read_result(data) if data is not None else None


def retold(result: Result) -> Iterator[Event]:
    """A result as the events of a whole stream. Whatever a reader has of it, this replaces."""
    yield Event(type="restart", attempt=result.attempt)
    for part, is_reasoning in ((result.thinking, True), (result.answer, False)):
        if part:
            yield Event(type="delta", text=part, is_reasoning=is_reasoning, attempt=result.attempt)
    short = msgspec.structs.replace(result, thinking=None, answer="")
    yield Event(type="done", attempt=result.attempt, result=encode_result(short).decode())
