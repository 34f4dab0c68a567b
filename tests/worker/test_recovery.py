"""What a worker makes good when it starts, on a real server."""

from __future__ import annotations

import time

import pytest
import redis
from rq.job import Job as RQJob

from support.fake_engine import FakeEngine
from support.queues import (
    done_entries,
    have_results,
    job,
    leases,
    left_over,
    opened,
    queue,
    result,
    started,
    submit,
    tick_until,
)
from thinkq.client import batches, keys
from thinkq.client.commit import Committer
from thinkq.client.result import Result
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.settings import Settings
from thinkq.worker.books import Books
from thinkq.worker.lease import Lease
from thinkq.worker.recovery import host_id, reconcile, recover
from thinkq.worker.spool import Spool, Spooled

NORMAL = keys.QUEUES["normal"]


@pytest.fixture
def dead(settings: Settings, connection: redis.Redis) -> Books:
    """A worker of this installation that has died after it started some jobs."""
    books = Books(connection, settings, host_id(settings))
    books.beat([])
    return books


def start(books: Books, count: int = 1) -> list[Lease]:
    return [started(books) for _ in range(count)]


def answer(job_id: str) -> Result:
    return Result(job_id=job_id, status="done", finish_reason="stop", answer="spooled")


def test_orphans_go_back_to_the_front_in_their_order_within_a_second(
    settings: Settings, connection: redis.Redis, dead: Books
) -> None:
    """Started ones and one that was only popped; the dead worker disappears from all lists."""
    ids = submit(connection, "b1", *(job(1) for _ in range(20)))
    start(dead, 16)
    dead.pop(dead.queues[1])
    books = Books(connection, settings, host_id(settings))
    began = time.monotonic()
    assert recover(books, ()) == 17
    assert time.monotonic() - began < 1
    assert queue(connection).get_job_ids() == [ids[16], *ids[:16], *ids[17:]]
    assert left_over(connection) == {"normal queued": 20, "attempts": 16}
    assert Books.all_keys(connection) == []


def test_jobs_of_another_host_are_left_alone(settings: Settings, connection: redis.Redis) -> None:
    """It lives, and a job that it has popped may be about to start."""
    submit(connection, "b1", job(1), job(1))
    other = Books(connection, settings, "elsewhere")
    other.beat([])
    (lease,) = start(other)
    popped = other.pop(other.queues[1])
    books = Books(connection, settings, host_id(settings))
    assert recover(books, ()) == 0
    assert leases(connection) == [lease.member]
    assert queue(connection).intermediate_queue.get_job_ids() == [popped]
    assert Books.all_keys(connection) == [other.key]


def test_the_caller_s_own_jobs_are_left_alone(
    settings: Settings, connection: redis.Redis, dead: Books
) -> None:
    """After an outage of Redis a worker looks for what it does not know of."""
    submit(connection, "b1", job(1), job(1))
    known, unknown = start(dead, 2)
    assert recover(dead, [known.execution.id]) == 1
    assert leases(connection) == [known.member]
    assert queue(connection).get_job_ids() == [unknown.job.id]


def test_a_job_that_was_deleted_while_it_ran_is_forgotten(
    settings: Settings, connection: redis.Redis, dead: Books
) -> None:
    """There is nothing to run again."""
    submit(connection, "b1", job(1))
    (lease,) = start(dead)
    connection.delete(lease.job.key)
    assert recover(dead, ()) == 0
    assert not leases(connection)
    assert not queue(connection).get_job_ids()


def test_a_committed_job_gets_its_books_closed_and_does_not_run_again(
    settings: Settings, connection: redis.Redis, dead: Books
) -> None:
    """The worker died between the commit and RQ's books."""
    (job_id,) = submit(connection, "b1", job(1))
    (lease,) = start(dead)
    Committer(connection, settings).commit(NORMAL, lease.member, answer(job_id))
    engine = FakeEngine()
    with opened(settings, engine) as process:
        tick_until(process, have_results(connection, [job_id]))
    assert engine.added == []
    assert result(connection, job_id).answer == "spooled"
    assert RQJob.fetch(job_id, connection, MsgpackSerializer).is_finished


def test_a_spooled_result_is_committed_and_its_job_does_not_run_again(
    settings: Settings, connection: redis.Redis, dead: Books
) -> None:
    """The worker died before Redis took it."""
    (job_id,) = submit(connection, "b1", job(1))
    (lease,) = start(dead)
    spool = Spool(settings.home_path / "spool")
    spool.put(
        Spooled(job_id=job_id, queue=NORMAL, execution_id=lease.execution.id, result=answer(job_id))
    )
    engine = FakeEngine()
    with opened(settings, engine) as process:
        tick_until(process, have_results(connection, [job_id]))
    assert engine.added == []
    assert result(connection, job_id).answer == "spooled"
    assert batches.status(connection, "b1").done == 1
    assert spool.entries() == []


def test_a_spooled_result_whose_lease_is_gone_is_dropped(
    settings: Settings, connection: redis.Redis, dead: Books
) -> None:
    """Somebody else has answered, or is about to."""
    (job_id,) = submit(connection, "b1", job(1))
    (lease,) = start(dead)
    spool = Spool(settings.home_path / "spool")
    spool.put(
        Spooled(job_id=job_id, queue=NORMAL, execution_id=lease.execution.id, result=answer(job_id))
    )
    queue(connection).started_job_registry.cleanup(timestamp=2e9)
    with opened(settings) as process:
        tick_until(process, have_results(connection, [job_id]))
    assert result(connection, job_id).answer != "spooled"
    assert done_entries(connection, [job_id]) == [1]
    assert spool.entries() == []


def test_a_job_that_rq_has_failed_gets_a_result(
    settings: Settings, connection: redis.Redis
) -> None:
    """Queued by somebody else without a retry, and swept: nobody may wait for it for ever."""
    queue(connection).enqueue(keys.TASK, "no job", job_id="b1-1")
    books = Books(connection, settings, "elsewhere")
    start(books)
    queue(connection).started_job_registry.cleanup(timestamp=2e9)
    committer = Committer(connection, settings)
    for _ in range(2):
        reconcile(books, committer)
    error = result(connection, "b1-1").error
    assert error is not None
    assert error.kind == "worker_crashed"
    assert done_entries(connection, ["b1-1"]) == [1]


def test_a_failed_job_s_own_result_stays(settings: Settings, connection: redis.Redis) -> None:
    """Jobs that failed by themselves lie in the same registry of RQ."""
    (job_id,) = submit(connection, "b1", job("refuse"))
    with opened(settings) as process:
        tick_until(process, have_results(connection, [job_id]))
    books = Books(connection, settings, "elsewhere")
    reconcile(books, Committer(connection, settings))
    error = result(connection, job_id).error
    assert error is not None
    assert error.kind == "context_length_exceeded"
    assert done_entries(connection, [job_id]) == [1]


def test_a_host_keeps_its_id(settings: Settings) -> None:
    """A host's name changes with the network; the id of the installation does not."""
    first = host_id(settings)
    assert len(first) == 12
    assert host_id(settings) == first
