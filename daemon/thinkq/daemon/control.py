"""Start and stop a daemon in the background, and wait until it has come up or is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from thinkq.client import launch, locks
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings
from thinkq.daemon import state
from thinkq.daemon.logs import last_lines
from thinkq.daemon.service import Service, absolute_model, installed
from thinkq.daemon.state import ChildState, DaemonState

START_S: Final = 30.0
"""Redis answers and the worker runs after this time, or something is wrong."""

STOP_S: Final = 10.0
POLL_S: Final = 0.05

Tell = Callable[[str], None]


def tell(text: str) -> None:
    """Say on stderr what happens."""
    print(text, file=sys.stderr, flush=True)


def start(settings: Settings, service: Service, tell: Tell, *, wait: bool) -> None:
    """Start the daemon unless it runs, as a service where it is installed as one.

    Returns once Redis answers and the worker runs; with `wait` once the model is loaded, however
    long that takes. Raises ThinkqError if it does not come up.
    """
    began, process = time.time(), None
    pid = locks.holder(settings.daemon_lock)
    if pid is not None:
        known = state.read(settings)
        note = (
            ", but only until the command ends that started it" if known and known.temporary else ""
        )
        tell(f"already running (pid {pid}){note}")
        began = 0.0
    elif installed(service):
        service.load()
    else:
        process = _spawn(settings)
    _Rise(settings, service, process, began).watch(tell, wait=wait)


def _how_long(settings: Settings) -> str:
    known = state.read(settings)
    return ", but only until the command ends that started it" if known and known.temporary else ""


def _spawn(settings: Settings) -> subprocess.Popen[bytes]:
    model = os.environ.get("THINKQ_MODEL")
    return launch.spawn(
        settings,
        stdin=subprocess.DEVNULL,
        model=absolute_model(model) if model else None,
        cwd=settings.home_path,
    )


class _Rise:
    """A daemon that comes up."""

    def __init__(
        self,
        settings: Settings,
        service: Service,
        process: subprocess.Popen[bytes] | None,
        began: float,
    ) -> None:
        self._settings = settings
        self._log = launch.daemon_log(settings) if process else service.log
        self._process = process
        self._began = began
        self._told: set[str] = set()

    def watch(self, tell: Tell, *, wait: bool) -> None:
        """Tell of each step until all is up. Raises ThinkqError if that does not happen."""
        deadline = time.monotonic() + START_S
        while True:
            now = self._state()
            self._tell_news(now, tell)
            works = now is not None and _works(now)
            if now and (now.state == "running" or (works and not wait)):
                return
            # A model may take hours to download, but by then the worker runs.
            self._give_up_if_over(now, None if works else deadline)
            time.sleep(POLL_S)

    def _tell_news(self, now: DaemonState | None, tell: Tell) -> None:
        for child in now.children if now else []:
            text = step(child) and f"{child.name} {step(child)}"
            if text and text not in self._told:
                self._told.add(text)
                tell(text)

    def _state(self) -> DaemonState | None:
        """The state of this daemon; the file may still tell of the one before."""
        now = state.read(self._settings)
        return now if now and now.since >= self._began else None

    def _give_up_if_over(self, now: DaemonState | None, deadline: float | None) -> None:
        if now and not now.alive:
            raise ThinkqError(now.last_error or "the daemon was stopped before it was up")
        if not now and self._process and self._process.poll() is not None:
            raise ThinkqError(
                f"the daemon has ended: {last_lines(self._log, 1)} (more in {self._log})"
            )
        if deadline is not None and time.monotonic() > deadline:
            raise ThinkqError(
                f"the daemon has not come up in {START_S:.0f} s; "
                f"see `thinkq daemon status` and {self._log}"
            )


def _works(now: DaemonState) -> bool:
    """Whether Redis is there and the worker has been started."""
    return any(child.name == "worker" and child.pid for child in now.children)


def step(child: ChildState) -> str:
    """What there is to say about a child; nothing while it waits for its turn."""
    match child.state:
        case "ready":
            return f"is ready (pid {child.pid})"
        case "starting":
            return f"is starting (pid {child.pid})"
        case _ if child.last_ending:
            return f"{child.last_ending}; it will be started again"
    return ""


def stop(settings: Settings, tell: Tell) -> None:
    """Stop the daemon, if one runs, and wait for its end.

    Raises ThinkqError if it is still there after STOP_S seconds.
    """
    pid = locks.holder(settings.daemon_lock)
    if pid is None:
        tell(f"no daemon runs for {settings.home}")
        return
    if pid == 0:
        raise ThinkqError(f"a daemon runs, but {settings.daemon_lock} does not tell its pid")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while locks.holder(settings.daemon_lock) == pid:
        if time.monotonic() > deadline:
            raise ThinkqError(
                f"the daemon (pid {pid}) has not ended in {STOP_S:.0f} s; "
                f"end it with `kill -9 {pid}`"
            )
        time.sleep(POLL_S)
    tell(f"the daemon (pid {pid}) has stopped")
