"""What the status tells of a daemon in each of its states."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from thinkq.client import keys, locks
from thinkq.client.connection import connect
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import status
from thinkq.daemon.platforms import service_for
from thinkq.daemon.service import Recorder, write
from thinkq.daemon.state import ChildState, Record
from thinkq.daemon.status import Status

KILLED = ChildState(
    name="worker",
    state="ready",
    pid=os.getpid(),
    restarts=1,
    last_ending="was killed by signal 9",
    last_ended=time.time() - 120,
)


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def running(settings: Settings, person: None) -> Iterator[Record]:
    """A daemon that is this process, on the module's Redis, with nothing in it."""
    with connect(settings) as connection:
        connection.delete(keys.WORKERS, *(f"rq:queue:{name}" for name in keys.QUEUES.values()))
    lock = locks.take(settings.daemon_lock)
    assert lock
    yield Record(settings)
    lock.close()


def look(settings: Settings) -> Status:
    return status.look(settings, service_for(settings))


def shown(settings: Settings) -> str:
    return "\n".join(status.lines(look(settings)))


def worker_line(**fields: object) -> str:
    line = {"state": "busy", "model": "m", "rows": 3, "max_batch": 16, "tokens_per_s": 12.5}
    return json.dumps(line | {"updated": time.time()} | fields)


@pytest.fixture
def connection(settings: Settings) -> Iterator[redis.Redis]:
    with connect(settings) as client:
        yield client


def test_a_daemon_at_work(settings: Settings, running: Record, connection: redis.Redis) -> None:
    running.update(state="running", children=[KILLED])
    connection.hset(keys.WORKERS, "ours", worker_line(pid=os.getpid()))
    connection.hset(keys.WORKERS, "of another Mac", worker_line(pid=1))
    connection.rpush(f"rq:queue:{keys.QUEUES['low']}", "a", "b")
    found = look(settings)
    assert (found.running, found.state, found.pid) == (True, "running", os.getpid())
    assert (found.rows, found.tokens_per_s) == (6, 25.0)
    assert found.queue == {"high": 0, "normal": 0, "low": 2}
    assert set(found.memory) == {"daemon", "worker", "redis"}
    text = shown(settings)
    assert f"busy: m, 3/16 rows, 12.5 tokens/s (pid {os.getpid()})" in text
    assert "0 high, 0 normal, 2 low" in text
    assert re.search(r"last error  worker was killed by signal 9, \d+ min \d+ s ago", text)


def test_a_worker_that_still_loads_is_told_with_its_model(
    settings: Settings, running: Record
) -> None:
    loading = ChildState(name="worker", state="starting", pid=7)
    running.update(children=[loading])
    assert "worker      is starting (pid 7); its model is demo" in shown(settings)


def test_a_crash_loop_is_told_with_its_remedy(settings: Settings, running: Record) -> None:
    running.update(state="crash_loop", last_error="worker ended 3 times\nno such model")
    found = look(settings)
    assert found.state == "crash_loop"
    found.running = False  # as soon as the lock is gone
    text = "\n".join(status.lines(found))
    assert "not running: gave up" in text
    assert "last error  worker ended 3 times\n            no such model" in text
    assert text.endswith("then `thinkq daemon start`.")


def test_before_the_first_start(tmp_path: Path, person: None) -> None:
    home = load_settings({}, home=str(tmp_path / "home"))
    found = look(home)
    assert (found.running, found.state, found.redis.answers) == (False, "never_started", False)
    assert "not running: never started" in shown(home)
    assert "start it with `thinkq daemon start`" in shown(home)
    assert not home.home_path.exists(), "asking makes nothing"


def test_a_redis_that_is_refused_is_told(tmp_path: Path, person: None) -> None:
    open_redis = load_settings({}, home=str(tmp_path), redis_url="redis://192.0.2.1:6379")
    assert "put one into the URL" in shown(open_redis)


def test_the_password_of_redis_is_not_shown(tmp_path: Path, person: None) -> None:
    url = "redis://:secret@127.0.0.1:1"
    away = load_settings({}, home=str(tmp_path), redis_url=url)
    assert "127.0.0.1:1" in shown(away)
    assert "secret" not in shown(away)


def test_an_installed_service_is_told_with_its_file(settings: Settings, running: Record) -> None:
    assert "not installed; `thinkq daemon install`" in shown(settings)
    service = service_for(settings, Recorder())
    write(service, {})
    assert look(settings).service.installed
    assert f"installed: {service.path}" in shown(settings)


def test_memory_is_what_processes_hold_and_the_dead_hold_none() -> None:
    assert 1e6 < status.resident([os.getpid()])[os.getpid()] < 1e10
    assert status.resident([]) == {}
    assert status.resident([4_000_000]) == {}


def test_without_ps_the_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert status.resident([os.getpid()]) == {}
