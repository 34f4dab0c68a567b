"""The decode thread: it owns the engine, and with it MLX, and never touches Redis.

MLX's streams belong to the thread that made them, so models are loaded, fed and run here alone, one
at a time.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

from thinkq.client.errors import JobFailed, ThinkqError
from thinkq.client.result import Result
from thinkq.worker.outcome import failed_result
from thinkq.worker.task import Engine, Load, Task

_log = logging.getLogger(__name__)


class Decoder(threading.Thread):
    """Runs tasks through the engine of one model, as many at once as it has room for."""

    def __init__(
        self,
        load: Load,
        wake: Callable[[], None],
        *,
        model: str = "demo",
        idle_unload_s: float | None = None,
    ) -> None:
        """`load` is called in this thread; `wake` whenever something has happened.

        `model` is the one to begin with, and to fall back to. It is unloaded after `idle_unload_s`
        seconds without a task, and loaded again for the next one; None: never.
        """
        super().__init__(name="decode", daemon=True)
        self.wanted = model
        """The name of the model that is loaded, or will be."""
        self.model: str | None = None
        """The loaded model's own name; None while it loads."""
        self.asleep = False
        """The model is unloaded until there is a task."""
        self.note = ""
        """What the loading does just now, such as a download's progress."""
        self.memory = 0
        """Bytes that model and caches take on the device."""
        self.unloadable: dict[str, str] = {}
        """Models that could not be loaded, and why."""
        self.failure: str | None = None
        """Why this thread has ended, if it has not been stopped."""
        self.busy_since: float | None = None
        """When the present turn began (time.monotonic), or None between jobs and while loading."""
        self.tokens = 0
        """Tokens decoded so far."""
        self._default = model
        self._idle_unload_s = idle_unload_s
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

    def use(self, model: str) -> None:
        """Load another model in place of the present one. No task may be here."""
        with self._changed:
            self.model, self.wanted, self._free = None, model, 0
            self._changed.notify()

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
                self._rest()
                self._decode(self.wanted)
        except Exception as error:
            self.failure = _load_failure(error)
        self._wake()

    def _decode(self, model: str) -> None:
        """Turn after turn, until another model is wanted or the engine must be replaced."""
        engine = self._loaded(model)
        if engine is None:
            return
        while self._wait_for_work(model):
            self.busy_since = time.monotonic()
            while task := self._next():
                self._add(engine, task)
            try:
                self._turn(engine)
            except Exception as error:
                self._give_up(error)
                break
        engine.close()

    def _loaded(self, model: str) -> Engine | None:
        """The model's engine; None if it cannot be loaded, and the default one is wanted again.

        Raises what the loading raises if it is the default one.
        """
        if self._stopping:
            return None
        try:
            engine = self._load(model, self._take_note)
        except Exception as error:
            if model == self._default:
                raise
            self._cannot_load(model, _load_failure(error))
            return None
        _log.info("model %s is loaded", engine.name)
        self.model, self.note = engine.name, ""
        self._measure(engine)
        self._wake()
        return engine

    def _cannot_load(self, model: str, reason: str) -> None:
        _log.error("%s", reason)
        self.unloadable[model] = reason
        with self._changed:
            self.wanted, self.note = self._default, ""
            tasks, self._waiting = self._waiting, deque()
        for task in tasks:
            self._fail(task, JobFailed("unknown_model", reason))

    def _take_note(self, text: str) -> None:
        self.note = text

    def _wait_for_work(self, model: str) -> bool:
        """Whether there is some for this model's engine; if not, the engine is to be let go."""
        with self._changed:
            if not self._rows and not self._waiting:
                self.busy_since = None
            if not self._changed.wait_for(lambda: self._called(model), self._idle_unload_s):
                _log.info("model %s is unloaded until there is a job", model)
                self.asleep, self._free, self.memory = True, 1, 0
            return not self._stopping and self.wanted == model and not self.asleep

    def _rest(self) -> None:
        """Without an engine there is room for one task, which ends the rest."""
        with self._changed:
            if self.asleep:
                model = self.wanted
                self._changed.wait_for(lambda: self._called(model))
                self.asleep, self.model = False, None

    def _called(self, model: str) -> bool:
        return bool(self._rows or self._waiting or self._stopping or self.wanted != model)

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
        self._measure(engine)
        self.busy_since = time.monotonic()

    def _turn(self, engine: Engine) -> None:
        if not self._rows:
            return
        for task in self._rows:
            if task.cancelled and task.row is not None:
                engine.cancel(task.row)
        self.tokens += len(self._rows)
        ended = {id(row): row for row in engine.turn()}
        self._measure(engine)
        for task in [task for task in self._rows if id(task.row) in ended]:
            result = ended[id(task.row)].result
            assert result is not None, "the engine returned a row that has not ended"
            self._rows.remove(task)
            self._end(task, result)

    def _give_up(self, error: Exception) -> None:
        """An engine that failed in mid-turn is in no known state: it is replaced.

        One of its rows is to blame, and nobody knows which.
        """
        self.busy_since, self.model = None, None
        with self._changed:
            self._free = 0
        failure = _internal(error)
        for task in self._rows:
            task.broken = True
            self._fail(task, failure)
        self._rows = []

    def _fail(self, task: Task, error: JobFailed) -> None:
        self._end(task, failed_result(task.job_id, error, job=task.job, attempt=task.attempt))

    def _end(self, task: Task, result: Result) -> None:
        task.row = None
        task.result = result
        self._ended.append(task)
        self._wake()

    def _measure(self, engine: Engine) -> None:
        with self._changed:
            self._free, self.memory = engine.free, engine.memory


def _load_failure(error: Exception) -> str:
    if isinstance(error, ThinkqError):
        return str(error)
    _log_error(error)
    return f"the model cannot be loaded: {type(error).__name__}: {error}"[:1024]


def _internal(error: Exception) -> JobFailed:
    _log_error(error)
    return JobFailed(
        "internal", f"the engine failed with {type(error).__name__}; the worker's log says where"
    )


def _log_error(error: Exception) -> None:
    # Where it happened and no more: the text of an exception may repeat a prompt.
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("%s in the decode thread\n%s", type(error).__name__, where)
