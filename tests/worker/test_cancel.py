"""A cancel and the worker at the same jobs, on a real server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import redis
from rq.job import Job as RQJob
from rq.job import JobStatus
from rq.worker import Worker

from support.fake_engine import FakeEngine
from support.queues import (
    done_entries,
    gated,
    have_results,
    job,
    leases,
    left_over,
    opened,
    queue,
    result,
    started,
    streamed,
    submit,
    tick_until,
    worker_process,
)
from thinkq.client import batches, keys
from thinkq.client.cancel import Cancellation, cancel
from thinkq.client.commit import Committer
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.settings import Settings
from thinkq.worker.books import Books
from thinkq.worker.lease import Lease
from thinkq.worker.recovery import host_id, reconcile


class Killed(Exception):
    """Stands for the worker's death."""


def failures(connection: redis.Redis) -> int:
    """Jobs that the one worker has counted as failed in RQ's books."""
    (worker,) = Worker.all(connection=connection, serializer=MsgpackSerializer)
    return int(worker.failed_job_count)


def assert_canceled(connection: redis.Redis, job_id: str) -> None:
    """RQ's books, ours, and the batch's counts say the same."""
    rq_queue = queue(connection)
    rq_job = RQJob.fetch(job_id, connection=connection, serializer=MsgpackSerializer)
    assert rq_job.get_status() == JobStatus.CANCELED
    assert rq_queue.canceled_job_registry.get_job_ids(cleanup=False) == [job_id]
    assert rq_queue.failed_job_registry.get_job_ids(cleanup=False) == []
    assert result(connection, job_id).status == "cancelled"
    assert done_entries(connection, [job_id]) == [1]
    assert batches.status(connection, keys.batch_of(job_id)).cancelled == 1
    assert left_over(connection) == {}


def test_a_job_that_was_popped_and_not_begun_is_cancelled_and_never_runs(
    settings: Settings, connection: redis.Redis
) -> None:
    """It is in RQ's intermediate queue; the worker finds it canceled and lets go of it."""
    ids = submit(connection, "b1", job(1), job(1))
    books = Books(connection, settings, "here")
    popped = books.pop(books.queues[1])
    assert popped == ids[0]
    assert cancel(connection, settings, ids[0]) == Cancellation(cancelled=1)
    assert books.popped(books.queues[1], popped) is None
    engine = gated()
    assert engine.turns is not None
    engine.turns.release(100)
    with opened(settings, engine) as process:
        tick_until(process, have_results(connection, ids))
        assert failures(connection) == 0
    assert engine.added == ids[1:]
    assert_canceled(connection, ids[0])


