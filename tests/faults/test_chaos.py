"""Storms: everything that can die does so at random, and each job ends once.

A few seeds in each run; many with `python -m pytest -m chaos --seeds 50`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from rq.job import Job as RQJob
from rq.results import Result as RQResult

from support.chaos import BATCH, Storm
from support.queues import events, left_over, queue, result
from thinkq.client import batches, keys
from thinkq.client.result import Result
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.stream import follow

SHORT = 4


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A seed of the long form for each of `--seeds`."""
    if "many" in metafunc.fixturenames:
        metafunc.parametrize("many", range(100, 100 + metafunc.config.getoption("--seeds")))


@pytest.mark.parametrize("seed", range(SHORT))
def test_whatever_is_killed_each_job_ends_once(tmp_path: Path, seed: int) -> None:
    """Workers and Redis die at random; odd seeds have two hosts."""
    weather(tmp_path, seed)


@pytest.mark.chaos
def test_whatever_is_killed_each_job_ends_once_for_many_seeds(tmp_path: Path, many: int) -> None:
    """The same, as often as was asked for."""
    weather(tmp_path, many)


def weather(directory: Path, seed: int) -> None:
    """One storm, and then the accounts."""
    storm = Storm(directory, seed, hosts=1 + seed % 2)
    with storm.over_jobs() as connection:
        print("killed:", dict(storm.kills))
        results = [result(connection, job_id) for job_id in storm.ids]
        for one in results:
            _one_end(one)
            _one_done_and_the_whole_text(connection, one)
            _once_in_rqs_books(connection, one)
        _counts_add_up(connection, results)
        assert not left_over(connection)
        assert not storm.spooled()
        assert not connection.exists(keys.WORKERS)


def _one_end(one: Result) -> None:
    """A job that does not run to its end says why: it was told so, or three deaths hit it."""
    if one.status == "failed":
        assert one.error is not None
        assert one.error.kind == (
            "worker_crashed" if one.attempt > 3 else "context_length_exceeded"
        )


def _one_done_and_the_whole_text(connection: redis.Redis, one: Result) -> None:
    kinds = [event.type for event in events(connection, one.job_id)]
    assert kinds.count("done") == 1
    assert kinds[-1] == "done"
    texts = {True: "", False: ""}
    for event in follow(connection, one.job_id):
        if event.type in ("start", "restart"):
            texts = {True: "", False: ""}
        elif event.type == "delta":
            texts[event.is_reasoning] += event.text
    assert texts == {True: one.thinking or "", False: one.answer}


def _once_in_rqs_books(connection: redis.Redis, one: Result) -> None:
    rq_job = RQJob.fetch(one.job_id, connection, MsgpackSerializer)
    rq_queue = queue(connection, _priority(rq_job.origin))
    finished = rq_queue.finished_job_registry.get_job_ids(cleanup=False).count(one.job_id)
    failed = rq_queue.failed_job_registry.get_job_ids(cleanup=False).count(one.job_id)
    assert (finished, failed) == ((1, 0) if one.status == "done" else (0, 1))
    (told,) = RQResult.all(rq_job, MsgpackSerializer)
    assert (told.type == RQResult.Type.SUCCESSFUL) == (one.status == "done")


def _priority(name: str) -> keys.Priority:
    return next(priority for priority, queue in keys.QUEUES.items() if queue == name)


def _counts_add_up(connection: redis.Redis, results: list[Result]) -> None:
    status = batches.status(connection, BATCH)
    assert (status.ended, status.total) == (60, 60)
    assert connection.xlen(keys.batch_events(BATCH)) == 60
    for name in ("done", "failed", "cancelled"):
        assert getattr(status, name) == sum(one.status == name for one in results)
    assert status.thinking_tokens == sum(one.usage.thinking_tokens for one in results)
    assert status.answer_tokens == sum(one.usage.answer_tokens for one in results)
