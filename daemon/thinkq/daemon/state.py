"""What the daemon says of itself, in a file that outlives it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from thinkq.client import locks
from thinkq.client.launch import private
from thinkq.client.settings import Settings


class ChildState(msgspec.Struct, frozen=True, kw_only=True):
    """One child of the daemon."""

    name: str
    state: Literal["waiting", "starting", "ready", "stopped"]
    """`waiting`: for its next start; `starting`: it runs and does not do its work yet."""
    pid: int | None = None
    restarts: int = 0
    last_ending: str | None = None
    """How it ended the last time nobody had asked it to, in words."""
    last_ended: float | None = None
    """When that was, in Unix seconds."""


class DaemonState(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon of one data directory."""

    state: Literal["starting", "running", "crash_loop", "stopped"]
    """`starting`: until Redis and the worker have been ready once."""
    pid: int
    since: float
    """When this state began, in Unix seconds."""
    model: str
    """The model of jobs that name none."""
    temporary: bool = False
    """Whether it ends with the command that started it."""
    children: list[ChildState] = []
    last_error: str | None = None
    """A sentence; in a crash loop and after a refusal to start it says what to do."""

    @property
    def alive(self) -> bool:
        """Whether the daemon runs."""
        return self.state in ("starting", "running")


_decoder = msgspec.json.Decoder(DaemonState)


def read(settings: Settings) -> DaemonState | None:
    """The state now, or the one in which the last daemon ended; None if there never was one."""
    try:
        state = _decoder.decode(_path(settings).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    if state.alive and locks.holder(settings.daemon_lock) != state.pid:
        return _ended_without_a_word(state)
    return state


def _ended_without_a_word(state: DaemonState) -> DaemonState:
    error = f"the daemon with pid {state.pid} was killed, or the machine went down under it"
    return msgspec.structs.replace(
        state, state="stopped", children=stopped(state.children), last_error=error
    )


def stopped(children: Iterable[ChildState]) -> list[ChildState]:
    """The same children after their end."""
    return [msgspec.structs.replace(child, state="stopped", pid=None) for child in children]


class Record:
    """The state of the daemon that runs in this process; each change goes to the file."""

    def __init__(self, settings: Settings, *, temporary: bool = False) -> None:
        """Only the holder of the daemon's lock may make one."""
        self._path = _path(settings)
        self._state = DaemonState(
            state="starting",
            pid=os.getpid(),
            since=time.time(),
            model=settings.model,
            temporary=temporary,
        )
        self._write()

    def update(self, **changes: Any) -> None:
        """Change fields of the state."""
        changed = msgspec.structs.replace(self._state, **changes)
        if changed == self._state:
            return
        if changed.state != self._state.state:
            changed = msgspec.structs.replace(changed, since=time.time())
        self._state = changed
        self._write()

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        # A full disk must not end the daemon; the next change writes again.
        with contextlib.suppress(OSError):
            with open(new, "wb", opener=private) as file:
                file.write(msgspec.json.encode(self._state))
            new.replace(self._path)


def _path(settings: Settings) -> Path:
    return settings.home_path / "daemon.json"
