"""One worker, jobs that name several models, a real server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import cycle

import msgspec
import pytest
import redis
from rq import Queue

from support.fake_engine import FakeEngine
from support.queues import have_results, job, left_over, result, submit, tick_until
from thinkq.client import batches, keys
from thinkq.client.errors import JobFailed
from thinkq.client.result import JobError
from thinkq.client.settings import Settings
from thinkq.worker.process import Process
from thinkq.worker.task import Note


class Models:
    """Loads an engine for any model but those that are broken, and remembers which."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.loads: list[str] = []
        self.engines: dict[str, FakeEngine] = {}

    def __call__(self, model: str, note: Note) -> FakeEngine:
        self.loads.append(model)
        if model in self.broken:
            raise JobFailed("unknown_model", f"the model {model!r} cannot be loaded")
        self.engines[model] = FakeEngine(name=model)
        return self.engines[model]


@contextlib.contextmanager
def working(settings: Settings, models: Models) -> Iterator[Process]:
    process = Process(settings, models)
    process.open()
    try:
        yield process
    finally:
        assert process.close()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, model="a", max_batch=4)


def shelved(connection: redis.Redis) -> dict[str, int]:
    """The lengths of all shelves that RQ is shown."""
    names = [batches.text(name) for name in connection.smembers(Queue.redis_queues_keys)]
    return {name: connection.llen(name) for name in names if name.count(":") > 3}


def test_jobs_of_several_models_cost_one_load_for_each_model(
    settings: Settings, connection: redis.Redis
) -> None:
    """They come mixed; a model is not loaded for each job."""
    named = [model for model, _ in zip(cycle(("a", "b", None, "c")), range(24), strict=False)]
    ids = submit(connection, "b1", *(job(2, model=model) for model in named))
    models = Models()
    with working(settings, models) as process:
        tick_until(process, have_results(connection, ids))
    assert models.loads == ["a", "b", "c"]
    for job_id, model in zip(ids, named, strict=True):
        assert result(connection, job_id).status == "done"
        assert job_id in models.engines[model or "a"].added
    for engine in models.engines.values():
        assert engine.added == sorted(engine.added, key=batches.line_of)
    assert not left_over(connection)


def test_jobs_that_wait_for_another_model_are_shown_and_counted(
    settings: Settings, connection: redis.Redis
) -> None:
    """On a shelf that `rq info` lists, and queued as far as the batch is concerned."""
    settings = msgspec.structs.replace(settings, other_models=False)
    mine, *others = submit(connection, "b1", *(job(1, model=model) for model in ("a", "b", "b")))
    with working(settings, Models()) as process:
        tick_until(process, lambda: shelved(connection) == {"rq:queue:thinkq:normal:b": 2})
        tick_until(process, lambda: connection.exists(keys.result(mine)))
        status = batches.status(connection, "b1")
    assert (status.done, status.queued) == (1, 2)
    with working(msgspec.structs.replace(settings, other_models=True), Models()) as process:
        tick_until(process, have_results(connection, others))
        tick_until(process, lambda: not shelved(connection))


def test_a_worker_of_that_model_takes_what_another_has_put_aside(
    settings: Settings, connection: redis.Redis
) -> None:
    """Also jobs that name none: they are for any worker's default."""
    settings = msgspec.structs.replace(settings, other_models=False)
    ids = submit(connection, "b1", job(1, model="b"))
    with working(settings, Models()) as process:
        tick_until(process, lambda: shelved(connection))
    other = Models()
    with working(msgspec.structs.replace(settings, model="b"), other) as process:
        tick_until(process, have_results(connection, ids))
    assert other.loads == ["b"]


def test_a_model_with_jobs_of_higher_priority_goes_first(
    settings: Settings, connection: redis.Redis
) -> None:
    """Normal jobs of the loaded model wait for them."""
    normal = submit(connection, "b1", *(job(2, model="a") for _ in range(8)))
    (high,) = submit(connection, "b2", job(1, model="b", priority="high"))
    models = Models()
    with working(settings, models) as process:
        tick_until(process, have_results(connection, [*normal, high]))
    assert models.loads == ["a", "b", "a"]
    assert models.engines["a"].added == normal


def test_a_model_gives_way_when_it_has_had_its_turn(
    settings: Settings, connection: redis.Redis
) -> None:
    """Although its own jobs are not all done."""
    settings = msgspec.structs.replace(settings, model_switch_s=0.0)
    ids = submit(connection, "b1", job(1, model="b"), *(job(1, model="a") for _ in range(4)))
    models = Models()
    with working(settings, models) as process:
        tick_until(process, have_results(connection, ids))
    assert models.loads == ["a", "b", "a"]


def test_a_model_that_cannot_be_loaded_fails_its_jobs_with_one_sentence_and_no_others(
    settings: Settings, connection: redis.Redis
) -> None:
    """It is tried once for all of them, and once more for jobs that come later."""
    models = Models("bad")
    bad, good, worse = submit(connection, "b1", *(job(1, model=m) for m in ("bad", "a", "bad")))
    with working(settings, models) as process:
        tick_until(process, have_results(connection, [bad, good, worse]))
        for job_id in (bad, worse):
            error = result(connection, job_id).error
            assert error == JobError("unknown_model", "the model 'bad' cannot be loaded")
        assert result(connection, good).status == "done"
        assert models.loads == ["a", "bad", "a"]
        models.broken.clear()
        process.tick(time.monotonic())  # Nothing is left to do; what failed is forgotten.
        (later,) = submit(connection, "b2", job(1, model="bad"))
        tick_until(process, have_results(connection, [later]))
    assert result(connection, later).status == "done"


def test_an_idle_model_is_unloaded_and_loaded_again_for_the_next_job(
    settings: Settings, connection: redis.Redis
) -> None:
    """Its memory is given back meanwhile."""
    settings = msgspec.structs.replace(settings, idle_unload_s=0.05)
    models = Models()
    with working(settings, models) as process:
        for turn in range(3):
            (job_id,) = submit(connection, f"b{turn}", job(1))
            tick_until(process, have_results(connection, [job_id]))
            tick_until(process, lambda: models.engines["a"].closed)
    assert models.loads == ["a", "a", "a"]


def test_an_unloaded_model_that_cannot_be_loaded_again_fails_the_job_that_woke_it(
    settings: Settings, connection: redis.Redis
) -> None:
    """The default model comes instead, and does not get a job of the other."""
    settings = msgspec.structs.replace(settings, idle_unload_s=0.05)
    models = Models()
    with working(settings, models) as process:
        (first,) = submit(connection, "b1", job(1, model="b"))
        tick_until(process, have_results(connection, [first]))
        tick_until(process, lambda: models.engines["b"].closed)
        models.broken.add("b")
        (second,) = submit(connection, "b2", job(1, model="b"))
        tick_until(process, have_results(connection, [second]))
        (third,) = submit(connection, "b3", job(1))
        tick_until(process, have_results(connection, [third]))
    assert result(connection, second).status == "failed"
    assert result(connection, third).status == "done"
    assert second not in models.engines["a"].added
