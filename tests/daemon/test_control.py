"""Starting and stopping from outside: what is told, and what happens when it does not work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes import python
from thinkq.client import launch, locks
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import control
from thinkq.daemon.platforms import service_for
from thinkq.daemon.service import Recorder, write
from thinkq.daemon.state import ChildState, Record

HOLDER = """
import signal, sys
from thinkq.client import locks
from thinkq.client.settings import load_settings
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = locks.take(load_settings().daemon_lock)
print("held", flush=True)
sys.stdin.read()
"""
"""A daemon that does not listen."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home").mkdir()
    return load_settings({}, home=str(tmp_path / "home"))


StandIn = Callable[[str], None]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Runs a script in place of the daemon; what still runs at the end is killed."""
    processes: list[subprocess.Popen[bytes]] = []
    spawn = launch.spawn

    def noted(settings: Settings, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(spawn(settings, **options))
        return processes[-1]

    def set_script(script: str) -> None:
        monkeypatch.setattr(launch, "COMMAND", (sys.executable, "-c", script))

    monkeypatch.setattr(launch, "spawn", noted)
    yield set_script
    for process in processes:
        process.kill()
        process.wait()


def start(home: Settings, *, wait: bool = False) -> list[str]:
    """Start it as the command does; what was told."""
    told: list[str] = []
    control.start(home, service_for(home), told.append, wait=wait)
    return told


def test_a_daemon_that_ends_at_once_is_told_with_its_last_words(
    home: Settings, stand_in: StandIn
) -> None:
    stand_in("print('first'); print('no such setting'); raise SystemExit(1)")
    with pytest.raises(ThinkqError, match=r"has ended: no such setting .*daemon\.log"):
        start(home)


def test_a_daemon_that_does_nothing_is_not_waited_for_for_ever(
    home: Settings, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "START_S", 0.1)
    stand_in("import time; time.sleep(60)")
    with pytest.raises(ThinkqError, match=r"has not come up.*`thinkq daemon status`"):
        start(home)


def test_the_state_of_the_daemon_before_is_not_taken_for_this_ones(
    home: Settings, stand_in: StandIn
) -> None:
    """Its crash loop is still in the file while the new one comes up."""
    Record(home).update(state="crash_loop", last_error="of yesterday")
    stand_in("raise SystemExit('of today')")
    with pytest.raises(ThinkqError, match="of today"):
        start(home)


def test_the_daemon_gets_a_session_of_its_own_and_private_files(
    home: Settings, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hangup reaches it, it pins no directory, and nobody reads what it writes."""
    script = (
        "import os, sys; print(os.getsid(0) == os.getpid(), os.getcwd(), oct(os.umask(0)), "
        "sys.stdin.read() == '', os.environ['THINKQ_MODEL'])"
    )
    stand_in(script)
    model = home.home_path.parent / "model"
    model.mkdir()
    monkeypatch.chdir(model.parent)
    monkeypatch.setenv("THINKQ_MODEL", "model")
    with pytest.raises(ThinkqError, match=f"True {home.home} 0o77 True {model} "):
        start(home)
    assert launch.daemon_log(home).stat().st_mode & 0o077 == 0


def test_what_runs_is_left_alone(home: Settings, stand_in: StandIn) -> None:
    stand_in("raise SystemExit('a second one was started')")
    lock = locks.take(home.daemon_lock)
    assert lock
    worker = ChildState(name="worker", state="starting", pid=7)
    Record(home).update(children=[worker])
    told = start(home)
    assert told[0].startswith("already running (pid ")
    assert told[1:] == ["worker is starting (pid 7)"]
    lock.close()


def test_a_daemon_that_will_end_with_a_run_is_told_as_such(home: Settings) -> None:
    """Whoever starts one to stay must not find it gone with another command."""
    lock = locks.take(home.daemon_lock)
    assert lock
    Record(home, temporary=True).update(state="running")
    (told,) = start(home)
    assert told.endswith(", but only until the command ends that started it")
    lock.close()


def test_an_installed_service_is_started_as_such(
    home: Settings, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then does the service manager start it again after a crash."""
    monkeypatch.setattr(control, "START_S", 0.0)
    stand_in("raise SystemExit('a process beside the service')")
    commands = Recorder()
    service = service_for(home, commands, "linux")
    write(service, {})
    with pytest.raises(ThinkqError, match="has not come up"):
        control.start(home, service, lambda text: None, wait=False)
    assert commands.commands[-1] == ["systemctl", "--user", "restart", service.path.name]


def test_a_daemon_that_does_not_end_is_told_with_the_remedy(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "STOP_S", 0.1)
    with python("-c", HOLDER, THINKQ_HOME=home.home) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ThinkqError, match=rf"has not ended .*`kill -9 {process.pid}`"):
            control.stop(home, lambda text: None)


def test_a_lock_without_a_pid_is_no_reason_to_signal_anybody(home: Settings) -> None:
    """Signal number or pid 0 would reach our own process group."""
    lock = locks.take(home.daemon_lock)
    assert lock
    home.daemon_lock.write_text("")
    with pytest.raises(ThinkqError, match="does not tell its pid"):
        control.stop(home, lambda text: None)
    lock.close()


@pytest.mark.parametrize(
    ("child", "text"),
    [
        (ChildState(name="redis", state="ready", pid=3), "is ready (pid 3)"),
        (ChildState(name="redis", state="starting", pid=3), "is starting (pid 3)"),
        (ChildState(name="redis", state="waiting"), ""),
        (
            ChildState(name="redis", state="waiting", last_ending="was killed by signal 9"),
            "was killed by signal 9; it will be started again",
        ),
    ],
)
def test_each_step_has_its_words(child: ChildState, text: str) -> None:
    assert control.step(child) == text
