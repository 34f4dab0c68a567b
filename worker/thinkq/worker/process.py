"""The worker process: one model, many jobs at once, and books that survive any end of it.

The decode thread has the engine, this one has Redis. Heartbeats need no thread of their own:
nothing here waits; a Redis that fails is left alone for a while and asked again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import select
import signal
import sys
import threading
import time
from typing import Any, Final, Literal

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from thinkq.client import locks
from thinkq.client.connection import connect
from thinkq.client.errors import ThinkqError
from thinkq.client.server import refuse_eviction
from thinkq.client.settings import Settings
from thinkq.client.workers import WorkerStatus
from thinkq.worker.decoder import Decoder
from thinkq.worker.desk import Desk
from thinkq.worker.recovery import host_id
from thinkq.worker.task import Load
from thinkq.worker.timing import Backoff, Every, Naps, Patience

_log = logging.getLogger(__name__)

IDLE_TICK_S: Final = 0.05
"""How often an idle worker looks for jobs."""

STOP_S: Final = 4
"""A worker that was told to stop is gone after so many seconds, whatever hangs."""

State = Literal["loading", "idle", "busy", "paused"]


class Process:
    """The worker. `open`, `tick` again and again, `close`; `run` does all that."""

    def __init__(
        self,
        settings: Settings,
        load: Load,
        *,
        burst: bool = False,
        until_eof: bool = False,
    ) -> None:
        """`load` makes the engine of a model, in the decode thread.

        With `burst` the worker ends when nothing is left to do, with `until_eof` when stdin ends.
        """
        self._settings = settings
        self._burst = burst
        self._until_eof = until_eof
        self._wake = threading.Event()
        self._decoder = Decoder(
            load,
            self._wake.set,
            model=settings.model,
            idle_unload_s=settings.idle_unload_s,
        )
        self._connection = connect(settings)
        # A second try inside redis-py could pop two jobs and tell us of one.
        self._connection.set_retry(Retry(NoBackoff(), 0))
        self._lock: locks.Lock | None = None
        self._desk: Desk | None = None
        self._in_order = False
        self._stopping = False
        self._backoff = Backoff()
        self._heartbeat = Every(settings.heartbeat_s)
        self._four_a_second = Every(0.25)
        self._second = Every(1)
        self._lease = Every(settings.lease_s)
        self._naps = Naps(settings.heartbeat_s)
        self._turn = Patience()
        self._measured = (time.monotonic(), 0)

    def run(self) -> int:
        """Work until a signal, the end of stdin, or in a burst of the work; returns the exit code.

        Raises ThinkqError when another worker runs on the data directory, or the model cannot be
        loaded.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self.open()
        try:
            self._work()
            ended = self.close()
        except Exception:
            _log.exception("the worker has failed")
            os._exit(1)
        if not ended:
            # The interpreter must not be taken down under a thread that is inside MLX.
            os._exit(0)
        if self._decoder.failure:
            raise ThinkqError(self._decoder.failure)
        return 0

    def _work(self) -> None:
        while not self._over():
            self.tick(time.monotonic())
            self._wake.wait(self._pause_s())
            self._wake.clear()

    def _over(self) -> bool:
        if self._until_eof and _stdin_has_ended():
            self._stopping = True
        return self._stopping or self._decoder.failure is not None

    def open(self) -> None:
        """Take the host lock and begin to load the model.

        Raises ThinkqError if a worker runs, or if Redis may drop queued jobs.
        """
        with contextlib.suppress(redis.RedisError):  # It may come later.
            refuse_eviction(self._connection, self._settings)
        path = self._settings.worker_lock
        self._lock = locks.take(path)
        if self._lock is None:
            raise ThinkqError(
                f"a worker (pid {locks.holder(path)}) already runs on {self._settings.home}; "
                "stop it, or give this one a THINKQ_HOME of its own"
            )
        self._decoder.start()

    def close(self) -> bool:
        """Give unfinished jobs back and leave. False if the decode thread is still at work."""
        if self._desk:
            try:
                self._desk.collect()
                self._desk.store()
                self._desk.hand_out(time.monotonic())
                self._desk.give_back()
                self._desk.books.leave()
            except redis.RedisError as error:
                _log.warning("left without Redis (%s); the next worker puts it in order", error)
        stopped = self._decoder.stop(timeout=2)
        self._connection.close()
        if self._lock:
            self._lock.close()
        return stopped

    def tick(self, now: float) -> None:
        """One round of everything; `now` is time.monotonic(). Never waits for the decode thread."""
        self._end_if_hung(now)
        if self._naps.over(now, time.time()):
            self._heartbeat.hurry()
        if self._desk:
            self._desk.collect()
        if self._backoff.due(now):
            try:
                self._serve(now)
            except redis.RedisError as error:
                self._suffer(now, error)
            else:
                self._succeed()
        if self._desk and self._backoff.failing:
            self._desk.store()

    def _serve(self, now: float) -> None:
        desk = self._desk = self._desk or self._new_desk()
        if not self._in_order:
            desk.put_in_order()
            self._in_order = True
        if self._heartbeat.due(now):
            desk.beat()
        desk.admit()
        if self._burst and self._decoder.model and desk.empty:
            self._stopping = True
        desk.hand_out(now)
        if self._four_a_second.due(now):
            desk.end_cancelled()
        if self._second.due(now):
            desk.check_leases()
            desk.books.show(busy=not desk.empty, line=self._status(desk, now))
        if self._lease.due(now):
            desk.maintain()

    def _new_desk(self) -> Desk:
        return Desk(
            self._connection,
            self._settings,
            host_id(self._settings),
            self._decoder,
            self._wake.set,
        )

    def _suffer(self, now: float, error: redis.RedisError) -> None:
        """Redis is gone, full, or cannot write: decoding goes on, and no new job is taken."""
        if not self._backoff.failing:
            _log.warning("Redis fails (%s); no new jobs until it is back", error)
        self._backoff.failed(now)
        self._in_order = False

    def _succeed(self) -> None:
        if self._backoff.failing:
            _log.info("Redis is back")
        self._backoff.succeeded()

    def _status(self, desk: Desk, now: float) -> bytes:
        began, counted = self._measured
        self._measured = (now, self._decoder.tokens)
        line = WorkerStatus(
            name=desk.books.name,
            state=self._state(desk),
            model=self._decoder.model or self._decoder.wanted,
            rows=desk.rows,
            max_batch=self._settings.max_batch,
            note=self._decoder.note,
            memory_bytes=self._decoder.memory,
            tokens_per_s=round((self._decoder.tokens - counted) / max(now - began, 1e-3), 1),
            pid=os.getpid(),
            host=desk.books.host,
            updated=time.time(),
        )
        return msgspec.json.encode(line)

    def _state(self, desk: Desk) -> State:
        if self._decoder.model is None:
            return "loading"
        if desk.suspended:
            return "paused"
        return "idle" if desk.empty else "busy"

    def _pause_s(self) -> float:
        busy = self._desk and not self._desk.empty
        return min(IDLE_TICK_S, self._settings.coalesce_ms / 1000) if busy else IDLE_TICK_S

    def _end_if_hung(self, now: float) -> None:
        waited = self._turn.lasted(now, self._decoder.busy_since)
        if waited > self._settings.hang_s:
            _log.critical("the model has made no progress for %.0f s; the worker ends", waited)
            faulthandler.dump_traceback(file=sys.__stderr__ or 2)
            os._exit(1)

    def _on_signal(self, *_: Any) -> None:
        # Only flags: an Event's lock may be held by the very code that the signal interrupts.
        if self._stopping:
            os._exit(1)
        self._stopping = True
        # By default it kills, even while this thread waits for a Redis that does not answer.
        signal.alarm(STOP_S)


def _stdin_has_ended() -> bool:
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and not os.read(0, 4096)
