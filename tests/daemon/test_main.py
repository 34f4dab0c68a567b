"""`thinkq daemon run` as a process: one for each data directory, and nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from support import wait_until
from support.processes import python
from thinkq.client import locks
from thinkq.client.connection import ping, probe
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import keeper
from thinkq.daemon.keeper import CrashLoop
from thinkq.daemon.main import daemon
from thinkq.daemon.run import AlreadyRunning, supervise
from thinkq.daemon.supervisor import Worker

DAEMON = """
import logging, sys
from thinkq.client.settings import load_settings
from thinkq.daemon import run
from thinkq.daemon.supervisor import Worker
logging.basicConfig(level=logging.INFO)
settings = load_settings()
worker = Worker(settings, [sys.executable, "-c", sys.argv[1]])
run.supervise(settings, until_eof=True, worker=worker)
"""
"""The daemon with another worker than the one that loads a model."""

IDLE_WORKER = """
import sys
from thinkq.client import locks
from thinkq.client.settings import load_settings
lock = locks.take(load_settings().worker_lock)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load_settings({}, home=str(tmp_path / "home"))


@contextmanager
def running_daemon(home: Settings) -> Iterator[subprocess.Popen[str]]:
    """A daemon whose Redis answers and whose worker runs."""
    former = locks.holder(home.worker_lock)
    with python("-c", DAEMON, IDLE_WORKER, THINKQ_HOME=home.home) as process:
        # Of a former daemon the worker may still be there.
        wait_until(lambda: locks.holder(home.worker_lock) not in (None, former))
        yield process


def is_all_gone(home: Settings) -> bool:
    """Daemon, Redis and worker each hold a lock while they live, which the kernel takes back."""
    all_locks = (home.daemon_lock, home.worker_lock, home.home_path / "redis.lock")
    return all(locks.holder(path) is None for path in all_locks)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything_within_five_seconds(home: Settings, number: int) -> None:
    with running_daemon(home) as process:
        with probe(home) as connection:
            assert ping(connection)
        process.send_signal(number)
        assert process.wait(5) == 0
        assert is_all_gone(home)


def test_the_end_of_stdin_stops_everything(home: Settings) -> None:
    with running_daemon(home) as process:
        assert process.stdin
        process.stdin.close()
        assert process.wait(5) == 0
        assert is_all_gone(home)


def test_kill_9_of_the_daemon_leaves_nothing_behind(home: Settings) -> None:
    with running_daemon(home) as process:
        process.kill()
        wait_until(lambda: is_all_gone(home))


def test_after_kill_9_a_new_daemon_takes_over(home: Settings) -> None:
    with running_daemon(home) as process:
        with probe(home) as connection:
            connection.set("key", "kept")
        process.kill()
    with running_daemon(home), probe(home) as connection:
        assert connection.get("key") == b"kept"


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(home: Settings) -> None:
    with running_daemon(home) as process:
        with pytest.raises(AlreadyRunning, match=rf"pid {process.pid} .*{home.home}"):
            supervise(home, until_eof=False)
        outcome = CliRunner().invoke(daemon, ["run"], env={"THINKQ_HOME": home.home})
        assert outcome.exit_code == 1
        assert process.poll() is None


def test_a_worker_that_cannot_start_ends_the_daemon_and_redis(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "FIRST_DELAY_S", 0.0)
    broken = Worker(home, ["/bin/sh", "-c", "echo no such model; exit 1"])
    with pytest.raises(CrashLoop, match="no such model"):
        supervise(home, until_eof=False, worker=broken)
    assert is_all_gone(home)


def test_without_a_lifeline_an_empty_stdin_is_no_reason_to_stop(home: Settings) -> None:
    """launchd and systemd start their services with /dev/null."""
    code = DAEMON.replace("until_eof=True", "until_eof=False")
    with python("-c", code, IDLE_WORKER, THINKQ_HOME=home.home) as process:
        assert process.stdin
        process.stdin.close()
        wait_until(lambda: locks.holder(home.worker_lock))
        assert process.poll() is None
        process.terminate()
        assert process.wait(5) == 0


def test_python_m_starts_the_command() -> None:
    with python("-m", "thinkq.daemon", "run", "--help") as process:
        shown, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "--until-eof" in shown
    assert "Example" in shown
