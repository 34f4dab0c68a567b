"""What goes on just now, for people who watch. A Redis that is away is nobody's concern here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import redis

from thinkq.client import keys
from thinkq.client.batches import text
from thinkq.client.render import one_line
from thinkq.client.running import running_jobs
from thinkq.client.workers import tokens_per_s, workers

FRESH_S: Final = 0.5
"""What was read is shown for so long."""
TAILS: Final = 6
"""Jobs whose text is shown."""
ENTRIES: Final = 64
"""Entries of a stream that are read for its last line."""
NAME: Final = 24
"""Characters of a job's name."""

Value = TypeVar("Value")


class Tail(NamedTuple):
    """The end of what a job has written so far, in one line."""

    name: str
    text: str
    is_reasoning: bool


def unknown() -> None:
    """The speed that nobody can tell."""


def nobody() -> Sequence[Tail]:
    """No jobs to show."""
    return ()


class Recent(Generic[Value]):
    """A value that is read at most twice a second; the old one while it cannot be read."""

    def __init__(self, read: Callable[[], Value], first: Value) -> None:
        self._read, self._value = read, first
        self._next = 0.0

    def __call__(self) -> Value:
        """The value."""
        if time.monotonic() >= self._next:
            with contextlib.suppress(redis.RedisError):
                self._value = self._read()
            self._next = time.monotonic() + FRESH_S
        return self._value


def speed(connection: redis.Redis) -> Callable[[], float | None]:
    """Tokens per second of all workers, as they say themselves."""
    return Recent[float | None](lambda: tokens_per_s(workers(connection)) or None, None)


def tails(connection: redis.Redis, batch: str) -> Callable[[], Sequence[Tail]]:
    """What the jobs of the batch that have run longest are writing."""
    return Recent[Sequence[Tail]](lambda: _tails(connection, batch), ())


def _tails(connection: redis.Redis, batch: str) -> Sequence[Tail]:
    jobs = [job for job in running_jobs(connection) if job.batch == batch][:TAILS]
    with connection.pipeline(transaction=False) as pipe:
        for job in jobs:
            pipe.xrevrange(keys.stream(job.job_id), count=ENTRIES)
        streams = pipe.execute()
    found = []
    for job, entries in zip(jobs, streams, strict=True):
        if told := _last(entries):
            name = one_line(job.custom_id or job.job_id)[:NAME]
            found.append(Tail(name, one_line(told[0]), told[1]))
    return found


def _last(entries: list[Any]) -> tuple[str, bool] | None:
    """The text of the last run of deltas (they come newest first), and whether it is thinking."""
    pieces: list[str] = []
    side = None
    for _, fields in entries:
        if fields[b"type"] != b"delta" or side not in (None, fields[b"is_reasoning"]):
            break
        side = fields[b"is_reasoning"]
        pieces.append(text(fields[b"text"]))
    return ("".join(reversed(pieces)), side == b"1") if pieces else None
