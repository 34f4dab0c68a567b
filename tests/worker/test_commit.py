"""The fence around a result, on a real server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import redis

from support.queues import events, job, queue, result, started, submit
from thinkq.client import batches, keys
from thinkq.client.commit import NO_LEASE, Commit, Committer
from thinkq.client.result import Result, Usage
from thinkq.client.settings import Settings
from thinkq.worker.books import Books
from thinkq.worker.lease import Lease

NORMAL = keys.QUEUES["normal"]


@pytest.fixture
def lease(settings: Settings, connection: redis.Redis) -> Lease:
    """The lease of a job that a worker has just started."""
    submit(connection, "b1", job(1))
    return started(Books(connection, settings, "here"))


@pytest.fixture
def committer(settings: Settings, connection: redis.Redis) -> Committer:
    return Committer(connection, settings)


def answer(text: str, **fields: object) -> Result:
    made = Result(job_id="b1-1", status="done", finish_reason="stop", answer=text, thinking="hm")
    return msgspec.structs.replace(made, **fields)


def test_a_commit_stores_the_result_ends_the_stream_and_counts_together(
    connection: redis.Redis, committer: Committer, lease: Lease
) -> None:
    """The batch event and the `done` entry carry what a waiting client needs."""
    made = answer(
        "",
        warnings=["empty_answer"],
        finish_reason="length",
        close_reason="budget",
        usage=Usage(thinking_tokens=5, answer_tokens=2),
        attempt=2,
    )
    assert committer.commit(NORMAL, lease.member, made) is Commit.COMMITTED
    assert result(connection, "b1-1") == made
    (done,) = events(connection, "b1-1")
    assert (done.type, done.attempt) == ("done", 2)
    summary = msgspec.json.decode(done.result, type=Result)
    assert summary == msgspec.structs.replace(made, thinking=None)
    status = batches.status(connection, "b1")
    assert (status.done, status.empty, status.length) == (1, 1, 1)
    assert (status.thinking_tokens, status.answer_tokens) == (5, 2)
    assert status.closes == {"budget": 1}
    entries: Any = connection.xrange(keys.batch_events("b1"))
    ((_, event),) = entries
    assert event == {
        b"job_id": b"b1-1",
        b"status": b"done",
        b"finish_reason": b"length",
        b"empty": b"1",
    }


def test_a_worker_that_lost_its_lease_stores_nothing(
    connection: redis.Redis, committer: Committer, lease: Lease
) -> None:
    """The lease is the member in RQ's registry, and nothing else proves it."""
    connection.zrem(lease.queue.started_job_registry.key, lease.member)
    before = sorted(connection.keys())
    assert committer.commit(NORMAL, lease.member, answer("late")) is Commit.LOST
    assert sorted(connection.keys()) == before
    assert batches.status(connection, "b1").ended == 0


def test_somebody_elses_lease_on_the_job_is_not_ours(
    connection: redis.Redis, committer: Committer, lease: Lease
) -> None:
    """The same job, another execution."""
    assert committer.commit(NORMAL, "b1-1:other", answer("late")) is Commit.LOST
    assert not connection.exists(keys.result("b1-1"))


@pytest.mark.parametrize("second", ["same lease", "no lease"])
def test_the_first_result_stays_whoever_commits_again(
    connection: redis.Redis, committer: Committer, lease: Lease, second: str
) -> None:
    """One result, one `done` entry, one count: a commit whose reply was lost can be made again."""
    committer.commit(NORMAL, lease.member, answer("first"))
    member = lease.member if second == "same lease" else NO_LEASE
    assert committer.commit(NORMAL, member, answer("second")) is Commit.KNOWN
    assert result(connection, "b1-1").answer == "first"
    assert len(events(connection, "b1-1")) == 1
    assert connection.xlen(keys.batch_events("b1")) == 1
    assert batches.status(connection, "b1").done == 1


def test_a_removed_batch_does_not_come_back(
    connection: redis.Redis, committer: Committer, lease: Lease
) -> None:
    """Nor does a job that belongs to none make one."""
    connection.delete(keys.batch("b1"))
    assert committer.commit(NORMAL, lease.member, answer("x")) is Commit.COMMITTED
    assert not connection.exists(keys.batch("b1"), keys.batch_events("b1"))


def test_a_full_server_takes_nothing_of_a_result(
    connection: redis.Redis, committer: Committer, lease: Lease
) -> None:
    """The script has no half: what a full server would still allow comes after what it refuses."""
    connection.sadd(keys.CANCELLED, "b1-1")
    before = sorted(connection.keys())
    connection.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            committer.commit(NORMAL, lease.member, answer("x"))
    finally:
        connection.config_set("maxmemory", 0)
    assert sorted(connection.keys()) == before
    assert connection.sismember(keys.CANCELLED, "b1-1")
    assert queue(connection).started_job_registry.get_job_ids(cleanup=False) == ["b1-1"]
