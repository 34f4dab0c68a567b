"""Several workers on one Redis, each a process with a host id and a data directory of its own."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import msgspec
import pytest
import redis
from rq.job import Job as RQJob
from rq.results import Result as RQResult

from support import wait_until
from support.queues import (
    done_entries,
    have_results,
    job,
    leases,
    left_over,
    queue,
    result,
    started,
    streamed,
    submit,
    worker_process,
)
from thinkq.client import keys
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.settings import Settings
from thinkq.client.workers import workers
from thinkq.worker.books import Books


@pytest.fixture
def hosts(settings: Settings, tmp_path: Path) -> list[Settings]:
    """Two hosts with three rows each, one of which is kept for high priority."""
    return [
        msgspec.structs.replace(
            settings, home=str(tmp_path / name), max_batch=3, heartbeat_s=0.2, lease_s=1.0
        )
        for name in ("one", "other")
    ]


def test_a_worker_that_was_stopped_past_its_lease_changes_nothing_when_it_wakes(
    connection: redis.Redis, hosts: list[Settings]
) -> None:
    """SIGSTOP, another host takes the job over and ends it, SIGCONT; then the sleeper works on."""
    (job_id,) = submit(connection, "b1", job(60))
    with worker_process(hosts[0], "--step", "0.02") as sleeper:
        wait_until(lambda: "t2 " in streamed(connection, job_id, reasoning=True))
        sleeper.send_signal(signal.SIGSTOP)
        with worker_process(hosts[1]) as other:
            wait_until(have_results(connection, [job_id]))
            before = _all_of(connection, job_id)
            sleeper.send_signal(signal.SIGCONT)
            wait_until(lambda: [w.rows for w in workers(connection) if w.pid == sleeper.pid] == [0])
            other.terminate()
            other.wait(5)
        assert _all_of(connection, job_id) == before
        assert connection.ttl(keys.stream(job_id)) > 0
        assert result(connection, job_id).attempt == 2
        assert not left_over(connection)
        (after,) = submit(connection, "b2", job(1))
        wait_until(have_results(connection, [after]))
    assert done_entries(connection, [job_id, after]) == [1, 1]


def test_jobs_spread_by_free_rows_and_a_dead_host_s_jobs_are_taken_over(
    connection: redis.Redis, hosts: list[Settings]
) -> None:
    """The host never comes back; its jobs wait for the end of their leases and no longer."""
    ids = submit(connection, "b1", *(job(100) for _ in range(6)))
    with worker_process(hosts[0], "--step", "0.01") as doomed:
        with worker_process(hosts[1], "--step", "0.01"):
            wait_until(lambda: len(leases(connection)) == 4)
            by_host = _hosts_of(connection, ids)
            assert sorted(map(len, by_host.values())) == [2, 2]
            doomed.kill()
            doomed.wait()
            wait_until(have_results(connection, ids), timeout=20)
    assert sorted(result(connection, job_id).attempt for job_id in ids) == [1, 1, 1, 1, 2, 2]
    assert done_entries(connection, ids) == [1] * 6


def test_after_kill_9_and_a_start_jobs_run_again_in_less_than_2_s(
    connection: redis.Redis, hosts: list[Settings]
) -> None:
    """Measured from the start of the process to the first new text, with leases of a minute."""
    settings = msgspec.structs.replace(hosts[0], lease_s=60.0)
    (job_id,) = submit(connection, "b1", job(100))
    with worker_process(settings, "--step", "0.01") as killed:
        wait_until(lambda: "t2 " in streamed(connection, job_id, reasoning=True))
        killed.kill()
        killed.wait()
    written = connection.xlen(keys.stream(job_id))
    began = time.monotonic()
    with worker_process(settings, "--step", "0.01"):
        wait_until(lambda: connection.xlen(keys.stream(job_id)) >= written + 2)
        assert time.monotonic() - began < 2
        wait_until(have_results(connection, [job_id]))
    assert result(connection, job_id).attempt == 2


def test_a_sweep_that_dies_keeps_others_from_sweeping_for_a_lease_s_time(
    connection: redis.Redis, hosts: list[Settings]
) -> None:
    """RQ's lock would stay for 15 minutes, and with it the jobs of every dead host."""
    with worker_process(hosts[0], "--die-during", "Books.clean_registries") as doomed:
        assert doomed.wait(10) == -signal.SIGKILL
    (lock,) = connection.keys("rq:clean_registries:*")
    assert 0 < connection.ttl(lock) <= hosts[0].lease_s
    (job_id,) = submit(connection, "b1", job(1))
    dead = Books(connection, hosts[0], "dead")
    dead.beat([])
    started(dead)
    with worker_process(hosts[1]):
        wait_until(have_results(connection, [job_id]))


def test_a_job_that_another_host_died_with_between_two_steps_is_found(
    settings: Settings, connection: redis.Redis
) -> None:
    """It is in the intermediate queue only. One sweep may have come just before its start."""
    first, second = submit(connection, "b1", job(1), job(1))
    dead = Books(connection, settings, "dead")
    books = Books(connection, settings, "alive")
    assert dead.pop(dead.queues[1]) == first
    books.clean_registries()
    assert queue(connection).get_job_ids() == [second]
    books.clean_registries()
    assert queue(connection).get_job_ids() == [first, second]
    assert left_over(connection) == {"normal queued": 2}


def test_a_worker_that_was_too_slow_leaves_the_job_to_the_queue(
    settings: Settings, connection: redis.Redis
) -> None:
    """Stopped between taking a job and starting it: the sweep has queued the job again."""
    (job_id,) = submit(connection, "b1", job(1))
    slow = Books(connection, settings, "slow")
    slow.pop(slow.queues[1])
    popped = slow.popped(slow.queues[1], job_id)
    assert popped is not None
    slow.put_back(slow.queues[1], job_id)
    assert slow.start(slow.queues[1], popped) is None
    assert queue(connection).get_job_ids() == [job_id]
    assert left_over(connection) == {"normal queued": 1, "attempts": 1}
    assert slow.attempts(job_id) == 0


def test_a_job_that_two_workers_have_run_is_told_once_in_rqs_books(
    settings: Settings, connection: redis.Redis
) -> None:
    """Both have a lease, as when the job was queued twice; and its attempts are forgotten."""
    (job_id,) = submit(connection, "b1", job(1))
    books = Books(connection, settings, "here")
    for _ in range(2):
        lease = started(books)
        books.close(lease, "done")
        queue(connection).push_job_id(job_id)
    connection.delete(queue(connection).key)
    rq_job = RQJob.fetch(job_id, connection, MsgpackSerializer)
    assert rq_job.is_finished
    assert RQResult.count(rq_job) == 1
    assert not left_over(connection)


def _all_of(connection: redis.Redis, job_id: str) -> list[object]:
    """Everything that anybody can see of a job and its batch."""
    batch = keys.batch_of(job_id)
    return [
        connection.get(keys.result(job_id)),
        connection.xrange(keys.stream(job_id)),
        connection.hgetall(keys.batch(batch)),
        connection.xrange(keys.batch_events(batch)),
        connection.hgetall(RQJob.key_for(job_id)),
    ]


def _hosts_of(connection: redis.Redis, ids: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for job_id in ids:
        worker = RQJob.fetch(job_id, connection, MsgpackSerializer).worker_name
        if worker:
            found.setdefault(worker, []).append(job_id)
    return found
