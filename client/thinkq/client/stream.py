"""Follow a job or a batch as it runs. Readers block in Redis for a second at a time, none polls.

What is read, and what it means, stands here once as scripts (steps.py) for every kind of client.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import redis
from rq.job import Job as RQJob

from thinkq.client import batches, keys
from thinkq.client.batches import text
from thinkq.client.errors import NotFound
from thinkq.client.events import Event, parse_event
from thinkq.client.losses import refuse_lost
from thinkq.client.result import Result, encode_result
from thinkq.client.steps import Ask, Call, Command, Idle, Script, drive, nothing, patient

BLOCK_MS: Final = 1000
ENTRIES: Final = 500
"""A read returns at most so many entries, or none after so many milliseconds."""

BEGINNING: Final = "0-0"

T = TypeVar("T")

Entry = tuple[str, dict[str, str]]


class BatchEvent(msgspec.Struct, frozen=True):
    """One job of a batch has ended."""

    id: str
    job_id: str
    status: str
    finish_reason: str
    empty: bool


def follow(
    connection: redis.Redis, job_id: str, after: str = BEGINNING, idle: Idle = nothing
) -> Iterator[Event]:
    """`job_events`. `idle` is called at each quiet second, and ends the following by raising."""
    return read(connection, job_events(job_id, after), idle)


def follow_batch(
    connection: redis.Redis, batch: str, after: str = BEGINNING, idle: Idle = nothing
) -> Iterator[BatchEvent]:
    """`batch_events`; `idle` as in `follow`."""
    return read(connection, batch_events(batch, after), idle)


def completed(
    connection: redis.Redis, batch: str, job_ids: Iterable[str], idle: Idle = nothing
) -> Iterator[Result]:
    """`ended_results`; `idle` as in `follow`."""
    return read(connection, ended_results(batch, job_ids), idle)


def read(connection: redis.Redis, script: Script[T], idle: Idle = nothing) -> Iterator[T]:
    """What the script finds out, from a server that may be restarted meanwhile."""
    return drive(patient(connection, idle), script, idle)


def job_events(job_id: str, after: str = BEGINNING) -> Script[Event]:
    """The events of a job, from after an entry id up to `done`.

    Entries of an attempt older than the newest are left out. If the stream has expired, the stored
    result is told as events, beginning with `restart`. Raises NotFound and RedisUnavailable.
    """
    attempt = 0
    while True:
        entries = yield from _entries(keys.stream(job_id), after)
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
            newest, result = yield from _look(job_id)
            if newest == after and result:
                return
            if newest is None and result:
                yield from retold(result)
                return


def batch_events(batch: str, after: str = BEGINNING) -> Script[BatchEvent]:
    """The jobs of a batch as they end, without an end of its own; the caller knows when to stop.

    Raises NotFound when the batch is not there, or is removed.
    """
    while True:
        for event in (yield from _batch_events(batch, after)):
            after = event.id
            yield event


def stored_results(job_ids: Iterable[str]) -> Script[Result]:
    """The results of those jobs that have one, in the order of the ids."""
    for chunk in batches.chunked(job_ids):
        yield from (yield from _stored(chunk))


def ended_results(batch: str, job_ids: Iterable[str]) -> Script[Result]:
    """The results of those jobs, each once: first all that are there, then each as its job ends.

    Raises JobsLost when none that is missing can come any more.
    """
    ids = list(job_ids)
    waiting = set(ids)
    # Taken before the results are read: what ends from now on is an event after it.
    newest = _id((yield Ask((_newest(keys.batch_events(batch)),)))) or BEGINNING
    for chunk in batches.chunked(ids):
        for result in (yield from _stored(chunk)):
            waiting.discard(result.job_id)
            yield result
    while waiting:
        events = yield from _batch_events(batch, newest)
        if not events:
            yield Call(partial(refuse_lost, batch=batch, waiting=waiting))
            continue
        newest = events[-1].id
        ended = dict.fromkeys(event.job_id for event in events if event.job_id in waiting)
        for result in (yield from _stored(list(ended))):
            waiting.discard(result.job_id)
            yield result


def result_when_ended(job_id: str, check: Callable[[], None] = nothing) -> Script[Result]:
    """The job's result, once there is one; of what the job writes meanwhile only the news is read.

    `check` is called at least once a second, and ends the waiting by raising. Raises NotFound.
    """
    while True:
        newest, result = yield from _look(job_id)
        if result:
            yield result
            return
        after = newest or BEGINNING
        while entries := (yield from _entries(keys.stream(job_id), after)):
            check()
            after, fields = entries[-1]
            if fields["type"] == "done":
                break
        else:
            check()


def _entries(key: str, after: str) -> Generator[Ask, Any, list[Entry]]:
    """The next entries of a stream; none after a quiet second."""
    command = ("XREAD", "COUNT", ENTRIES, "BLOCK", BLOCK_MS, "STREAMS", key, after)
    reply = yield Ask((command,), waits=True)
    if not reply:
        return []
    ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
    return [_decoded(entry) for entry in entries]


def _batch_events(batch: str, after: str) -> Generator[Ask, Any, list[BatchEvent]]:
    """The next jobs that have ended; none after a quiet second. Raises NotFound."""
    entries = yield from _entries(keys.batch_events(batch), after)
    if not entries and not (yield Ask((("EXISTS", keys.batch(batch)),))):
        raise batches.no_batch(batch)
    return [
        BatchEvent(
            id=entry_id,
            job_id=fields["job_id"],
            status=fields["status"],
            finish_reason=fields["finish_reason"],
            empty=fields["empty"] == "1",
        )
        for entry_id, fields in entries
    ]


def _stored(job_ids: list[str]) -> Generator[Ask, Any, list[Result]]:
    """The results of those jobs that have one."""
    if not job_ids:
        return []
    stored = yield Ask((("MGET", *map(keys.result, job_ids)),))
    return [batches.read_result(data) for data in stored if data is not None]


def _look(job_id: str) -> Generator[Ask, Any, tuple[str | None, Result | None]]:
    """The stream's newest id and the result, at one moment. Raises NotFound."""
    entries, data, queued = yield Ask(
        (
            _newest(keys.stream(job_id)),
            ("GET", keys.result(job_id)),
            ("EXISTS", RQJob.key_for(job_id)),
        )
    )
    if data is None and not queued:
        raise NotFound(f"there is no job {job_id[:60]!r}; it was never queued, or was removed")
    return _id(entries), batches.read_result(data) if data is not None else None


def _newest(key: str) -> Command:
    return ("XREVRANGE", key, "+", "-", "COUNT", 1)


def _id(entries: Any) -> str | None:
    return text(entries[0][0]) if entries else None


def _decoded(entry: Any) -> Entry:
    entry_id, fields = entry
    return text(entry_id), {text(name): text(value) for name, value in fields.items()}


def retold(result: Result) -> Iterator[Event]:
    """A result as the events of a whole stream. Whatever a reader has of it, this replaces."""
    yield Event(type="restart", attempt=result.attempt)
    for part, is_reasoning in ((result.thinking, True), (result.answer, False)):
        if part:
            yield Event(type="delta", text=part, is_reasoning=is_reasoning, attempt=result.attempt)
    short = msgspec.structs.replace(result, thinking=None, answer="")
    yield Event(type="done", attempt=result.attempt, result=encode_result(short).decode())
