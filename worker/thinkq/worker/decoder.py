"""The decode thread: it owns the engine, and with it MLX, and never touches Redis.

MLX's streams belong to the thread that made them, so the model is loaded, fed and run here alone.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from thinkq.client.errors import JobFailed, ThinkqError
from thinkq.client.job import Job
from thinkq.client.result import Result
from thinkq.worker.outcome import failed_result

_log = logging.getLogger(__name__)


class Row(Protocol):
    """A job in the engine. Once it has ended its result is complete, but for the worker's name."""

    @property
    def result(self) -> Result | None: ...


class Engine(Protocol):
    """What the decode thread needs of an engine."""

    @property
    def name(self) -> str: ...

    @property
    def free(self) -> int: ...

    def add(
        self,
        job: Job,
        *,
        job_id: str,
        attempt: int = 1,
        queued_s: float = 0.0,
        sink: Callable[[str, bool], None] | None = None,
    ) -> Row: ...

    def turn(self) -> Sequence[Row]: ...

    def cancel(self, row: Any) -> None: ...  # One of its own rows.


@dataclass(eq=False, kw_only=True)
class Task:
    """One job for the decode thread."""

    job: Job
    job_id: str
    attempt: int
    queued_s: float
    sink: Callable[[str, bool], None]
    cancelled: bool = False
    """Set from any thread: the task ends at the next turn with what it has."""
    row: Row | None = None
    result: Result | None = None


class Decoder(threading.Thread):
    """Runs tasks through an engine, as many at once as it has room for."""

    def __init__(self, load: Callable[[], Engine], wake: Callable[[], None]) -> None:
        """`load` is called in this thread; `wake` whenever something has happened."""
        super().__init__(name="decode", daemon=True)
        self.model: str | None = None
        """The loaded model's name; None while it loads."""
        self.failure: str | None = None
        """Why this thread has ended, if it has not been stopped."""
        self.busy_since: float | None = None
        """When the present turn began (time.monotonic), or None between jobs and while loading."""
        self.tokens = 0
        """Tokens decoded so far."""
        self._load = load
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: deque[Task] = deque()
        self._ended: deque[Task] = deque()
        self._rows: list[Task] = []
        self._free = 0
        self._stopping = False

    @property
    def room(self) -> int:
        """How many more tasks can start now."""
        with self._changed:
            return self._free - len(self._waiting)

    def submit(self, task: Task) -> None:
        """Start the task; there must be room."""
        with self._changed:
            self._waiting.append(task)
            self._changed.notify()

    def ended(self) -> list[Task]:
        """The tasks that have ended since the last call; each has its result."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def stop(self, timeout: float) -> bool:
        """End the thread after the present turn. False if that takes over `timeout` seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self.join(timeout)
        return not self.is_alive()

    def run(self) -> None:
        """The thread's life."""
        try:
            while not self._stopping:
                self._decode(self._loaded())
        except ThinkqError as error:
            self.failure = str(error)
        except Exception as error:
            _log_error(error)
            self.failure = f"the model cannot be loaded: {type(error).__name__}: {error}"[:1024]
        self._wake()

    def _loaded(self) -> Engine:
        engine = self._load()
        self.model = engine.name
        _log.info("model %s is loaded", engine.name)
        self._set_free(engine.free)
        return engine

    def _decode(self, engine: Engine) -> None:
        """Turn after turn until the thread is stopped, or the engine fails and must be replaced."""
        while self._wait_for_work():
            self.busy_since = time.monotonic()
            while task := self._next():
                self._add(engine, task)
            try:
                self._turn(engine)
            except Exception as error:
                self._give_up(error)
                return

    def _wait_for_work(self) -> bool:
        with self._changed:
            if not self._rows and not self._waiting:
                self.busy_since = None
            self._changed.wait_for(lambda: self._rows or self._waiting or self._stopping)
            return not self._stopping

    def _next(self) -> Task | None:
        with self._changed:
            if not self._waiting or self._free < 1:
                return None
            self._free -= 1
            return self._waiting.popleft()

    def _add(self, engine: Engine, task: Task) -> None:
        try:
            task.row = engine.add(
                task.job,
                job_id=task.job_id,
                attempt=task.attempt,
                queued_s=task.queued_s,
                sink=task.sink,
            )
            self._rows.append(task)
        except JobFailed as error:
            self._fail(task, error)
        except Exception as error:
            self._fail(task, _internal(error))
        self._set_free(engine.free)
        self.busy_since = time.monotonic()

    def _turn(self, engine: Engine) -> None:
        if not self._rows:
            return
        for task in self._rows:
            if task.cancelled and task.row is not None:
                engine.cancel(task.row)
        self.tokens += len(self._rows)
        ended = {id(row): row for row in engine.turn()}
        self._set_free(engine.free)
        for task in [task for task in self._rows if id(task.row) in ended]:
            result = ended[id(task.row)].result
            assert result is not None, "the engine returned a row that has not ended"
            self._rows.remove(task)
            self._end(task, result)

    def _give_up(self, error: Exception) -> None:
        """An engine that failed in mid-turn is in no known state: its rows fail, it is replaced."""
        self.busy_since = None
        self._set_free(0)
        failure = _internal(error)
        for task in self._rows:
            self._fail(task, failure)
        self._rows = []

    def _fail(self, task: Task, error: JobFailed) -> None:
        self._end(task, failed_result(task.job_id, error, job=task.job, attempt=task.attempt))

    def _end(self, task: Task, result: Result) -> None:
        task.row = None
        task.result = result
        self._ended.append(task)
        self._wake()

    def _set_free(self, free: int) -> None:
        with self._changed:
            self._free = free


def _internal(error: Exception) -> JobFailed:
    _log_error(error)
    return JobFailed(
        "internal", f"the engine failed with {type(error).__name__}; the worker's log says where"
    )


def _log_error(error: Exception) -> None:
    # Where it happened and no more: the text of an exception may repeat a prompt.
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("%s in the decode thread\n%s", type(error).__name__, where)
