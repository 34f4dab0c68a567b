"""Cases of the queue that need a worker's whole life: no fork, no clock on a job, flat memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import mlx.core as mx
import msgspec
import pytest
import redis
from rq import Worker

from support import wait_until
from support.fake_engine import FakeEngine
from support.queues import (
    gated,
    have_results,
    job,
    leases,
    opened,
    queue,
    result,
    started,
    submit,
    tick_until,
)
from thinkq.client.job import Job
from thinkq.client.settings import Settings, load_settings
from thinkq.worker.books import Books
from thinkq.worker.decoder import Decoder
from thinkq.worker.demo import evaluation
from thinkq.worker.engine import Engine
from thinkq.worker.row import Row
from thinkq.worker.task import Task

ROWS = 4


def test_qw_01_the_worker_never_forks(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork of a process that uses Metal aborts; RQ's own worker forks for each job."""

    def fork() -> int:
        raise AssertionError("a fork")

    for name in ("fork", "forkpty"):
        monkeypatch.setattr(os, name, fork)
    assert not issubclass(Books, Worker)
    ids = submit(connection, "b1", job(2), job(2), job("refuse"))
    with opened(settings, FakeEngine()) as process:
        tick_until(process, have_results(connection, ids))
    assert [result(connection, job_id).status for job_id in ids] == ["done", "done", "failed"]


def test_qw_01_what_rqs_worker_would_run_a_job_with_is_not_there(
    settings: Settings, connection: redis.Redis
) -> None:
    """Neither our worker nor our jobs can be driven by RQ's own loop."""
    submit(connection, "b1", job(1))
    books = Books(connection, settings, "here")
    lease = started(books)
    with pytest.raises(NotImplementedError):
        books.execute_job(lease.job, lease.queue)
    with pytest.raises(RuntimeError, match="never calls the function"):
        lease.job.perform()


def test_qw_01_rqs_own_worker_on_our_queue_runs_nothing_and_loses_nothing(
    settings: Settings, connection: redis.Redis
) -> None:
    """Started by mistake: it cannot read a job, and the job is there for our worker."""
    ids = submit(connection, "b1", job(1))
    rq = str(Path(sys.executable).with_name("rq"))
    where = ("--url", settings.effective_redis_url, "thinkq:normal")
    subprocess.run(
        [rq, "worker", "--burst", "--max-jobs", "1", *where], capture_output=True, check=True
    )
    assert queue(connection).get_job_ids() == ids
    with opened(settings) as process:
        tick_until(process, have_results(connection, ids))
    assert result(connection, ids[0]).status == "done"


def test_qw_07_a_job_without_a_timeout_may_take_hours(
    settings: Settings, connection: redis.Redis
) -> None:
    """RQ would end it after 180 s. Each turn is progress, so nobody takes it for hanging."""
    engine = gated()
    assert engine.turns is not None
    (job_id,) = submit(connection, "b1", job(20))
    registry = queue(connection).started_job_registry
    with opened(settings, engine) as process:
        tick_until(process, lambda: leases(connection))
        for hour in range(1, 5):
            engine.turns.release(2)
            tick_until(process, lambda: engine.rows[0].turns >= 2, ahead=hour * 3600.0)
            registry.cleanup()
            assert len(leases(connection)) == 1
        engine.turns.release(100)
        tick_until(process, have_results(connection, [job_id]), ahead=5 * 3600.0)
    assert engine.added == [job_id]
    assert result(connection, job_id).answer


def test_qw_07_a_timeout_is_looked_at_between_two_turns_and_keeps_what_there_is() -> None:
    """The thought is closed and answered; nothing interrupts MLX in the middle."""
    engine = Engine.load("demo", max_batch=1, settings=load_settings({}))
    (asked,) = _jobs("hard", 1)
    row = engine.add(msgspec.structs.replace(asked, timeout=600.0), job_id="a")
    while not row.tracker.thinking_tokens:
        engine.turn()
    row.deadline = 0.0
    while engine.busy:
        engine.turn()
    assert row.result is not None
    assert (row.result.status, row.result.close_reason) == ("done", "deadline")
    assert row.result.thinking


def test_qw_15_memory_is_flat_whatever_becomes_of_the_jobs() -> None:
    """Done and cancelled: after them the KV caches are free, and MLX holds the model alone."""
    engine = Engine.load("demo", max_batch=ROWS, settings=load_settings({}))
    _drain(engine, _jobs("easy", ROWS))
    model = mx.get_active_memory()
    for round_ in range(3):
        rows = _fill(engine, _jobs("hard", ROWS))
        while not all(row.tracker.thinking_tokens for row in rows):
            engine.turn()
        for row in rows[round_:]:
            engine.cancel(row)
        _drain(engine, [])
        assert mx.get_active_memory() <= 1.05 * model
        assert mx.get_cache_memory() < model


def test_qw_15_an_engine_that_fails_in_mid_turn_takes_its_caches_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exception path clears too: a new engine is loaded, and two models are never held."""
    sizes: list[int] = []

    def load(*_: object) -> Engine:
        engine = Engine.load("demo", max_batch=ROWS, settings=load_settings({}))
        mx.clear_cache()
        sizes.append(mx.get_active_memory())
        return engine

    decoder = Decoder(load, lambda: None)
    decoder.start()
    wait_until(lambda: decoder.model)
    for _ in range(2):
        tasks = [_task(one) for one in _jobs("hard", ROWS)]
        _fail_after(monkeypatch, turns=20)
        loads = len(sizes)
        for task in tasks:
            decoder.submit(task)
        wait_until(lambda: len(sizes) > loads)  # noqa: B023  # called before the next round
    assert decoder.stop(10)
    assert max(sizes) <= 1.05 * sizes[0]


def _jobs(kind: Literal["easy", "hard"], count: int) -> list[Job]:
    return [job for job, _ in evaluation(kind)[:count]]


def _fill(engine: Engine, jobs: list[Job]) -> list[Row]:
    return [engine.add(one, job_id=str(n)) for n, one in enumerate(jobs)]


def _drain(engine: Engine, jobs: list[Job]) -> None:
    _fill(engine, jobs)
    while engine.busy:
        engine.turn()


def _task(one: Job) -> Task:
    return Task(job=one, job_id="a", attempt=1, queued_s=0.0, sink=lambda *_: None)


def _fail_after(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    whole: Callable[[Engine], object] = Engine.turn
    left = [turns]

    def turn(engine: Engine) -> object:
        left[0] -= 1
        if left[0] == 0:
            monkeypatch.undo()
            raise RuntimeError("in the middle")
        return whole(engine)

    monkeypatch.setattr(Engine, "turn", turn)
