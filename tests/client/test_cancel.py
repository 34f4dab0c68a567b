"""Cancelling jobs that wait, on a real server."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from rq.job import Job as RQJob
from rq.job import JobStatus

from support.keyspace import mentions
from support.simulated_worker import SimulatedWorker, answered, some_jobs
from thinkq.client import batches, cancel, keys
from thinkq.client.cancel import Cancellation
from thinkq.client.client import Client
from thinkq.client.errors import NotFound, RedisUnavailable
from thinkq.client.queue import JobQueue
from thinkq.client.result import cancelled_result
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.settings import Settings


@pytest.fixture
def client(settings: Settings, worker: SimulatedWorker) -> Client:
    return Client(settings=settings)


def queued_ids(connection: redis.Redis) -> list[str]:
    return [batches.text(id) for id in connection.lrange("rq:queue:thinkq:normal", 0, -1)]


def rq_job(connection: redis.Redis, job_id: str) -> RQJob:
    return RQJob.fetch(job_id, connection=connection, serializer=MsgpackSerializer)


class Killed(Exception):
    """Stands for the client's death."""


def test_jobs_that_wait_end_at_once_with_their_labels(
    connection: redis.Redis, client: Client
) -> None:
    """Result, stream, event and counts are those of any job that has ended."""
    client_jobs = some_jobs("waits", 3, metadata={"page": 7})
    JobQueue(connection).submit("bwaits", client_jobs)
    assert client.cancel("bwaits") == Cancellation(cancelled=3)
    assert queued_ids(connection) == []
    expected = [cancelled_result(f"bwaits-{n}", f"c{n}", {"page": 7}) for n in (1, 2, 3)]
    assert list(client.batch("bwaits").results()) == expected
    assert [result.job_id for result in client.batch("bwaits").completed()] == [
        f"bwaits-{n}" for n in (1, 2, 3)
    ]
    assert [event.type for event in client.follow("bwaits-2")] == ["done"]
    status = client.batch("bwaits").status()
    assert (status.cancelled, status.queued, status.state) == (3, 0, "finished")
    assert connection.xlen(keys.batch_events("bwaits")) == 3


def test_rq_holds_them_for_canceled(connection: redis.Redis, client: Client) -> None:
    """Its own tools show what its own `Job.cancel` would have left."""
    JobQueue(connection).submit("brq", some_jobs("rq", 2))
    client.cancel("brq-1")
    rq_job(connection, "brq-2").cancel()
    assert rq_job(connection, "brq-1").get_status() == JobStatus.CANCELED
    canceled: Any = connection.zrange("rq:canceled:thinkq:normal", 0, -1, withscores=True)
    scores = {batches.text(job_id): score for job_id, score in canceled}
    assert scores["brq-1"] == pytest.approx(scores["brq-2"], abs=5)


def test_one_job_leaves_the_others_in_their_order(connection: redis.Redis, client: Client) -> None:
    JobQueue(connection).submit("bone", some_jobs("one", 4))
    JobQueue(connection).submit("bother", some_jobs("other", 1))
    assert client.cancel("bone-2") == Cancellation(cancelled=1)
    assert queued_ids(connection) == ["bone-1", "bone-3", "bone-4", "bother-1"]
    assert client.cancel("bone-2") == Cancellation(ended=1)


def test_all_priorities_of_a_batch_are_cancelled(connection: redis.Redis, client: Client) -> None:
    jobs = some_jobs("mixed", 3)
    jobs[1].priority, jobs[3].priority = "high", "low"
    JobQueue(connection).submit("bmixed", jobs)
    assert client.cancel("bmixed").cancelled == 3
    assert connection.zscore("rq:canceled:thinkq:high", "bmixed-1")
    assert connection.zscore("rq:canceled:thinkq:low", "bmixed-3")


def test_a_result_that_is_there_wins_and_a_running_job_is_told_to_stop(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("bsome", some_jobs("some", 4))
    ended, running, _, _ = (worker.take() for _ in range(4))
    assert ended
    assert running
    worker.commit(answered(*ended))
    connection.hset(RQJob.key_for(running[0]), "status", "started")
    connection.delete(RQJob.key_for("bsome-3"))
    assert client.cancel("bsome") == Cancellation(cancelled=1, stopping=1, ended=1, lost=1)
    assert connection.smembers(keys.CANCELLED) == {b"bsome-2"}
    assert client.result("bsome-1").answer == "42"
    assert batches.find_result(connection, "bsome-2") is None
    connection.srem(keys.CANCELLED, "bsome-2")


def test_a_client_killed_before_it_takes_the_ids_off_the_queue_loses_nothing(
    connection: redis.Redis, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job has its result and is still queued; the same command again finishes the work."""
    JobQueue(connection).submit("bkill", some_jobs("kill", 3))

    def dies(*_: object) -> int:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(cancel, "drop_ended", dies)
        with pytest.raises(Killed):
            client.cancel("bkill")
    assert client.batch("bkill").status().cancelled == 3
    assert len(queued_ids(connection)) == 3
    assert client.cancel("bkill") == Cancellation(ended=3)
    assert queued_ids(connection) == []
    assert client.batch("bkill").status().cancelled == 3


def test_a_retry_after_such_a_death_queues_each_job_once(
    connection: redis.Redis, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    JobQueue(connection).submit("btwo", some_jobs("two", 3))
    with monkeypatch.context() as patch:
        patch.setattr(cancel, "drop_ended", lambda *_: 0)
        client.cancel("btwo")
    assert client.retry("btwo") == 3
    assert queued_ids(connection) == ["btwo-1", "btwo-2", "btwo-3"]
    assert mentions(connection, "btwo-1").count("rq:canceled:thinkq:normal") == 0


def test_a_reader_of_an_earlier_attempt_is_told_to_drop_its_text(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """The job was given back by a worker; the stream still adds up to the empty result."""
    JobQueue(connection).submit("bback", some_jobs("back", 1))
    worker.event("bback-1", type="start", attempt="2")
    worker.event("bback-1", type="delta", attempt="2", is_reasoning="1", text="hm")
    connection.hset(keys.ATTEMPTS, "bback-1", 2)
    client.cancel("bback")
    seen = list(client.follow("bback-1"))
    assert [event.type for event in seen] == ["start", "delta", "restart", "done"]
    assert client.result("bback-1").attempt == 2
    assert not connection.hexists(keys.ATTEMPTS, "bback-1")


def test_a_full_server_cancels_nothing_of_a_job(connection: redis.Redis, client: Client) -> None:
    """All or nothing, for every job of the one script."""
    JobQueue(connection).submit("bfull", some_jobs("full", 3))
    connection.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisUnavailable, match="refused"):
            client.cancel("bfull")
    finally:
        connection.config_set("maxmemory", 0)
    assert client.batch("bfull").status().queued == 3
    assert rq_job(connection, "bfull-1").get_status() == JobStatus.QUEUED
    assert client.cancel("bfull").cancelled == 3


def test_what_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(NotFound, match="no batch and no job 'bnone-1'"):
        client.cancel("bnone-1")
