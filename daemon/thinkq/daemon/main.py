"""The commands of the daemon."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Final

import click

from thinkq.client import locks
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.child import Child
from thinkq.daemon.stop_request import StopRequest
from thinkq.daemon.supervisor import Supervisor

TICK_S: Final = 0.1

_log = logging.getLogger(__name__)


class AlreadyRunning(ThinkqError):
    """Another daemon uses the data directory."""


@click.group()
def daemon() -> None:
    """Keep Redis and the worker alive.

    \b
    Example:
      thinkq daemon run
    """


@daemon.command()
@click.option("--until-eof", is_flag=True, help="Stop when stdin ends, as when its owner dies.")
def run(until_eof: bool) -> None:
    """Run Redis and the worker, and start them again when they die.

    Stays in the foreground until SIGTERM or Ctrl-C. Its log goes to stderr, those of the two
    into the data directory.

    \b
    Example:
      thinkq daemon run
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        supervise(load_settings(), until_eof=until_eof)
    except ThinkqError as error:
        _log.error("%s", error)
        raise SystemExit(1) from None


def supervise(settings: Settings, *, until_eof: bool, worker: Child | None = None) -> None:
    """Supervise one data directory until a request to stop comes. `worker`: another one than ours.

    Raises AlreadyRunning, CrashLoop, and RedisUnavailable; the children are gone by then.
    """
    lock = locks.take(settings.daemon_lock)
    if lock is None:
        raise AlreadyRunning(
            f"a daemon with pid {locks.holder(settings.daemon_lock)} already runs for "
            f"{settings.home}; stop it first"
        )
    with contextlib.closing(lock), StopRequest(until_eof=until_eof) as stop_request:
        _log.info("thinkq daemon for %s", settings.home)
        supervisor = Supervisor(settings, worker)
        try:
            supervisor.tick(time.monotonic())
            while not stop_request.wait(TICK_S):
                supervisor.tick(time.monotonic())
        finally:
            _log.info("stopping")
            supervisor.stop()
