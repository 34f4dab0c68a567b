"""The supervisor: one tick looks at every child, in the order in which they need each other."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import redis

from thinkq.client import locks
from thinkq.client.connection import ping, probe
from thinkq.client.settings import Settings
from thinkq.client.workers import WorkerStatus, workers
from thinkq.daemon import logs
from thinkq.daemon.child import Child
from thinkq.daemon.keeper import Keeper
from thinkq.daemon.redis_server import RedisServer
from thinkq.daemon.state import ChildState

STOP_S: Final = 5.0
"""The daemon and its children are gone after this time."""

WORKER_STOP_S: Final = 4.0
"""The worker's part of it: it stops first, while Redis still takes its jobs back."""

LOOK_S: Final = 1.0
"""How often the worker is asked whether it is busy, and the logs are measured."""

WORKER: Final = (sys.executable, "-m", "thinkq.worker", "--until-eof")

_log = logging.getLogger(__name__)


class Awake(Protocol):
    """Whoever keeps the machine from sleeping while jobs run."""

    def tick(self, busy: bool, worker_pid: int | None) -> None:
        """Called about each second."""

    def close(self) -> None:
        """Let the machine sleep again."""


class Worker(Child):
    """The process that owns the model."""

    def __init__(self, settings: Settings, argv: Sequence[str] = WORKER) -> None:
        log = settings.logs_path / "worker.log"
        super().__init__("worker", argv, log, {"THINKQ_HOME": settings.home})
        self._settings = settings

    def start(self) -> bool:
        """Start the worker; False while another one still runs on the data directory."""
        if locks.holder(self._settings.worker_lock) is not None:
            return False
        return super().start()

    def ready(self) -> bool:
        """Whether its status line says that the model is loaded."""
        line = self.status()
        return line is not None and line.state != "loading"

    def status(self) -> WorkerStatus | None:
        """Its status line; None while there is none that can be read."""
        with probe(self._settings) as connection:
            try:
                lines = workers(connection)
            except (redis.RedisError, msgspec.DecodeError):
                return None
        return next((line for line in lines if line.pid == self.pid), None)


class Supervisor:
    """Keeps Redis (where it is the embedded one) and the worker alive."""

    def __init__(
        self, settings: Settings, worker: Worker | None = None, awake: Awake | None = None
    ) -> None:
        """Raises RedisUnavailable when no server is installed, or the one named is refused."""
        self._settings = settings
        self._redis = Keeper(RedisServer(settings)) if settings.embedded_redis else None
        self._child = worker or Worker(settings)
        self._worker = Keeper(self._child)
        self._awake = awake
        self._logs = [*logs.daemon_logs(settings), *(each.child.log for each in self._keepers)]
        self._look_at = -math.inf
        self.ready = False
        """Whether all children have been ready."""
        if not settings.embedded_redis and not self._redis_answers():
            _log.warning("the Redis of redis_url does not answer; the worker starts when it does")

    @property
    def _keepers(self) -> list[Keeper]:
        return [self._redis, self._worker] if self._redis else [self._worker]

    def tick(self, now: float) -> None:
        """Start what does not run and is due. `now` is in seconds and never runs backwards.

        Raises CrashLoop when a child cannot be kept alive, and RedisUnavailable where others could
        tamper with the embedded server.
        """
        if self._redis:
            self._redis.tick(now)
        if self._worker.running or self._redis_answers():
            self._worker.tick(now)
        self.ready = self.ready or all(keeper.ready for keeper in self._keepers)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look()

    def report(self) -> list[ChildState]:
        """The children as the state file shows them."""
        return [keeper.report() for keeper in self._keepers]

    def stop(self) -> None:
        """Stop the worker, then Redis; kill what is left after STOP_S seconds."""
        began = time.monotonic()
        if self._awake:
            self._awake.close()
        self._worker.stop(WORKER_STOP_S)
        if self._redis:
            self._redis.stop(max(0.1, began + STOP_S - time.monotonic()))

    def _look(self) -> None:
        for log in self._logs:
            logs.trim(log)
        if self._awake:
            line = self._child.status() if self._worker.running else None
            self._awake.tick(line is not None and line.state == "busy", self._child.pid)

    def _redis_answers(self) -> bool:
        if self._redis:
            # A former server may still answer for a moment; it is not the one to work with.
            return self._redis.ready
        with probe(self._settings) as connection:
            return ping(connection)
