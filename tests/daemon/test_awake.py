"""The lock against sleep: what is run, and for how long it runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support import wait_until
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.awake import Awake, Holder, hold_command, spawn

CAFFEINATE = """#!/bin/sh
echo "$@" >> "$0.calls"
trap 'echo released >> "$0.calls"; exit' TERM
while kill -0 "$3" 2> /dev/null; do sleep 0.02; done
echo "the worker is gone" >> "$0.calls"
"""
"""Stands in for macOS's own: it writes down how it was called, and ends with the process of -w."""

INHIBIT = """#!/bin/sh
echo "$@" >> "$0.calls"
while [ "${1#--}" != "$1" ]; do shift; done
"$@" &
child=$!
trap 'wait $child; exit' TERM
echo ready >> "$0.calls"
wait $child
"""
"""Stands in for systemd-inhibit: its child is the command that follows its options, and it ends
after that.
"""


class Stage:
    """A directory on PATH with stand-ins, and a worker that can be killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.worker = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
        self.holders: list[Holder] = []

    def install(self, name: str, text: str) -> None:
        program = self.directory / name
        program.write_text(text)
        program.chmod(0o755)

    def calls(self, name: str = "caffeinate") -> list[str]:
        """The lines that a stand-in has written, oldest first."""
        log = self.directory / f"{name}.calls"
        return log.read_text().splitlines() if log.exists() else []

    def spawn(self, argv: Sequence[str]) -> Holder:
        self.holders.append(spawn(argv))
        return self.holders[-1]

    def kill_worker(self) -> None:
        self.worker.kill()
        self.worker.wait()

    def close(self) -> None:
        self.kill_worker()
        assert self.worker.stdin
        self.worker.stdin.close()
        for holder in self.holders:
            holder.kill()
            holder.wait()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    stage = Stage(tmp_path)
    stage.install("caffeinate", CAFFEINATE)
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load_settings({}, home=str(tmp_path))


def test_qw_17_idle_sleep_alone_is_held_off_and_only_while_jobs_run(
    stage: Stage, home: Settings
) -> None:
    """`-i` and never `-d`, tied to the worker; released when the queue is empty."""
    pid = stage.worker.pid
    awake = Awake(home, platform="darwin", spawn=stage.spawn)
    awake.tick(False, pid)
    assert stage.holders == []
    for _ in range(3):
        awake.tick(True, pid)
    wait_until(stage.calls)
    assert stage.calls() == [f"-i -w {pid}"]
    awake.tick(False, pid)
    assert stage.calls() == [f"-i -w {pid}", "released"]
    assert stage.holders[0].poll() is not None
    assert len(stage.holders) == 1


def test_qw_17_the_lock_ends_with_a_killed_worker(stage: Stage, home: Settings) -> None:
    """Nobody ticks here: the daemon may be dead as well."""
    awake = Awake(home, platform="darwin", spawn=stage.spawn)
    awake.tick(True, stage.worker.pid)
    wait_until(stage.calls)
    stage.kill_worker()
    wait_until(lambda: stage.calls()[-1] == "the worker is gone")


def test_the_next_worker_gets_a_lock_of_its_own(stage: Stage, home: Settings) -> None:
    awake = Awake(home, platform="darwin", spawn=stage.spawn)
    awake.tick(True, stage.worker.pid)
    wait_until(stage.calls)
    awake.tick(True, None)
    assert stage.calls()[-1] == "released"
    awake.tick(True, os.getpid())
    wait_until(lambda: stage.calls()[-1] == f"-i -w {os.getpid()}")
    awake.close()
    assert stage.calls()[-1] == "released"


def test_the_display_is_never_kept_on(stage: Stage) -> None:
    """An active display is what users complained of, and is linked to kills by the GPU watchdog."""
    command = hold_command("darwin", 7)
    assert command == [str(stage.directory / "caffeinate"), "-i", "-w", "7"]


gnu_tail = pytest.mark.skipif(sys.platform == "darwin", reason="Linux's tail alone knows --pid")


@gnu_tail
def test_on_linux_systemd_holds_it_until_the_worker_ends(stage: Stage, home: Settings) -> None:
    stage.install("systemd-inhibit", INHIBIT)
    awake = Awake(home, platform="linux", spawn=stage.spawn)
    awake.tick(True, stage.worker.pid)
    wait_until(lambda: stage.calls("systemd-inhibit"))
    called = stage.calls("systemd-inhibit")[0].split()
    assert called[:2] == ["--what=idle:sleep", "--mode=block"]
    assert stage.holders[0].poll() is None, "the lock is held as long as this process lives"
    stage.kill_worker()
    assert stage.holders[0].wait(10) == 0


@gnu_tail
def test_on_linux_the_lock_is_released_when_the_queue_is_empty(
    stage: Stage, home: Settings
) -> None:
    """Together with the command that it runs, which it would else wait for."""
    stage.install("systemd-inhibit", INHIBIT)
    awake = Awake(home, platform="linux", spawn=stage.spawn)
    awake.tick(True, stage.worker.pid)
    wait_until(lambda: "ready" in stage.calls("systemd-inhibit"))
    awake.tick(False, stage.worker.pid)
    assert stage.holders[0].poll() not in (None, -signal.SIGKILL)


def test_a_lock_that_cannot_be_had_is_not_asked_for_again_and_again(
    stage: Stage, home: Settings
) -> None:
    """As systemd-inhibit in a container without D-Bus."""
    stage.install("caffeinate", "#!/bin/sh\nexit 1\n")
    awake = Awake(home, platform="darwin", spawn=stage.spawn)
    awake.tick(True, stage.worker.pid)
    assert stage.holders[0].wait(10) == 1
    for _ in range(3):
        awake.tick(True, stage.worker.pid)
    assert len(stage.holders) == 1


def test_a_holder_that_ignores_sigterm_is_killed(
    stage: Stage, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thinkq.daemon.awake.STOP_S", 0.05)
    stage.install("caffeinate", "#!/bin/sh\ntrap '' TERM\ntouch $0.calls\nsleep 60\n")
    awake = Awake(home, platform="darwin", spawn=stage.spawn)
    awake.tick(True, stage.worker.pid)
    wait_until((stage.directory / "caffeinate.calls").exists)
    awake.close()
    assert stage.holders[0].returncode == -9


def test_without_such_a_program_or_against_the_settings_nothing_is_run(
    stage: Stage, tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = load_settings({}, home=str(tmp_path), keep_awake=False)
    Awake(off, platform="darwin", spawn=stage.spawn).tick(True, stage.worker.pid)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for platform in ("darwin", "linux"):
        Awake(home, platform=platform, spawn=stage.spawn).tick(True, stage.worker.pid)
    assert stage.holders == []


def test_a_program_that_cannot_be_started_ends_nothing(
    stage: Stage, home: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    stage.install("caffeinate", "no program at all")
    awake = Awake(home, platform="darwin", spawn=stage.spawn)
    awake.tick(True, stage.worker.pid)
    awake.tick(True, stage.worker.pid)
    assert [record.message for record in caplog.records if "may go to sleep" in record.message]
    awake.close()
