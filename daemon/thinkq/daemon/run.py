"""The life of a daemon: one for each data directory, until it is told to stop or has to give up."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Final

from thinkq.client import locks
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings
from thinkq.daemon.keeper import CrashLoop
from thinkq.daemon.power import PowerPolicy
from thinkq.daemon.state import Record, stopped
from thinkq.daemon.stop_request import StopRequest
from thinkq.daemon.supervisor import Awake, Supervisor, Worker

TICK_S: Final = 0.1

_log = logging.getLogger(__name__)


class AlreadyRunning(ThinkqError):
    """Another daemon uses the data directory."""


def supervise(
    settings: Settings,
    *,
    until_eof: bool,
    worker: Worker | None = None,
    awake: Awake | None = None,
) -> None:
    """Supervise one data directory until a request to stop comes. `worker`: another one than ours.

    Raises AlreadyRunning, CrashLoop, and RedisUnavailable; the children are gone by then, and the
    state file says why.
    """
    lock = locks.take(settings.daemon_lock)
    if lock is None:
        raise AlreadyRunning(
            f"a daemon with pid {locks.holder(settings.daemon_lock)} already runs for "
            f"{settings.home}; stop it first with `thinkq daemon stop`"
        )
    with contextlib.closing(lock), StopRequest(until_eof=until_eof) as stop_request:
        _log.info("thinkq daemon for %s", settings.home)
        record = Record(settings, temporary=until_eof)
        policy = PowerPolicy(settings)
        try:
            _tick_until_stop(Supervisor(settings, worker, awake), policy, record, stop_request)
        except CrashLoop as error:
            record.update(state="crash_loop", last_error=str(error))
            raise
        except ThinkqError as error:
            record.update(state="stopped", last_error=str(error))
            raise
        record.update(state="stopped")


def _tick_until_stop(
    supervisor: Supervisor, policy: PowerPolicy, record: Record, stop_request: StopRequest
) -> None:
    try:
        while True:
            policy.tick(time.monotonic())
            supervisor.tick(time.monotonic())
            record.update(
                state="running" if supervisor.ready else "starting", children=supervisor.report()
            )
            if stop_request.wait(TICK_S):
                return
    finally:
        _log.info("stopping")
        policy.close()
        supervisor.stop()
        record.update(children=stopped(supervisor.report()))