def test_a_cancel_in_the_moment_of_the_start_wins_and_is_no_failure(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has read the job as queued, and opens its execution after the cancel."""
    (job_id,) = submit(connection, "b1", job(1))
    fetch = Books._fetch

    def overtaken(self: Books, id: str) -> RQJob | None:
        found = fetch(self, id)
        cancel(connection, settings, id)
        return found

    monkeypatch.setattr(Books, "_fetch", overtaken)
    engine = gated()
    with opened(settings, engine) as process:
        tick_until(process, have_results(connection, [job_id]))
        assert failures(connection) == 0
    assert engine.added == []
    assert_canceled(connection, job_id)


def test_a_worker_that_dies_in_the_moment_of_such_a_start_leaves_nothing_behind(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution is open, the result is there, and the next worker finds both."""
    (job_id,) = submit(connection, "b1", job(1))
    dead = Books(connection, settings, host_id(settings))
    fetch = Books._fetch

    def overtaken(self: Books, id: str) -> RQJob | None:
        found = fetch(self, id)
        if self is dead:
            cancel(connection, settings, id)
        return found

    monkeypatch.setattr(Books, "_fetch", overtaken)
    lease = started(dead)
    assert (lease.job.id, lease.answered) == (job_id, True)
    with opened(settings) as process:
        tick_until(process, have_results(connection, [job_id]))
        assert failures(connection) == 0
    assert_canceled(connection, job_id)


def test_a_worker_that_dies_once_its_books_are_closed_has_left_nothing_open(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks at such a job again, so nothing may come after the last step."""
    (job_id,) = submit(connection, "b1", job(1))
    books = Books(connection, settings, "here")
    lease = started(books)
    assert lease.job.id == job_id
    close = Books._close_cancelled

    def dies_after(self: Books, lease: Lease) -> None:
        close(self, lease)
        raise Killed

    monkeypatch.setattr(Books, "_close_cancelled", dies_after)
    with pytest.raises(Killed):
        books.close_answered(lease, "cancelled")
    assert left_over(connection) == {}


def test_qw_05_a_cancelled_batch_stops_what_runs_and_ends_what_waits(
    settings: Settings, connection: redis.Redis
) -> None:
    """QW-05: the running job keeps its partial text, the next job starts."""
    ids = submit(connection, "b1", *[job(1_000_000)] * 8)
    engine = FakeEngine(max_batch=2, step_s=0.002)
    with opened(settings, engine) as process:
        tick_until(process, lambda: "t2 " in streamed(connection, ids[0], reasoning=True))
        held = len(leases(connection))  # in a row, or waiting for one
        outcome = Cancellation(cancelled=8 - held, stopping=held)
        assert cancel(connection, settings, "b1") == outcome
        tick_until(process, have_results(connection, ids), timeout=2)
        (next_id,) = submit(connection, "b2", job(1))
        tick_until(process, have_results(connection, [next_id]))
    assert result(connection, ids[0]).thinking
    assert result(connection, ids[0]).finish_reason == "cancelled"
    assert engine.added[-1] == next_id
    assert batches.status(connection, "b1").cancelled == 8
    assert done_entries(connection, ids) == [1] * 8
    assert left_over(connection) == {}


def test_a_cancel_that_the_worker_is_told_of_too_late_does_nothing(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is committed first; the cancel finds it, and nothing stays to be carried out."""
    (job_id,) = submit(connection, "b1", job(1))
    commit = Committer.commit
    outcomes: list[Cancellation] = []

    def then_cancel(*arguments: Any) -> Any:
        done = commit(*arguments)
        outcomes.append(cancel(connection, settings, job_id))
        return done

    monkeypatch.setattr(Committer, "commit", then_cancel)
    with opened(settings) as process:
        tick_until(process, have_results(connection, [job_id]))
    assert outcomes == [Cancellation(ended=1)]
    assert result(connection, job_id).status == "done"
    assert left_over(connection) == {}


def test_a_job_that_was_cancelled_with_a_tool_of_rq_gets_its_result(
    settings: Settings, connection: redis.Redis
) -> None:
    """rq-dashboard and RQ's own API know nothing of results; the reconciler gives it one."""
    (job_id,) = submit(connection, "b1", job(1, custom_id="mine"))
    RQJob.fetch(job_id, connection=connection, serializer=MsgpackSerializer).cancel()
    assert batches.status(connection, "b1").lost == 1
    reconcile(Books(connection, settings, "here"), Committer(connection, settings))
    assert result(connection, job_id).custom_id == "mine"
    assert_canceled(connection, job_id)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_qw_12_a_worker_does_not_start_on_a_redis_that_drops_jobs(
    settings: Settings, connection: redis.Redis, policy: str
) -> None:
    """QW-12: a shared cache is the common home set-up. The worker says what to do, and ends."""
    connection.config_set("maxmemory-policy", policy)
    try:
        with worker_process(settings) as worker:
            _, err = worker.communicate(timeout=30)
    finally:
        connection.config_set("maxmemory-policy", "noeviction")
    assert worker.returncode == 1
    assert f"maxmemory-policy {policy}" in err
    assert "allow_eviction = true" in err
    assert "Traceback" not in err


def test_qw_12_whoever_insists_may_use_such_a_redis(
    settings: Settings, connection: redis.Redis
) -> None:
    """QW-12: with `allow_eviction` the worker works."""
    connection.config_set("maxmemory-policy", "allkeys-lru")
    try:
        ids = submit(connection, "b1", job(1))
        with opened(msgspec.structs.replace(settings, allow_eviction=True)) as process:
            tick_until(process, have_results(connection, ids))
    finally:
        connection.config_set("maxmemory-policy", "noeviction")
