"""Jobs that Redis drops, and readers that must not wait for them. On a real server."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import redis
from rq.job import Job as RQJob

from support.simulated_worker import SimulatedWorker, answered, some_jobs
from thinkq.client import batches, keys, losses, places, stream
from thinkq.client.client import Client
from thinkq.client.errors import JobsLost, NotFound
from thinkq.client.queue import JobQueue
from thinkq.client.settings import Settings


@pytest.fixture
def client(settings: Settings, worker: SimulatedWorker) -> Client:
    return Client(settings=settings)


def evict(connection: redis.Redis, *job_ids: str) -> None:
    """Drop the jobs as a worker leaves it when it finds that their hashes were evicted."""
    for job_id in job_ids:
        connection.delete(RQJob.key_for(job_id))
        connection.lrem("rq:queue:thinkq:normal", 1, job_id)


def test_qw_12_status_counts_jobs_that_are_not_there_any_more(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """QW-12: the batch's total is compared with what exists; other batches do not matter."""
    JobQueue(connection).submit("blost", some_jobs("lost", 5))
    JobQueue(connection).submit("bkept", some_jobs("kept", 2))
    evict(connection, "blost-2", "blost-4")
    status = client.batch("blost").status()
    assert (status.total, status.queued, status.lost, status.state) == (5, 3, 2, "queued")
    assert client.batch("bkept").status().lost == 0
    assert losses.lost_ids(connection, "blost") == ["blost-2", "blost-4"]
    worker.work()
    status = client.batch("blost").status()
    assert (status.done, status.lost, status.state) == (3, 2, "finished")


def test_qw_12_a_server_that_really_evicts_is_seen(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """QW-12: a full cache drops jobs of its own choice; each is done or lost, none waits for ever.

    What the cache has dropped of the batch's own keys makes the batch unknown, and is told so.
    """
    JobQueue(connection).submit("bevict", some_jobs("evict", 300))
    connection.config_set("maxmemory-policy", "allkeys-random")
    try:
        used = connection.info("memory")["used_memory"]
        connection.config_set("maxmemory", int(used * 0.9))
        with contextlib.suppress(redis.exceptions.OutOfMemoryError):
            for n in range(50):
                connection.set(f"other:{n}", "x" * 1000, ex=60)
    finally:
        connection.config_set("maxmemory", 0)
        connection.config_set("maxmemory-policy", "noeviction")
    ids = [f"bevict-{n}" for n in range(1, 301)]
    gone = [job_id for job_id in ids if not connection.exists(RQJob.key_for(job_id))]
    assert gone
    try:
        batch = client.batch("bevict")
    except NotFound:
        return
    seen = batch.status()
    assert seen.lost + seen.queued + seen.running + seen.ended == seen.total


def test_waiting_for_lost_jobs_ends_with_a_sentence(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """The results that are there come first; the same file submitted again runs the others."""
    jobs = some_jobs("waits for", 3)
    JobQueue(connection).submit("bwait", jobs)
    evict(connection, "bwait-2")
    worker.work()
    completed = client.batch("bwait").completed()
    assert [next(completed).job_id for _ in range(2)] == ["bwait-1", "bwait-3"]
    with pytest.raises(JobsLost, match=r"1 jobs of batch bwait are lost.*submit the same file"):
        next(completed)
    assert JobQueue(connection).submit("bwait", jobs) == 1
    status = client.batch("bwait").status()
    assert (status.total, status.queued, status.done, status.lost) == (3, 1, 2, 0)
    worker.work()
    assert len(list(client.batch("bwait").completed())) == 3


def test_waiting_for_results_that_have_expired_ends_too(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("bold", some_jobs("old", 2))
    worker.work()
    connection.delete(keys.result("bold-2"))
    with pytest.raises(JobsLost):
        list(client.batch("bold").completed())


def test_a_job_on_its_way_to_a_worker_is_not_lost(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """Neither one that was popped nor one that runs; waiting goes on."""
    JobQueue(connection).submit("bway", some_jobs("way", 2))
    popped = worker.take()
    assert popped
    running = worker.take()
    assert running
    connection.lrem("rq:queue:thinkq:normal:intermediate", 1, running[0])
    connection.zadd("rq:wip:thinkq:normal", {f"{running[0]}:e1": "inf"})
    status = client.batch("bway").status()
    assert (status.queued, status.running, status.lost, status.state) == (1, 1, 0, "running")
    quiet = iter([None])

    def idle() -> None:
        if next(quiet, "over") is None:
            return
        for taken in (popped, running):
            worker.commit(answered(*taken))
        connection.delete("rq:wip:thinkq:normal")

    assert len(list(stream.completed(connection, "bway", ["bway-1", "bway-2"], idle))) == 2


def test_following_a_lost_job_ends(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """Although its stream has begun."""
    JobQueue(connection).submit("bstream", some_jobs("stream", 1))
    worker.event("bstream-1", type="start")
    evict(connection, "bstream-1")
    with pytest.raises(NotFound, match="there is no job 'bstream-1'"):
        list(client.follow("bstream-1"))


def test_a_retry_queues_jobs_again_that_are_in_no_queue(
    connection: redis.Redis, client: Client, worker: SimulatedWorker
) -> None:
    """As when the queue itself was evicted: the jobs are there, and nobody would ever take them."""
    JobQueue(connection).submit("bstray", some_jobs("stray", 3))
    connection.delete("rq:queue:thinkq:normal", RQJob.key_for("bstray-3"))
    assert client.batch("bstray").status().lost == 3
    assert client.retry("bstray") == 2
    assert client.retry("bstray") == 0
    assert worker.work() == 2
    assert client.batch("bstray").status().lost == 1


def test_two_retries_at_once_queue_a_stray_job_once(
    connection: redis.Redis,
    client: Client,
    worker: SimulatedWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    JobQueue(connection).submit("btwice", some_jobs("stray twice", 2))
    connection.delete("rq:queue:thinkq:normal")
    other = JobQueue(connection)
    whole = JobQueue._enqueue
    raced: list[int] = []

    def overtaken(self: JobQueue, *args: Any) -> None:
        if self is not other and not raced:
            raced.append(other.retry("btwice"))
        whole(self, *args)

    monkeypatch.setattr(JobQueue, "_enqueue", overtaken)
    assert JobQueue(connection).retry("btwice") == 0
    assert raced == [2]
    assert connection.llen("rq:queue:thinkq:normal") == 2


def test_a_long_queue_is_not_looked_through(
    connection: redis.Redis, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status is instant; what is lost shows when the queue is shorter. A submission looks whole."""
    JobQueue(connection).submit("blong", some_jobs("long", 4))
    evict(connection, "blong-1")
    monkeypatch.setattr(places, "PEEK", 2)
    status = batches.status(connection, "blong")
    assert (status.queued, status.lost) == (4, 0)
    assert losses.lost_ids(connection, "blong") == ["blong-1"]
