"""Batches that are cancelled, retried and removed while a worker process is at work on them."""

from __future__ import annotations

import signal
import time

import pytest
import redis

from support import wait_until
from support.keyspace import mentions
from support.queues import (
    done_entries,
    have_results,
    job,
    leases,
    left_over,
    result,
    submit,
    worker_process,
)
from thinkq.client import batches
from thinkq.client.cancel import cancel
from thinkq.client.client import Client
from thinkq.client.errors import NotFinished
from thinkq.client.settings import Settings


def test_jobs_cancelled_one_by_one_under_a_busy_worker_have_one_result_each(
    settings: Settings, connection: redis.Redis
) -> None:
    """The worker pops from the front, the client cancels from both ends; each job ends once."""
    ids = submit(connection, "b1", *[job(1)] * 400)
    with worker_process(settings):
        wait_until(lambda: batches.status(connection, "b1").done)
        for first, last in zip(ids, reversed(ids), strict=True):
            cancel(connection, settings, first)
            cancel(connection, settings, last)
        wait_until(have_results(connection, ids), timeout=60)
    status = batches.status(connection, "b1")
    assert status.done + status.cancelled == status.ended == 400
    assert status.failed == 0
    assert done_entries(connection, ids) == [1] * 400
    kinds = [result(connection, job_id).status for job_id in ids]
    assert (kinds.count("done"), kinds.count("cancelled")) == (status.done, status.cancelled)


@pytest.mark.parametrize("again", [1, 3])
def test_a_batch_cancelled_and_retried_under_a_busy_worker_is_answered_once(
    settings: Settings, connection: redis.Redis, again: int
) -> None:
    """What is left of it after its removal: nothing, in no key, not even as a member."""
    ids = submit(connection, "b1", *[job(1)] * 200)
    client = Client(settings=settings)
    with worker_process(settings):
        wait_until(lambda: batches.status(connection, "b1").done)
        for _ in range(again):
            client.cancel("b1")
            wait_until(lambda: batches.status(connection, "b1").finished)
            client.retry("b1")
        wait_until(have_results(connection, ids), timeout=60)
        status = batches.status(connection, "b1")
        assert (status.done, status.total, status.lost) == (200, 200, 0)
        assert done_entries(connection, ids) == [1] * 200
        client.remove("b1")
        assert mentions(connection, "b1-") == []
    assert left_over(connection) == {}


def test_a_worker_killed_beside_a_cancel_leaves_one_result_for_each_job(
    settings: Settings, connection: redis.Redis
) -> None:
    """What was told to stop stops in the next worker; what was cancelled never runs."""
    ids = submit(connection, "b1", *[job(100)] * 40)
    with worker_process(settings, "--step", "0.02") as worker:
        wait_until(lambda: batches.status(connection, "b1").running)
        outcome = cancel(connection, settings, "b1")
        worker.send_signal(signal.SIGKILL)
    assert outcome.stopping
    assert outcome.cancelled + outcome.stopping + outcome.ended == 40
    with worker_process(settings, "--step", "0.02"):
        wait_until(have_results(connection, ids), timeout=60)
    assert batches.status(connection, "b1").cancelled == 40
    assert done_entries(connection, ids) == [1] * 40


def test_a_batch_whose_books_a_worker_still_closes_is_not_removed(
    settings: Settings, connection: redis.Redis
) -> None:
    """What the worker would write after the removal would stay for ever."""
    ids = submit(connection, "b1", job(1))
    with worker_process(settings, "--die-after", "Committer.commit") as worker:
        worker.wait(timeout=30)
    assert batches.status(connection, "b1").finished
    client = Client(settings=settings)
    with pytest.raises(NotFinished, match="still closes its books"):
        client.remove("b1")
    with worker_process(settings):
        wait_until(have_results(connection, ids))
        client.remove("b1")
    assert mentions(connection, "b1-") == []


def test_a_batch_can_be_removed_although_its_worker_never_comes_back(
    settings: Settings, connection: redis.Redis
) -> None:
    """A lease that has run out holds nothing."""
    submit(connection, "b1", job(1))
    with worker_process(settings, "--die-after", "Committer.commit") as worker:
        worker.wait(timeout=30)
    (lease,) = leases(connection)
    connection.zadd("rq:wip:thinkq:normal", {lease: time.time() - 1})
    Client(settings=settings).remove("b1")
    assert batches.batch_ids(connection) == []
