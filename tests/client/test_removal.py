"""Removing, retrying and expiring batches, on a real server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import redis
from rq.job import Job as RQJob

from support import wait_until
from support.keyspace import mentions
from support.simulated_worker import SimulatedWorker, answered, some_jobs
from thinkq.client import batches, keys
from thinkq.client.client import Client
from thinkq.client.commit import NO_LEASE, Committer
from thinkq.client.errors import NotFinished, NotFound
from thinkq.client.queue import JobQueue
from thinkq.client.settings import Settings


@pytest.fixture
def client(settings: Settings, worker: SimulatedWorker) -> Client:
    return Client(settings=settings)


def test_nothing_of_a_removed_batch_remains_anywhere(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """No key, no member, no field: whatever way its jobs have ended. Others keep theirs."""
    JobQueue(connection).submit("bstays", some_jobs("stays", 1))
    client.cancel("bstays")
    before = mentions(connection, "bstays")
    JobQueue(connection).submit("bgoes", some_jobs("goes", 4))
    taken = worker.take()
    assert taken
    worker.commit(answered(*taken))
    client.cancel("bgoes")
    for registry in ("finished", "failed"):
        connection.zadd(f"rq:{registry}:thinkq:normal", {"bgoes-1": 1.0})
    connection.hset(keys.ATTEMPTS, "bgoes-1", 1)
    connection.sadd(keys.CANCELLED, "bgoes-1")
    connection.xadd("rq:results:bgoes-1", {"type": "1"})
    connection.set("rq:queue:thinkq:normal:intermediate:first_seen:bgoes-1", "1")
    client.remove("bgoes")
    assert mentions(connection, "bgoes") == []
    assert mentions(connection, "bstays") == before


def test_a_batch_that_has_not_ended_is_refused_and_says_what_to_do(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("bopen", some_jobs("open", 3))
    with pytest.raises(NotFinished, match=r"3 jobs that have not ended.*thinkq cancel bopen"):
        client.remove("bopen")
    with pytest.raises(NotFound):
        client.remove("bnone")


def test_a_batch_with_lost_jobs_can_be_removed(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("blose", some_jobs("lose", 2))
    connection.delete("rq:queue:thinkq:normal")
    client.remove("blose")
    assert mentions(connection, "blose") == []


def test_retry_runs_again_what_has_no_answer_from_what_redis_has(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """Failed, cancelled and empty jobs, in their own priority; no file is read."""
    jobs = some_jobs("retry", 5)
    jobs[3].priority = "low"
    JobQueue(connection).submit("bagain", jobs)
    client.cancel("bagain-5")
    fates: dict[str, dict[str, Any]] = {
        "bagain-2": {"answer": ""},
        "bagain-3": {"answer": "", "status": "failed", "finish_reason": "error"},
    }
    worker.work(lambda job_id, job: answered(job_id, job, **fates.get(job_id, {})))
    assert client.retry("bagain") == 3
    status = client.batch("bagain").status()
    assert (status.done, status.queued, status.empty, status.state) == (2, 3, 0, "queued")
    assert status.closes == {"natural": 2}
    assert worker.payload("bagain-3") == jobs[3]
    assert connection.lrange("rq:queue:thinkq:low", 0, -1) == [b"bagain-3"]
    assert worker.work() == 3
    assert client.batch("bagain").status().done == 5
    assert client.retry("bagain") == 0


def test_a_retry_leaves_alone_what_redis_no_longer_has(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("bfaded", some_jobs("faded", 2))
    client.cancel("bfaded")
    connection.delete(RQJob.key_for("bfaded-1"))
    assert client.retry("bfaded") == 1
    status = client.batch("bfaded").status()
    assert (status.cancelled, status.queued) == (1, 1)
    with pytest.raises(NotFound):
        client.retry("bnone")


def test_with_retention_a_batch_goes_with_its_last_result(
    connection: redis.Redis, settings: Settings, worker: SimulatedWorker
) -> None:
    """Its keys, its place in the list of batches, and RQ's jobs. Not while jobs have not ended."""
    short = msgspec.structs.replace(settings, retention_s=2, stream_ttl_s=1)
    client = Client(settings=short)
    JobQueue(connection, 2).submit("bfades", some_jobs("fades", 3))
    client.cancel("bfades-1")
    assert connection.ttl(keys.batch("bfades")) == -1
    committer = Committer(connection, short)
    for job_id in ("bfades-2", "bfades-3"):
        taken = worker.take()
        assert taken
        connection.lrem("rq:queue:thinkq:normal:intermediate", 1, job_id)
        connection.expire(RQJob.key_for(job_id), 2)  # as RQ does at a job's end
        committer.commit("thinkq:normal", NO_LEASE, answered(*taken))
    batch_keys = (keys.batch, keys.batch_jobs, keys.batch_events)
    assert all(connection.ttl(key("bfades")) > 0 for key in batch_keys)
    assert "bfades" in batches.batch_ids(connection)
    wait_until(lambda: not connection.exists(keys.batch("bfades")), timeout=5)
    assert "bfades" not in batches.batch_ids(connection)
    wait_until(lambda: mentions(connection, "bfades") == ["rq:canceled:thinkq:normal"], timeout=5)
    JobQueue(connection, 2).submit("bnext", some_jobs("next", 1))
    client.cancel("bnext")
    wait_until(lambda: "rq:canceled:thinkq:normal" not in mentions(connection, "bfades"))


def test_a_finished_batch_that_gets_new_work_does_not_expire(
    connection: redis.Redis, settings: Settings, worker: SimulatedWorker
) -> None:
    """By a retry, or by a submission that adds jobs."""
    short = msgspec.structs.replace(settings, retention_s=100)
    client = Client(settings=short)
    jobs = some_jobs("stays on", 3)
    JobQueue(connection, 100).submit("bon", {1: jobs[1], 2: jobs[2]})
    client.cancel("bon")
    assert connection.ttl(keys.batch("bon")) == 100
    assert client.retry("bon") == 2
    assert connection.ttl(keys.batch("bon")) == -1
    client.cancel("bon")
    assert JobQueue(connection, 100).submit("bon", jobs) == 1
    assert connection.ttl(keys.batch("bon")) == connection.ttl(keys.batch_jobs("bon")) == -1


def test_without_retention_only_streams_expire(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("bever", some_jobs("ever", 1))
    client.cancel("bever")
    assert {key for key in mentions(connection, "bever") if connection.ttl(key) != -1} == {
        keys.stream("bever-1")
    }
