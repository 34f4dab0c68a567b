"""Logs stay short while their processes run, and private, and can be shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import wait_until
from support.processes import python
from thinkq.client.errors import NotFound
from thinkq.client.launch import daemon_log, private
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import logs
from thinkq.daemon.child import Child
from thinkq.daemon.platforms import service_for
from thinkq.daemon.supervisor import Supervisor, Worker


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    settings = load_settings({}, home=str(tmp_path / "home"))
    settings.logs_path.mkdir(parents=True)
    return settings


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bytes are a long log."""
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 10)


@pytest.mark.usefixtures("short")
def test_a_long_log_is_moved_while_its_process_writes_on(tmp_path: Path) -> None:
    """The process keeps its descriptor: what comes next is at the beginning of the same file."""
    log = tmp_path / "echo.log"
    echo = Child("echo", ["/bin/sh", "-c", "echo the first line; read x; echo second"], log)
    echo.start()
    wait_until(lambda: log.read_text() == "the first line\n")
    logs.trim(log)
    assert log.read_text() == ""
    assert echo._process
    assert echo._process.stdin
    echo._process.stdin.write(b"\n")
    echo._process.stdin.flush()
    wait_until(lambda: log.read_text() == "second\n")
    assert (tmp_path / "echo.log.1").read_text() == "the first line\n"
    echo.stop(5)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.usefixtures("short")
def test_only_one_former_log_is_kept_and_short_ones_are_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    logs.trim(log)
    log.write_text("short")
    logs.trim(log)
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]
    for text in ("the first long one", "the second long one"):
        log.write_text(text)
        logs.trim(log)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.log": "",
        "a.log.1": "the second long one",
    }


@pytest.mark.usefixtures("short")
def test_on_a_full_disk_the_old_lines_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that cannot be copied must not grow for ever."""
    log = tmp_path / "a.log"
    log.write_text("a long line indeed")

    def full(path: str, flags: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(logs, "private", full)
    logs.trim(log)
    assert log.read_text() == ""


@pytest.mark.usefixtures("short")
def test_the_supervisor_keeps_the_logs_of_all_its_processes_short(home: Settings) -> None:
    written = [home.logs_path / f"{name}.log" for name in ("daemon", "worker", "redis")]
    for log in written:
        log.write_text("a long line indeed")
    supervisor = Supervisor(home, Worker(home, ["/bin/cat"]))
    try:
        supervisor.tick(0)
    finally:
        supervisor.stop()
    for log in written:
        assert log.with_name(f"{log.name}.1").read_text().startswith("a long line indeed")


def test_the_log_of_the_service_is_trimmed_too(home: Settings) -> None:
    """launchd writes what the daemon says into a file of its own."""
    assert service_for(home).log in logs.daemon_logs(home)
    assert daemon_log(home) in logs.daemon_logs(home)


@pytest.mark.parametrize(
    ("text", "since", "shown"),
    [
        ("1\n2\n3\n", 0, "2\n3"),
        ("old\nnew\n", 4, "new"),
        ("new\n", 400, "new"),
        ("", 0, ""),
        ("\xff" * 5000 + "\nend\n", 0, None),
    ],
)
def test_last_lines(tmp_path: Path, text: str, since: int, shown: str | None) -> None:
    """Of a log of any length, from where a process began, also if it was trimmed since."""
    log = tmp_path / "a.log"
    log.write_text(text)
    found = logs.last_lines(log, 2, since)
    assert found.endswith("end") if shown is None else found == shown


def test_a_log_that_is_not_there_has_no_last_lines(tmp_path: Path) -> None:
    assert logs.last_lines(tmp_path / "none.log", 5) == ""


def test_of_several_daemon_logs_the_newest_is_shown(home: Settings) -> None:
    other = service_for(home, platform="darwin").log
    other.parent.mkdir(parents=True)
    for seconds, log in enumerate((other, daemon_log(home))):
        log.touch()
        os.utime(log, (seconds, seconds))
    assert logs.present(home, "daemon") == [daemon_log(home)]


def test_logs_that_are_not_there_are_refused_in_a_sentence(home: Settings) -> None:
    with pytest.raises(NotFound, match="no such log"):
        logs.present(home, None)
    (home.logs_path / "redis.log").touch()
    assert logs.present(home, None) == [home.logs_path / "redis.log"]
    with pytest.raises(NotFound, match="no such log"):
        logs.present(home, "worker")


def test_the_command_shows_the_last_lines_and_follows(home: Settings) -> None:
    log = home.logs_path / "worker.log"
    log.write_text("1\n2\n3\n")
    run = ("-m", "thinkq.daemon", "logs", "worker", "-n", "2")
    with python(*run, THINKQ_HOME=home.home) as process:
        shown, said = process.communicate(timeout=30)
    assert (shown, said, process.returncode) == ("2\n3\n", "", 0)
    with python(*run, "-f", THINKQ_HOME=home.home) as process:
        assert process.stdout
        assert [process.stdout.readline() for _ in range(2)] == ["2\n", "3\n"]
        with open(log, "a", opener=private) as file:
            file.write("4\n")
        assert process.stdout.readline() == "4\n"
