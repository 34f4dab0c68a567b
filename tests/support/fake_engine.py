"""An engine without a model, for tests of the worker around it. The prompt is the script."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from thinkq.client.errors import JobFailed
from thinkq.client.job import Job
from thinkq.client.result import Result, Usage

NAME = "fake"

Sink = Callable[[str, bool], None]


@dataclass(eq=False)
class FakeRow:
    """A job that writes `words` words of thinking and as many of answer, one word a turn."""

    job_id: str
    job: Job
    attempt: int
    queued_s: float
    sink: Sink
    words: int
    thinking: str = ""
    answer: str = ""
    turns: int = 0
    cancelled: bool = False
    result: Result | None = None

    def turn(self) -> None:
        """Write a word, or end."""
        if self.cancelled or self.turns == 2 * self.words:
            self.result = self._result()
            return
        is_reasoning = self.turns < self.words
        word = f"{'t' if is_reasoning else 'a'}{self.turns} "
        if is_reasoning:
            self.thinking += word
        else:
            self.answer += word
        self.turns += 1
        self.sink(word, is_reasoning)

    def _result(self) -> Result:
        return Result(
            job_id=self.job_id,
            custom_id=self.job.custom_id,
            status="cancelled" if self.cancelled else "done",
            finish_reason="cancelled" if self.cancelled else "stop",
            thinking=self.thinking or None,
            answer=self.answer,
            close_reason="natural",
            usage=Usage(thinking_tokens=self.words, answer_tokens=self.words),
            model=NAME,
            attempt=self.attempt,
        )


@dataclass
class FakeEngine:
    """The prompt is a number of words, or `refuse`, `add fails`, `turn fails`, `hang`, `die`."""

    max_batch: int = 4
    step_s: float = 0.0
    turns: threading.Semaphore | None = None
    """If given, each turn of all rows takes one permit."""
    name: str = NAME
    rows: list[FakeRow] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    """Job ids in the order of their admission."""
    closed: bool = False
    together: list[set[str]] = field(default_factory=list)
    """The prompts of the rows of each turn."""

    @property
    def free(self) -> int:
        return self.max_batch - len(self.rows)

    @property
    def memory(self) -> int:
        return 1000 * len(self.rows)

    def close(self) -> None:
        self.closed = True

    @property
    def busy(self) -> bool:
        return bool(self.rows)

    def add(
        self,
        job: Job,
        *,
        job_id: str,
        attempt: int = 1,
        queued_s: float = 0.0,
        sink: Sink | None = None,
    ) -> FakeRow:
        prompt = str(job.messages[0].content)
        if prompt == "refuse":
            raise JobFailed("context_length_exceeded", "5000 tokens are more than 4096")
        if prompt == "add fails":
            raise RuntimeError(prompt * 2)
        assert sink is not None
        words = int(prompt) if prompt.isdigit() else 3
        row = FakeRow(job_id, job, attempt, queued_s, sink, words)
        self.rows.append(row)
        self.added.append(job_id)
        return row

    def cancel(self, row: FakeRow) -> None:
        row.cancelled = True

    def turn(self) -> list[FakeRow]:
        if self.turns:
            self.turns.acquire()
        prompts = {str(row.job.messages[0].content) for row in self.rows}
        self.together.append(prompts)
        if "die" in prompts:
            os.kill(os.getpid(), signal.SIGKILL)
        if "hang" in prompts:
            threading.Event().wait()
        if "turn fails" in prompts:
            raise RuntimeError("turn fails" * 2)
        time.sleep(self.step_s)  # The time a forward pass takes.
        for row in self.rows:
            row.turn()
        ended = [row for row in self.rows if row.result]
        self.rows = [row for row in self.rows if not row.result]
        return ended
