"""The supervisor: one tick looks at every child, in the order in which they need each other."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from typing import Final

import msgspec
import redis

from thinkq.client import locks
from thinkq.client.connection import ping, probe
from thinkq.client.settings import Settings
from thinkq.client.workers import workers
from thinkq.daemon.child import Child
from thinkq.daemon.keeper import Keeper
from thinkq.daemon.redis_server import RedisServer

STOP_S: Final = 5.0
"""The daemon and its children are gone after this time."""

WORKER_STOP_S: Final = 4.0
"""The worker's part of it: it stops first, while Redis still takes its jobs back."""

WORKER: Final = (sys.executable, "-m", "thinkq.worker", "--until-eof")

_log = logging.getLogger(__name__)


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
        with probe(self._settings) as connection:
            try:
                states = {each.pid: each.state for each in workers(connection)}
            except (redis.RedisError, msgspec.DecodeError):
                return False
        return states.get(self.pid or 0, "loading") != "loading"


class Supervisor:
    """Keeps Redis (where it is the embedded one) and the worker alive."""

    def __init__(self, settings: Settings, worker: Child | None = None) -> None:
        """Raises RedisUnavailable when no server is installed, or the one named is refused."""
        self._settings = settings
        self._redis = Keeper(RedisServer(settings)) if settings.embedded_redis else None
        self._worker = Keeper(worker or Worker(settings))
        if not settings.embedded_redis and not self._redis_answers():
            _log.warning("the Redis of redis_url does not answer; the worker starts when it does")

    def tick(self, now: float) -> None:
        """Start what does not run and is due. `now` is in seconds and never runs backwards.

        Raises CrashLoop when a child cannot be kept alive, and RedisUnavailable where others could
        tamper with the embedded server.
        """
        if self._redis:
            self._redis.tick(now)
        if self._worker.running or self._redis_answers():
            self._worker.tick(now)

    def stop(self) -> None:
        """Stop the worker, then Redis; kill what is left after STOP_S seconds."""
        began = time.monotonic()
        self._worker.stop(WORKER_STOP_S)
        if self._redis:
            self._redis.stop(max(0.1, began + STOP_S - time.monotonic()))

    def _redis_answers(self) -> bool:
        if self._redis:
            # A former server may still answer for a moment; it is not the one to work with.
            return self._redis.ready
        with probe(self._settings) as connection:
            return ping(connection)
