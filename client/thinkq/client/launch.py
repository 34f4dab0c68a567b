"""Start what is not running, for as long as one command needs it.

The daemon that is started watches its standard input: when this process ends, however it ends, the
pipe closes and the daemon stops itself and its children.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import redis

from thinkq.client import locks, workers
from thinkq.client.connection import ping, probe, unavailable
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings

COMMAND: Final = (sys.executable, "-m", "thinkq.daemon", "run")

START_S: Final = 30.0
STOP_S: Final = 15.0
POLL_S: Final = 0.05

Check = Callable[[], None]
"""Raises ThinkqError once what was started has died."""


@contextmanager
def running(settings: Settings, model: str | None = None) -> Iterator[Check]:
    """Start a daemon if none serves these settings; it ends with the context.

    `model` is the one that a worker started here loads; None: that of the settings. Raises
    ThinkqError if the daemon does not come up, and RedisUnavailable if a Redis that is not ours
    does not answer.
    """
    service = _Service(settings, model)
    try:
        service.check()
        _wait_for_redis(settings, service.check)
        yield service.check
    finally:
        service.close()


def nothing() -> None:
    """The check of what was not started here."""


class _Service:
    """Whoever serves these settings; a daemon of our own once nobody else does."""

    def __init__(self, settings: Settings, model: str | None) -> None:
        self._settings, self._model = settings, model
        self._daemon: _Daemon | None = None
        self._started = False

    def check(self) -> None:
        """Raise ThinkqError once what was started here has died; start it if nobody serves.

        Another command's daemon ends with that command, also in the middle of our jobs.
        """
        if self._daemon is not None:
            if self._daemon.ended and _served(self._settings):
                self._daemon = None  # another command was quicker to start one
            else:
                self._daemon.check()
        elif (self._settings.embedded_redis or not self._started) and not _served(self._settings):
            self._daemon = _Daemon(self._settings, self._model)
        self._started = True

    def close(self) -> None:
        """End what was started here."""
        if self._daemon is not None:
            self._daemon.close()


def _served(settings: Settings) -> bool:
    """Whether a worker, or a daemon that will keep one, is there already."""
    with probe(settings) as connection:
        if settings.embedded_redis:
            if locks.holder(settings.daemon_lock) is not None:
                return True
            return ping(connection) and locks.holder(settings.worker_lock) is not None
        try:
            return workers.registered(connection)
        except redis.RedisError as error:
            raise unavailable(settings, error) from None


def _wait_for_redis(settings: Settings, check: Check) -> None:
    deadline = time.monotonic() + START_S
    with probe(settings) as connection:
        while not ping(connection):
            check()
            if time.monotonic() > deadline:
                raise ThinkqError(
                    f"the daemon has not brought up Redis in {START_S:.0f} s; "
                    f"see {settings.logs_path}"
                )
            time.sleep(POLL_S)


def daemon_log(settings: Settings) -> Path:
    """The log of a daemon in the background, which the daemon itself keeps short."""
    return settings.logs_path / "daemon.log"


def private(path: str, flags: int) -> int:
    """An opener for `open`: nobody else may read the file."""
    return os.open(path, flags, 0o600)


def spawn(
    settings: Settings,
    *arguments: str,
    stdin: int,
    model: str | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a daemon in a session of its own, where no Ctrl-C and no hangup of ours reaches it."""
    log = daemon_log(settings)
    # Each by itself: of the parents that mkdir makes, only the last is private.
    for directory in (settings.home_path, log.parent):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(log, "ab", opener=private) as file:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=stdin,
            stdout=file,
            stderr=file,
            env=_environment(settings, model),
            cwd=cwd,
            umask=0o077,
            start_new_session=True,
        )


class _Daemon:
    """A daemon that watches its stdin: when this process ends, it does."""

    def __init__(self, settings: Settings, model: str | None) -> None:
        self._log = daemon_log(settings)
        self._process = spawn(settings, "--until-eof", stdin=subprocess.PIPE, model=model)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def check(self) -> None:
        """Raise ThinkqError if the daemon has ended."""
        code = self._process.poll()
        if code is not None:
            raise ThinkqError(
                f"the daemon ended with code {code}: {_last_line(self._log)} (more in {self._log})"
            )

    def close(self) -> None:
        """Ask the daemon to end, and wait for it."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment(settings: Settings, model: str | None) -> dict[str, str]:
    environment = os.environ | {"THINKQ_HOME": settings.home}
    if settings.redis_url:
        environment["THINKQ_REDIS_URL"] = settings.redis_url
    if model:
        environment["THINKQ_MODEL"] = model
    return environment


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else "it said nothing"
