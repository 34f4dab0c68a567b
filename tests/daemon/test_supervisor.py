"""The supervisor with a real Redis and a stand-in for the worker that loads no model."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import redis

from support import wait_until
from support.processes import environment
from thinkq.client import keys, locks
from thinkq.client.connection import probe
from thinkq.client.errors import RedisUnavailable
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.child import Child
from thinkq.daemon.keeper import CrashLoop
from thinkq.daemon.supervisor import Supervisor, Worker

IDLE = ("/bin/cat",)
"""A worker that does nothing until its stdin ends."""

LAST_WORDS = """
import signal, sys
from thinkq.client.connection import probe
from thinkq.client.settings import load_settings
def stop(*_):
    probe(load_settings()).set("last words", "bye")
    sys.exit()
signal.signal(signal.SIGTERM, stop)
print("listening", flush=True)
signal.pause()
"""
"""A worker that needs Redis for its end."""


class Stage:
    """A supervisor, its worker, and a clock that runs as fast as the test likes."""

    def __init__(self, settings: Settings, *argv: str) -> None:
        self.settings = settings
        self.worker = Worker(settings, argv or IDLE)
        self.supervisor = Supervisor(settings, self.worker)
        self._now = count()

    def tick(self) -> None:
        self.supervisor.tick(next(self._now))

    def tick_until_worker_runs(self) -> None:
        def runs() -> bool:
            self.tick()
            return self.worker.alive()

        wait_until(runs)


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """Settings of an embedded server with a data directory of its own."""
    return load_settings({}, home=str(tmp_path / "home"))


@pytest.fixture
def stage(home: Settings) -> Iterator[Stage]:
    """A supervisor whose Redis answers and whose worker runs."""
    stage = Stage(home)
    try:
        stage.tick_until_worker_runs()
        yield stage
    finally:
        stage.supervisor.stop()


def redis_pid(settings: Settings) -> int:
    with probe(settings) as connection:
        return int(connection.info("server")["process_id"])


def test_the_worker_starts_only_when_redis_answers(home: Settings) -> None:
    stage = Stage(home)
    try:
        stage.tick()
        assert not stage.worker.alive(), "Redis was started a moment ago"
        stage.tick_until_worker_runs()
        assert redis_pid(home)
    finally:
        stage.supervisor.stop()


def test_a_killed_redis_comes_back_and_the_worker_stays(stage: Stage) -> None:
    """The worker waits for Redis with what it decodes, so it must not be touched."""
    worker, former = stage.worker.pid, redis_pid(stage.settings)
    os.kill(former, signal.SIGKILL)

    def is_back() -> bool:
        stage.tick()
        try:
            return redis_pid(stage.settings) != former
        except redis.RedisError:
            return False

    wait_until(is_back)
    assert stage.worker.alive()
    assert stage.worker.pid == worker


def test_a_killed_worker_comes_back(stage: Stage) -> None:
    former = stage.worker.pid
    assert former
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: not stage.worker.alive())
    stage.tick_until_worker_runs()
    assert stage.worker.pid != former


def test_stopping_ends_the_worker_while_redis_still_answers(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is asked to stop gives its jobs back, and needs Redis for that."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    stage = Stage(home, sys.executable, "-c", LAST_WORDS)
    try:
        stage.tick_until_worker_runs()
        wait_until(lambda: "listening" in stage.worker.log.read_text())
        stage.supervisor.stop()
        assert stage.worker.ending() == "ended with exit code 0"
        assert locks.holder(home.home_path / "redis.lock") is None
        stage.tick_until_worker_runs()
        with probe(home) as connection:
            assert connection.get("last words") == b"bye"
    finally:
        stage.supervisor.stop()


def test_a_worker_that_never_becomes_ready_is_given_up(home: Settings) -> None:
    stage = Stage(home, "/bin/sh", "-c", "echo no such model; exit 1")

    def tick_on() -> bool:
        stage.tick()
        return False

    try:
        with pytest.raises(CrashLoop, match=r"(?s)worker ended 3 times.*exit code 1.*no such"):
            wait_until(tick_on)
    finally:
        stage.supervisor.stop()


def test_a_redis_that_cannot_read_its_file_is_given_up(stage: Stage) -> None:
    stage.supervisor.stop()
    next(stage.settings.home_path.glob("appendonlydir/*.manifest")).write_text("torn")

    def tick_on() -> bool:
        stage.tick()
        return False

    with pytest.raises(CrashLoop, match=r"(?s)redis ended 3 times.*redis\.log.*"):
        wait_until(tick_on)


def test_with_a_redis_of_the_users_own_only_the_worker_is_started(settings: Settings) -> None:
    stage = Stage(settings)
    try:
        stage.tick_until_worker_runs()
        assert not settings.socket_path.exists()
    finally:
        stage.supervisor.stop()
    with probe(settings) as connection:
        assert connection.ping(), "it is not ours to stop"


def test_an_open_redis_on_the_network_is_refused(tmp_path: Path) -> None:
    settings = load_settings({}, home=str(tmp_path), redis_url="redis://192.0.2.1:6379")
    with pytest.raises(RedisUnavailable, match="no password"):
        Supervisor(settings)


def test_a_worker_is_not_started_beside_another_one(settings: Settings) -> None:
    """One worker per data directory; the former one may need seconds to end."""
    lock = locks.take(settings.worker_lock)
    worker = Worker(settings, IDLE)
    assert lock
    assert not worker.start()
    lock.close()
    assert worker.start()
    worker.stop(5)


@pytest.mark.parametrize(
    ("line", "ready"),
    [
        ({"state": "idle"}, True),
        ({"state": "busy"}, True),
        ({"state": "loading"}, False),
        ({"state": "idle", "pid": 1}, False),
        ("of a later version", False),
    ],
)
def test_a_worker_is_ready_when_its_status_line_says_so(
    settings: Settings, line: object, ready: bool
) -> None:
    worker = Worker(settings, IDLE)
    worker.start()
    assert not worker.ready()
    own = {"pid": worker.pid, "updated": time.time()}
    text = json.dumps(own | line if isinstance(line, dict) else line)
    with probe(settings) as connection:
        connection.hset(keys.WORKERS, "some worker", text)
        assert worker.ready() is ready
        connection.delete(keys.WORKERS)
    worker.stop(5)


class Sleepless:
    """Notes what whoever keeps the machine awake is told."""

    def __init__(self) -> None:
        self.ticks: list[tuple[bool, int | None]] = []
        self.closed = False

    def tick(self, busy: bool, worker_pid: int | None) -> None:
        self.ticks.append((busy, worker_pid))

    def close(self) -> None:
        self.closed = True


def test_the_machine_is_kept_awake_by_what_the_worker_says_of_itself(settings: Settings) -> None:
    """Once a second, by the given clock; and no longer than the daemon lives."""
    worker, awake = Worker(settings, IDLE), Sleepless()
    supervisor = Supervisor(settings, worker, awake)
    supervisor.tick(0)
    with probe(settings) as connection:
        for second, state in enumerate(("busy", "idle"), start=1):
            line = {"pid": worker.pid, "updated": time.time(), "state": state}
            connection.hset(keys.WORKERS, "some worker", json.dumps(line))
            supervisor.tick(second)
            supervisor.tick(second + 0.5)
        connection.delete(keys.WORKERS)
    supervisor.stop()
    assert awake.ticks == [(False, worker.pid), (True, worker.pid), (False, worker.pid)]
    assert awake.closed


def test_the_worker_knows_its_data_directory_and_lifeline() -> None:
    """The command is the documented one; the daemon never imports the worker."""
    settings = load_settings({}, home="/nowhere")
    worker = Worker(settings)
    assert isinstance(worker, Child)
    assert worker._argv == [sys.executable, "-m", "thinkq.worker", "--until-eof"]
    assert worker._environ == {"THINKQ_HOME": "/nowhere"}
