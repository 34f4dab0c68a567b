"""Starting what is not running, with the real daemon and a stand-in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from support import wait_until
from support.simulated_worker import SimulatedWorker
from thinkq.client import launch, locks
from thinkq.client.connection import ping, probe
from thinkq.client.errors import RedisUnavailable, ThinkqError
from thinkq.client.settings import Settings, load_settings


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of an installation where nothing runs; its processes find the package as we do."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return load_settings({}, home=str(tmp_path / "home"))


def stand_in(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Another command in place of the daemon."""
    monkeypatch.setattr(launch, "COMMAND", (sys.executable, "-c", script))


def test_the_daemon_is_started_and_gone_with_the_context(embedded: Settings) -> None:
    """The real daemon, until Redis answers."""
    with launch.running(embedded) as check:
        with probe(embedded) as connection:
            assert ping(connection)
        assert locks.holder(embedded.daemon_lock)
        check()
    assert locks.holder(embedded.daemon_lock) is None
    with probe(embedded) as connection:
        assert not ping(connection)


def test_when_another_commands_daemon_ends_with_it_one_of_our_own_takes_over(
    embedded: Settings,
) -> None:
    """Two runs at once: the first to end must not leave the other waiting."""
    first = launch.running(embedded)
    first.__enter__()
    with launch.running(embedded) as check, probe(embedded) as connection:
        held = locks.holder(embedded.daemon_lock)
        first.__exit__(None, None, None)
        assert locks.holder(embedded.daemon_lock) is None
        check()
        wait_until(lambda: ping(connection), 30)
        assert locks.holder(embedded.daemon_lock) not in (None, held)
        check()
    assert locks.holder(embedded.daemon_lock) is None


def test_the_daemon_ends_when_its_owner_is_killed(embedded: Settings) -> None:
    """SIGKILL leaves nobody to clean up; the closed pipe does."""
    script = (
        "import signal\n"
        "from thinkq.client import launch\n"
        "from thinkq.client.settings import load_settings\n"
        "with launch.running(load_settings()): print('up', flush=True); signal.pause()\n"
    )
    environment = os.environ | {"THINKQ_HOME": embedded.home}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == b"up\n"
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: locks.holder(embedded.daemon_lock) is None, timeout=30)


def test_nothing_is_started_beside_a_daemon_that_runs(
    embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for until its Redis answers."""
    lock = locks.take(embedded.daemon_lock)
    assert lock
    stand_in(monkeypatch, "raise SystemExit(9)")
    answers = iter([False, False, True])
    monkeypatch.setattr(launch, "ping", lambda connection: next(answers))
    with launch.running(embedded) as check:
        check()
    assert list(answers) == []
    lock.close()


def test_a_daemon_that_does_not_start_is_told_with_its_last_words(
    embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "print('first'); print('no room for it'); raise SystemExit(7)")
    with (
        pytest.raises(ThinkqError, match=r"ended with code 7: no room for it .*daemon\.log"),
        launch.running(embedded),
    ):
        pytest.fail("it was not ready")


def test_a_daemon_that_dies_later_is_told_by_the_check(
    embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import sys; sys.stdin.read(); print('gone')")
    monkeypatch.setattr(launch, "ping", lambda connection: True)
    with launch.running(embedded) as check:
        check()
        daemon = check.__self__  # type: ignore[attr-defined]  # a bound method
        daemon.close()
        with pytest.raises(ThinkqError, match="ended with code 0: gone"):
            check()


def test_a_redis_of_ones_own_needs_a_worker_that_lives(
    settings: Settings, connection: redis.Redis, worker: SimulatedWorker
) -> None:
    assert not launch._served(settings)
    worker.register()
    assert launch._served(settings)
    connection.hset("rq:worker:simulated", "death", "2026-01-01T00:00:00Z")
    assert not launch._served(settings)


def test_a_redis_of_ones_own_that_is_away_is_never_started(tmp_path: Path) -> None:
    settings = load_settings({}, home=str(tmp_path), redis_url=f"unix://{tmp_path}/none.sock")
    with pytest.raises(RedisUnavailable, match="no Redis answers at"), launch.running(settings):
        pytest.fail("there is none")


def test_the_worker_loads_the_model_that_is_asked_for(embedded: Settings) -> None:
    environment = launch._environment(embedded, "m")
    assert environment["THINKQ_MODEL"] == "m"
    assert environment["THINKQ_HOME"] == embedded.home
    assert "THINKQ_MODEL" not in launch._environment(embedded, None)
