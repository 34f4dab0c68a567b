"""A Redis that goes away, is full, or cannot write, while a worker is at work."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from support import wait_until
from support.fake_engine import FakeEngine
from support.queues import (
    done_entries,
    events,
    gated,
    have_results,
    job,
    leases,
    left_over,
    opened,
    result,
    streamed,
    submit,
    tick_until,
)
from thinkq.client import keys
from thinkq.client.commit import Committer
from thinkq.client.connection import connect
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.redis_server import RedisServer
from thinkq.worker import desk as desk_module
from thinkq.worker.books import Books
from thinkq.worker.process import Process
from thinkq.worker.publish import Deltas, publish


def spooled(settings: Settings) -> int:
    return len(list((Path(settings.home) / "spool").glob("*.json")))


@pytest.fixture
def persistent(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own, with the product's configuration."""
    server = RedisServer(load_settings({}, home=str(tmp_path)))
    server.start()
    try:
        wait_until(server.ready)
        yield server
    finally:
        server.kill()


def test_a_redis_that_is_killed_and_started_again_costs_nothing(
    tmp_path: Path, persistent: RedisServer
) -> None:
    """Decoding goes on meanwhile, the result waits on disk, and the stream is whole."""
    settings = load_settings({}, home=str(tmp_path))
    engine = gated()
    assert engine.turns is not None
    with connect(settings) as connection, opened(settings, engine) as process:
        finished, running = submit(connection, "b1", job(4), job(20))
        tick_until(process, lambda: len(leases(connection)) == 2)
        engine.turns.release(4)
        tick_until(process, lambda: "t1 " in streamed(connection, finished, reasoning=True))
        tick_until(process, lambda: "t1 " in streamed(connection, running, reasoning=True))
        persistent.kill()
        engine.turns.release(6)
        tick_until(process, lambda: spooled(settings) == 1)
        assert len(engine.rows) == 1
        wait_until(persistent.start)
        wait_until(persistent.ready)
        engine.turns.release(50)
        tick_until(process, have_results(connection, [finished, running]), timeout=20)
        assert engine.added == [finished, running]
        for job_id in (finished, running):
            assert result(connection, job_id).attempt == 1
            assert (
                streamed(connection, job_id, reasoning=True) == result(connection, job_id).thinking
            )
        assert done_entries(connection, [finished, running]) == [1, 1]
        assert spooled(settings) == 0


def test_qw_11_a_full_redis_gets_the_result_when_it_has_room(
    settings: Settings, connection: redis.Redis
) -> None:
    """The worker lives, takes no new job, and decodes nothing a second time."""
    engine = gated(max_batch=1)
    assert engine.turns is not None
    ids = submit(connection, "b1", job(2), job(2))
    with opened(settings, engine) as process:
        tick_until(process, lambda: leases(connection))
        connection.config_set("maxmemory", 1)
        try:
            engine.turns.release(100)
            tick_until(process, lambda: spooled(settings) == 1)
            assert engine.added == ids[:1]
        finally:
            connection.config_set("maxmemory", 0)
        tick_until(process, have_results(connection, ids))
    assert engine.added == ids
    assert done_entries(connection, ids) == [1, 1]


def test_qw_13_a_redis_that_cannot_write_fails_no_job(
    settings: Settings, connection: redis.Redis, redis_server: RedisServer
) -> None:
    """Its disk is full, so it answers MISCONF; afterwards the worker goes on by itself."""
    engine = gated(max_batch=1)
    assert engine.turns is not None
    ids = submit(connection, "b1", job(2), job(2))
    obstacle = Path(str(connection.config_get("dir")["dir"])) / "dump.rdb"
    obstacle.mkdir()
    connection.config_set("save", "3600 1000000")
    with opened(settings, engine) as process:
        tick_until(process, lambda: leases(connection))
        connection.bgsave()
        wait_until(lambda: connection.info("persistence")["rdb_last_bgsave_status"] == "err")
        engine.turns.release(100)
        tick_until(process, lambda: spooled(settings) == 1)
        assert engine.added == ids[:1]
        obstacle.rmdir()
        connection.bgsave()
        tick_until(process, have_results(connection, ids))
    assert [result(connection, job_id).status for job_id in ids] == ["done", "done"]
    assert engine.added == ids


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Books, "pop"),
        (Books, "start"),
        (desk_module, "publish"),
        (Committer, "commit"),
        (Books, "close"),
    ],
)
def test_a_step_whose_reply_is_lost_is_neither_lost_nor_done_twice(
    settings: Settings,
    connection: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
) -> None:
    """Redis has done it, and the worker learns only that the connection broke."""
    step = getattr(owner, name)
    broken: list[str] = []

    def breaking(*args: Any, **kwargs: Any) -> Any:
        done = step(*args, **kwargs)
        if not broken and (done is not None or name in ("publish", "close")):
            broken.append(name)
            raise redis.ConnectionError("the reply was lost")
        return done

    monkeypatch.setattr(owner, name, breaking)
    ids = submit(connection, "b1", *(job(2) for _ in range(6)))
    with opened(settings, FakeEngine()) as process:
        tick_until(process, have_results(connection, ids))
    assert broken
    assert done_entries(connection, ids) == [1] * 6
    for job_id in ids:
        assert events(connection, job_id)[-1].type == "done"
        assert connection.ttl(keys.stream(job_id)) > 0
        assert streamed(connection, job_id, reasoning=True) == result(connection, job_id).thinking


def test_text_that_redis_did_not_take_is_published_again(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke before the server had read anything."""
    failures = iter(range(3))

    def broken(_: redis.Redis, streams: Iterable[Deltas], now: float) -> None:
        for _failure in failures:
            assert [event.type for deltas in streams for event in deltas.take(now)]
            raise redis.ConnectionError("the request was lost")
        publish(connection, streams, now)

    monkeypatch.setattr(desk_module, "publish", broken)
    (job_id,) = submit(connection, "b1", job(30))
    with opened(settings) as process:
        tick_until(process, have_results(connection, [job_id]))
    assert next(failures, None) is None
    answer = result(connection, job_id)
    assert streamed(connection, job_id, reasoning=True) == answer.thinking
    assert streamed(connection, job_id, reasoning=False) == answer.answer


def test_a_worker_that_starts_before_redis_waits_for_it(tmp_path: Path) -> None:
    """At log-in nobody knows who comes first."""
    settings = load_settings({}, home=str(tmp_path))
    with opened(settings) as process:
        for _ in range(3):
            began = time.monotonic()
            process.tick(began)
            assert time.monotonic() - began < 0.5, "a tick must not wait for Redis"
        server = RedisServer(settings)
        server.start()
        try:
            wait_until(server.ready)
            with connect(settings) as connection:
                (job_id,) = submit(connection, "b1", job(1))
                tick_until(process, have_results(connection, [job_id]))
        finally:
            server.kill()


def test_a_full_local_disk_does_not_hold_a_result_back(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis may well take it."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("thinkq.worker.spool.Spool.put", full)
    (job_id,) = submit(connection, "b1", job(1))
    with opened(settings) as process:
        tick_until(process, have_results(connection, [job_id]))
    assert result(connection, job_id).status == "done"


def test_a_model_that_cannot_be_loaded_ends_the_worker_with_a_sentence(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is admitted before the model is there."""

    def load(*_: object) -> FakeEngine:
        raise ValueError("no such file")

    submit(connection, "b1", job(1))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(ThinkqError, match="model cannot be loaded: ValueError: no such file"):
        Process(settings, load).run()
    assert left_over(connection) == {"normal queued": 1}
