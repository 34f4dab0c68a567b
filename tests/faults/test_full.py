"""A Redis that takes no writes, and a local disk that takes none, while a worker is at work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from support import wait_until
from support.queues import (
    done_entries,
    gated,
    have_results,
    job,
    leases,
    opened,
    result,
    spooled,
    submit,
    tick_until,
)
from thinkq.client import keys
from thinkq.client.cli.status import status
from thinkq.client.settings import Settings
from thinkq.client.workers import note_of_workers, workers
from thinkq.daemon.redis_server import RedisServer
from thinkq.worker import desk as desk_module
from thinkq.worker.publish import Deltas, publish


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


@pytest.mark.parametrize("why", ["full", "disk"])
def test_while_redis_takes_no_writes_people_are_told_so(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """No worker can write that it has paused, so those who read find out by themselves."""
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setenv("THINKQ_REDIS_URL", settings.effective_redis_url)
    with opened(settings) as process, refusing(connection, why):
        told = CliRunner().invoke(status)
        assert "refuses writes" in told.stderr
        assert ("is full" if why == "full" else "cannot save its snapshot") in told.stderr
        assert "paused" not in told.stdout, "no worker has told of itself yet"
    with opened(settings) as process:
        tick_until(process, lambda: workers(connection))
        with refusing(connection, why):
            tick_until(process, lambda: process._backoff.failing)
            assert "paused" in CliRunner().invoke(status).output
            assert [line.state for line in workers(connection)] == ["paused"]
            assert "paused" in note_of_workers(connection)
        tick_until(process, lambda: not process._backoff.failing)
    assert "refuses writes" not in CliRunner().invoke(status).output


def test_a_log_that_tells_of_a_full_redis_repeats_no_text(
    settings: Settings,
    connection: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client library's message has the command, and the command has what the model wrote."""
    told: list[str] = []

    def refused(client: redis.Redis, streams: Iterable[Deltas], now: float) -> None:
        with refusing(connection, "full"):
            try:
                publish(client, streams, now)
            except redis.RedisError as error:
                told.append(str(error))
                raise

    engine = gated()
    assert engine.turns is not None
    (job_id,) = submit(connection, "b1", job(20))
    with opened(settings, engine) as process:
        tick_until(process, lambda: connection.xlen(keys.stream(job_id)))
        monkeypatch.setattr(desk_module, "publish", refused)
        engine.turns.release(3)
        tick_until(process, lambda: told)
        monkeypatch.undo()
    assert "t0 " in told[0]
    assert "maxmemory" in caplog.text
    assert "t0 " not in caplog.text
    assert "XADD" not in caplog.text


@contextmanager
def refusing(connection: redis.Redis, why: str) -> Iterator[None]:
    """A server that is full, or whose disk is."""
    if why == "full":
        connection.config_set("maxmemory", 1)
        try:
            yield
        finally:
            connection.config_set("maxmemory", 0)
        return
    obstacle = Path(str(connection.config_get("dir")["dir"])) / "dump.rdb"
    obstacle.unlink(missing_ok=True)
    obstacle.mkdir()
    connection.config_set("save", "3600 1000000")
    connection.bgsave()
    wait_until(lambda: connection.info("persistence")["rdb_last_bgsave_status"] == "err")
    try:
        yield
    finally:
        obstacle.rmdir()
        connection.bgsave()
    wait_until(lambda: connection.info("persistence")["rdb_last_bgsave_status"] == "ok")


def test_a_spool_that_cannot_be_written_is_told_once_and_loses_nothing(
    settings: Settings, connection: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """A file stands where the directory should be, and Redis is full too: a result waits in memory.

    No new job is taken meanwhile, and what can be spooled at last is.
    """
    obstacle = Path(settings.home) / "spool"
    obstacle.touch()
    engine = gated(max_batch=1)
    assert engine.turns is not None
    ids = submit(connection, "b1", job(2), job(2))
    with opened(settings, engine) as process:
        tick_until(process, lambda: leases(connection))
        connection.config_set("maxmemory", 1)
        try:
            engine.turns.release(100)
            tick_until(process, lambda: "spool takes no result" in caplog.text)
            for _ in range(20):
                process.tick(time.monotonic())
            assert caplog.text.count("spool takes no result") == 1
            obstacle.unlink()
            tick_until(process, lambda: spooled(settings) == 1)
            assert engine.added == ids[:1]
        finally:
            connection.config_set("maxmemory", 0)
        tick_until(process, have_results(connection, ids))
    assert engine.added == ids
    assert spooled(settings) == 0


def test_a_worker_whose_spool_cannot_be_written_answers_all_the_same(
    settings: Settings, connection: redis.Redis
) -> None:
    """From its start on; Redis takes what the disk does not."""
    (Path(settings.home) / "spool").touch()
    ids = submit(connection, "b1", job(1), job("refuse"))
    with opened(settings) as process:
        tick_until(process, have_results(connection, ids))
    assert [result(connection, i).status for i in ids] == ["done", "failed"]


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
