"""What the decode thread works on, and with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from thinkq.client.job import Job
from thinkq.client.result import Result


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

    @property
    def memory(self) -> int: ...

    def close(self) -> None: ...

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
    broken: bool = False
    """The engine failed in a turn with this task: `result` says so, but it may run again."""


Note = Callable[[str], None]
"""Takes a line about the loading of a model, for people."""

Load = Callable[[str, Note], Engine]
"""Loads a model by its name. Raises ThinkqError if that cannot be done."""


def no_note(_: str) -> None:
    """For loading that nobody watches."""
