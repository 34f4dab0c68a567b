"""Submitting: atomic, repeatable, nothing pickled. On a real server."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import pytest
import redis
from rq.job import Job as RQJob

from support.simulated_worker import SimulatedWorker, answered, some_jobs
from thinkq.client import batches, keys
from thinkq.client.errors import NotFound, ThinkqError
from thinkq.client.queue import CHUNK_JOBS, JobQueue, batch_id


def queued_ids(connection: redis.Redis, priority: keys.Priority = "normal") -> list[str]:
    ids = connection.lrange(f"rq:queue:{keys.QUEUES[priority]}", 0, -1)
    return [batches.text(job_id) for job_id in ids]


class Killed(Exception):
    """Stands for the client's death."""


def test_the_same_jobs_make_the_same_batch_and_a_salt_another() -> None:
    jobs = some_jobs("same")
    assert batch_id(jobs) == batch_id(some_jobs("same"))
    assert len(batch_id(jobs)) == 13
    assert batch_id(jobs)[0] == "b"
    assert batch_id(jobs, "salt") != batch_id(jobs)
    assert batch_id(some_jobs("other")) != batch_id(jobs)


def test_submitted_jobs_are_queued_in_order_by_priority(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    jobs = some_jobs("priority", 4)
    jobs[3].priority = "high"
    jobs[4].priority = "low"
    assert JobQueue(connection).submit("bpriority", jobs, name="p.jsonl") == 4
    assert queued_ids(connection) == ["bpriority-1", "bpriority-2"]
    assert queued_ids(connection, "high") == ["bpriority-3"]
    assert queued_ids(connection, "low") == ["bpriority-4"]
    assert worker.payload("bpriority-2") == jobs[2]
    status = batches.status(connection, "bpriority")
    assert (status.name, status.state, status.total, status.queued) == ("p.jsonl", "queued", 4, 4)


def test_what_is_queued_is_no_pickle_and_its_description_hides_the_prompt(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("bsecret", some_jobs("secret", 1))
    stored: dict[Any, Any] = connection.hgetall(RQJob.key_for("bsecret-1"))
    assert not any(b"secret 1" in value for name, value in stored.items() if name != b"data")
    assert stored[b"description"] == b"thinkq job"
    assert stored[b"timeout"] == b"-1"
    assert int(stored[b"retries_left"]) > 100_000
    assert zlib.decompress(stored[b"data"])[:1] != pickle.dumps(())[:1]


def test_qw_22_the_same_submission_again_queues_nothing(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """QW-22: a file submitted twice runs once."""
    jobs = some_jobs("twice")
    assert JobQueue(connection).submit("btwice", jobs) == 3
    assert worker.take()
    assert JobQueue(connection).submit("btwice", jobs) == 0
    assert worker.work() == 2
    assert JobQueue(connection).submit("btwice", jobs) == 0
    assert queued_ids(connection) == []


def test_qw_22_a_submission_killed_in_the_middle_is_completed_without_duplicates(
    connection: redis.Redis, worker: SimulatedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QW-22: the client dies between two chunks."""
    jobs = some_jobs("killed", 2 * CHUNK_JOBS + 5)
    queue = JobQueue(connection)
    whole = JobQueue._queue_chunk
    calls = iter(range(10))

    def dies_at_the_second(*args: object) -> bool:
        if next(calls) == 1:
            raise Killed
        return whole(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(JobQueue, "_queue_chunk", dies_at_the_second)
    with pytest.raises(Killed):
        queue.submit("bkilled", jobs)
    assert batches.status(connection, "bkilled").state == "submitting"
    assert len(queued_ids(connection)) == CHUNK_JOBS

    assert queue.submit("bkilled", jobs) == len(jobs) - CHUNK_JOBS
    assert queued_ids(connection) == [keys.job_id("bkilled", line) for line in jobs]
    assert batches.status(connection, "bkilled").state == "queued"


def test_two_clients_that_submit_at_once_queue_each_job_once(
    connection: redis.Redis, worker: SimulatedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second client gets in between the first one's look at the list and its transaction."""
    jobs = some_jobs("race", CHUNK_JOBS + 5)
    whole = JobQueue._enqueue
    other = JobQueue(connection)
    raced: list[int] = []

    def overtaken(self: JobQueue, *args: object) -> None:
        if self is not other and not raced:
            raced.append(other.submit("brace", jobs))
        whole(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(JobQueue, "_enqueue", overtaken)
    assert JobQueue(connection).submit("brace", jobs) == 0
    assert raced == [len(jobs)]
    assert queued_ids(connection) == [keys.job_id("brace", line) for line in jobs]


def test_lines_added_later_come_in_input_order(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    jobs = some_jobs("later", 4)
    queue = JobQueue(connection)
    queue.submit("blater", {line: jobs[line] for line in (2, 4)})
    assert queue.submit("blater", jobs) == 2
    assert batches.job_ids(connection, "blater") == [f"blater-{n}" for n in (1, 2, 3, 4)]
    assert batches.status(connection, "blater").total == 4


def test_bf_10_the_same_custom_id_in_two_batches_has_two_answers(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """BF-10: custom_id is a label, never a key."""
    x, y = some_jobs("1+1?", 1), some_jobs("capital of France?", 1)
    bx, by = batch_id(x), batch_id(y)
    for batch, jobs in ((bx, x), (by, y)):
        JobQueue(connection).submit(batch, jobs)
    worker.work(lambda job_id, job: answered(job_id, job, f"to {job.messages[0].content}"))
    answers = [
        next(batches.results(connection, batches.job_ids(connection, batch))) for batch in (bx, by)
    ]
    assert [result.answer for result in answers] == ["to 1+1? 1", "to capital of France? 1"]
    assert [result.custom_id for result in answers] == ["c1", "c1"]
    assert keys.stream(answers[0].job_id) != keys.stream(answers[1].job_id)


def test_status_counts_what_is_queued_running_and_ended(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("bcount", some_jobs("count", 6))
    outcomes: list[dict[str, Any]] = [
        {"answer": "42"},
        {"answer": "", "close_reason": "length", "finish_reason": "length"},
        {"answer": "", "status": "failed", "finish_reason": "error", "close_reason": "none"},
        {
            "answer": "4",
            "status": "cancelled",
            "finish_reason": "cancelled",
            "close_reason": "none",
        },
    ]
    for fields in outcomes:
        taken = worker.take()
        assert taken
        worker.commit(answered(*taken, **fields))
    running = worker.take()
    assert running
    connection.zadd("rq:wip:thinkq:normal", {f"{running[0]}:e1": 1.0, "bother-1:e2": 2.0})

    status = batches.status(connection, "bcount")
    assert (status.total, status.queued, status.running) == (6, 1, 1)
    assert (status.done, status.failed, status.cancelled) == (2, 1, 1)
    assert (status.empty, status.length) == (1, 1)
    assert status.closes == {"natural": 1, "length": 1, "none": 2}
    assert (status.thinking_tokens, status.answer_tokens) == (12, 8)
    assert status.seconds_left is not None
    assert not status.finished
    connection.delete("rq:wip:thinkq:normal")


def test_a_batch_that_is_not_there_is_named(connection: redis.Redis) -> None:
    with pytest.raises(NotFound, match="there is no batch 'bnone'"):
        batches.status(connection, "bnone")
    with pytest.raises(NotFound):
        batches.job_ids(connection, "bnone")


def test_bf_21_results_come_in_input_order_whatever_ended_first(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """BF-21: the order does not depend on timing; jobs that have not ended are left out."""
    JobQueue(connection).submit("border", some_jobs("order", 12))
    taken = [worker.take() for _ in range(12)]
    for item in reversed(taken):
        assert item
        if item[0] != "border-5":
            worker.commit(answered(*item))
    ids = batches.job_ids(connection, "border")
    lines = [batches.line_of(result.job_id) for result in batches.results(connection, ids)]
    assert lines == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12]


def test_retry_queues_what_has_no_answer_and_takes_it_out_of_the_counts(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    jobs = some_jobs("retry", 4)
    queue = JobQueue(connection)
    queue.submit("bretry", jobs)
    fates: dict[str, dict[str, Any]] = {
        "bretry-1": {},
        "bretry-2": {"answer": "", "close_reason": "length"},
        "bretry-3": {"answer": "", "status": "failed", "finish_reason": "error"},
        "bretry-4": {},
    }
    worker.work(lambda job_id, job: answered(job_id, job, **fates[job_id]))
    assert queue.retry("bretry", jobs) == 2
    status = batches.status(connection, "bretry")
    assert (status.done, status.failed, status.empty, status.queued) == (2, 0, 0, 2)
    assert status.closes == {"natural": 2}
    assert queue.retry("bretry", jobs) == 0
    assert worker.work() == 2
    status = batches.status(connection, "bretry")
    assert (status.done, status.empty, status.finished) == (4, 0, True)
    assert status.answer_tokens == 8


def test_remove_leaves_nothing_and_refuses_an_unfinished_batch(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    before = set(connection.keys("*bgone*"))
    queue = JobQueue(connection)
    queue.submit("bgone", some_jobs("gone"))
    with pytest.raises(ThinkqError, match="3 jobs that have not ended"):
        queue.remove("bgone")
    worker.work()
    queue.remove("bgone")
    assert set(connection.keys("*bgone*")) == before == set()
    assert "bgone" not in batches.batch_ids(connection)


def test_a_batch_whose_results_have_expired_begins_anew(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    jobs = some_jobs("expired")
    queue = JobQueue(connection)
    queue.submit("bexpired", jobs)
    worker.work()
    connection.delete(keys.result("bexpired-2"))
    assert queue.submit("bexpired", jobs) == 3
    assert batches.status(connection, "bexpired").queued == 3


def test_waiting_for_the_disk_is_skipped_where_the_server_has_no_append_only_file(
    connection: redis.Redis,
) -> None:
    JobQueue(connection).wait_durable()
