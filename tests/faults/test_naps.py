"""A machine that sleeps for hours in the middle of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
import redis

from support.queues import (
    events,
    gated,
    have_results,
    job,
    leases,
    opened,
    queue,
    result,
    streamed,
    submit,
    tick_until,
)
from thinkq.client import keys, workers
from thinkq.client.settings import Settings
from thinkq.worker.books import Books
from thinkq.worker.process import Process

HOURS = 3 * 3600.0
CLOCKS = pytest.mark.parametrize("clock", ["monotonic", "wall"])


@pytest.fixture(autouse=True)
def _no_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that took the sleep for a hanging model would end the tests with it."""

    def leave(code: int) -> None:
        raise AssertionError(f"the worker ended with {code}")

    monkeypatch.setattr(os, "_exit", leave)


class Sleeper:
    """A worker with a running job, on a machine that has slept."""

    def __init__(self, process: Process, job_id: str, ahead: float) -> None:
        self.process, self.job_id, self.ahead = process, job_id, ahead

    def tick(self) -> None:
        """One round after the sleep."""
        self.process.tick(time.monotonic() + self.ahead)


@contextmanager
def asleep(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch, clock: str
) -> Iterator[Sleeper]:
    """The model is in the middle of a turn. One of the clocks has gone on meanwhile.

    For Redis all leases have run out, and what RQ knew of the worker has expired.
    """
    engine = gated()
    assert engine.turns is not None
    (job_id,) = submit(connection, "b1", job(5))
    with opened(settings, engine) as process:
        engine.turns.release(2)
        tick_until(process, lambda: "t1 " in streamed(connection, job_id, reasoning=True))
        (lease,) = leases(connection)
        connection.zadd(queue(connection).started_job_registry.key, {lease: 1})
        connection.delete(*Books.all_keys(connection))
        ahead = HOURS if clock == "monotonic" else 0.0
        if clock == "wall":
            wall = time.time
            monkeypatch.setattr(time, "time", lambda: wall() + HOURS)
        yield Sleeper(process, job_id, ahead)
        engine.turns.release(100)
        tick_until(process, have_results(connection, [job_id]), ahead=ahead)
        assert engine.added == [job_id]


@CLOCKS
def test_after_a_sleep_the_heartbeat_is_the_first_thing(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """So the worker's own sweep, and anybody's after it, finds its job alive."""
    with asleep(settings, connection, monkeypatch, clock) as sleeper:
        sleeper.tick()
        assert len(leases(connection)) == 1
        queue(connection).started_job_registry.cleanup()
        assert len(leases(connection)) == 1
        (key,) = Books.all_keys(connection)
        assert connection.hexists(key, "birth")
        assert connection.ttl(key) > 0
        assert workers.registered(connection)
    assert result(connection, sleeper.job_id).attempt == 1


def test_what_was_written_to_an_expired_registration_does_not_stand_for_it(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's state was told before its heartbeat; RQ would keep that torso for ever."""
    with asleep(settings, connection, monkeypatch, "wall") as sleeper:
        assert sleeper.process._desk is not None
        books = sleeper.process._desk.books
        books.show(busy=True, line=b"{}")
        assert connection.ttl(books.key) == -1
        sleeper.tick()
        assert connection.hexists(books.key, "birth")
        assert connection.ttl(books.key) > 0


@CLOCKS
def test_a_job_that_another_host_has_ended_meanwhile_is_let_go(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """Not a word of the sleeper's reaches the stream after its `done`."""
    elsewhere = msgspec.structs.replace(settings, home=f"{settings.home}/elsewhere")
    with asleep(settings, connection, monkeypatch, clock) as sleeper:
        with opened(elsewhere) as other:
            tick_until(other, lambda: other._desk is not None)
            queue(connection).started_job_registry.cleanup()
            tick_until(other, lambda: connection.exists(keys.result(sleeper.job_id)))
        before = events(connection, sleeper.job_id)
        sleeper.tick()
        assert connection.hgetall(keys.WORKERS)
    assert events(connection, sleeper.job_id) == before
    assert result(connection, sleeper.job_id).attempt == 2
