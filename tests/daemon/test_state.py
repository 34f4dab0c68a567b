"""The state file: what a daemon says of itself, read after its end too."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from thinkq.client import locks
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import state
from thinkq.daemon.state import ChildState, DaemonState, Record, read

WORKER = ChildState(name="worker", state="ready", pid=7, restarts=2)


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load_settings({}, home=str(tmp_path), model="some model")


@contextlib.contextmanager
def alive(home: Settings) -> Iterator[Record]:
    """The record of a daemon that is this process; it is dead once the context is left."""
    lock = locks.take(home.daemon_lock)
    assert lock
    with contextlib.closing(lock):
        yield Record(home)


def test_there_is_no_state_before_the_first_daemon(home: Settings) -> None:
    assert read(home) is None


def test_a_daemon_that_lives_is_read_as_it_wrote(home: Settings) -> None:
    before = time.time()
    with alive(home) as record:
        record.update(state="running", children=[WORKER])
        found = read(home)
    assert found
    assert (found.state, found.pid, found.model) == ("running", os.getpid(), "some model")
    assert found.children == [WORKER]
    assert before <= found.since <= time.time()


def test_one_that_was_killed_is_not_taken_for_alive(home: Settings) -> None:
    """kill -9 lets nobody write; the kernel takes the lock back all the same."""
    with alive(home) as record:
        record.update(state="running", children=[WORKER])
    found = read(home)
    assert found
    assert found.state == "stopped"
    assert found.last_error
    assert f"pid {os.getpid()} was killed" in found.last_error
    assert [(child.state, child.pid) for child in found.children] == [("stopped", None)]


def test_a_crash_loop_is_still_told_when_the_daemon_is_gone(home: Settings) -> None:
    with alive(home) as record:
        record.update(state="crash_loop", last_error="worker ended 3 times")
    found = read(home)
    assert found
    assert (found.state, found.last_error) == ("crash_loop", "worker ended 3 times")


def test_since_is_when_the_state_began_not_when_a_child_changed(home: Settings) -> None:
    with alive(home) as record:
        record.update(state="running")
        first = read(home)
        record.update(children=[WORKER])
        second = read(home)
    assert first
    assert second
    assert first.since == second.since
    assert second.children


def test_the_file_is_written_only_when_something_has_changed(home: Settings) -> None:
    """A tick comes ten times a second, and a disk should sleep."""
    path = home.home_path / "daemon.json"
    with alive(home) as record:
        record.update(state="running", children=[WORKER])
        path.unlink()
        record.update(state="running", children=[WORKER])
    assert not path.exists()


def test_nobody_else_can_read_it_and_nothing_is_left_beside_it(home: Settings) -> None:
    with alive(home):
        assert {path.name for path in home.home_path.iterdir()} == {"daemon.json", "daemon.lock"}
        assert (home.home_path / "daemon.json").stat().st_mode & 0o077 == 0


def test_a_full_disk_does_not_end_the_daemon(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written is written with the next change."""

    def full(path: str, flags: int) -> int:
        raise OSError(28, "No space left on device")

    with alive(home) as record:
        with monkeypatch.context() as patch:
            patch.setattr(state, "private", full)
            record.update(state="running")
        record.update(children=[WORKER])
        found = read(home)
    assert found
    assert (found.state, found.children) == ("running", [WORKER])


@pytest.mark.parametrize("text", [b"", b'{"state": "run', b'{"state": "of a later version"}'])
def test_a_file_that_cannot_be_read_is_none(home: Settings, text: bytes) -> None:
    (home.home_path / "daemon.json").write_bytes(text)
    assert read(home) is None


def test_fields_of_a_later_version_are_no_obstacle(home: Settings) -> None:
    written = DaemonState(state="stopped", pid=1, since=1.0, model="m")
    text = msgspec.json.encode(msgspec.to_builtins(written) | {"new": True})
    (home.home_path / "daemon.json").write_bytes(text)
    assert read(home) == written
