"""One pass over the results of a batch, the newest first; only sums and a few jobs are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import redis

from thinkq.client import batches, keys
from thinkq.client.batches import text
from thinkq.client.report.aggregates import Rate, Top, range_of
from thinkq.client.result import Result

CHUNK: Final = 200
"""Results in memory at once."""
SLOWEST: Final = 10
UNANSWERED: Final = 25
MESSAGES: Final = 5
"""Different messages that are told of each kind of error."""
EXCERPT: Final = 1500
"""Characters that are told of each end of a long text."""


class JobNote(msgspec.Struct, frozen=True):
    """What the page tells of one job."""

    result: Result
    """With excerpts instead of its long texts."""
    seconds: float
    """Reading the prompt and decoding."""

    @property
    def line(self) -> int:
        """Of the input, from 1."""
        return batches.line_of(self.result.job_id)


class Report(msgspec.Struct):
    """What the page tells of a batch."""

    status: batches.BatchStatus
    tally: Counter[str] = msgspec.field(default_factory=Counter)
    """`batches.counts`, summed over all results that are kept."""
    completion_tokens: int = 0
    models: Counter[str] = msgspec.field(default_factory=Counter)
    workers: Counter[str] = msgspec.field(default_factory=Counter)
    thoughts: Counter[tuple[str, int]] = msgspec.field(default_factory=Counter)
    """Jobs by close reason and range of thinking tokens."""
    budgets: Counter[int] = msgspec.field(default_factory=Counter)
    """Jobs that thought, by enforced budget."""
    rate: Rate = msgspec.field(default_factory=Rate)
    slowest: Top[JobNote] = msgspec.field(default_factory=lambda: Top(SLOWEST))
    unanswered: Top[JobNote] = msgspec.field(default_factory=lambda: Top(UNANSWERED))
    errors: dict[str, Counter[str]] = {}
    """Messages by kind of error; "" counts those beyond the first few."""

    @property
    def ended(self) -> int:
        """Jobs whose result is told."""
        return self.tally["done"] + self.tally["failed"] + self.tally["cancelled"]

    @property
    def answered(self) -> int:
        """Jobs with an answer."""
        return self.tally["done"] - self.tally["empty"]

    def add(self, result: Result, ended_ms: int) -> None:
        """Take one result, which came at that time (Unix milliseconds)."""
        self.tally.update(batches.counts(result))
        self.completion_tokens += result.usage.completion_tokens
        if result.model:
            self.models[result.model] += 1
        if result.worker:
            self.workers[result.worker] += 1
        self._add_thought(result)
        self._add_error(result)
        decoded_ms = round(result.timing.decode_s * 1000)
        if result.usage.completion_tokens:
            self.rate.add(result.usage.completion_tokens, ended_ms - decoded_ms, ended_ms)
        note = JobNote(_short(result), result.timing.prefill_s + result.timing.decode_s)
        self.slowest.add(note.seconds, note)
        if batches.unanswered(result):
            self.unanswered.add(-note.line, note)

    def _add_thought(self, result: Result) -> None:
        if result.close_reason == "none":
            return
        self.thoughts[result.close_reason, range_of(result.usage.thinking_tokens)] += 1
        if result.budget.enforced is not None:
            self.budgets[result.budget.enforced] += 1

    def _add_error(self, result: Result) -> None:
        if result.error is None:
            return
        messages = self.errors.setdefault(result.error.kind, Counter())
        known = result.error.message in messages or len(messages) < MESSAGES
        messages[result.error.message if known else ""] += 1


def gather(connection: redis.Redis, batch: str) -> Report:
    """Read all results of the batch. Raises NotFound."""
    report = Report(batches.status(connection, batch))
    seen: set[int] = set()
    for events in batches.chunked(_newest_first(connection, batch), CHUNK):
        # A job that was retried has an event for each of its ends, and one result.
        new = {id: at for id, at in reversed(events) if batches.line_of(id) not in seen}
        seen.update(batches.line_of(id) for id in new)
        for result in batches.results(connection, new):
            report.add(result, new[result.job_id])
    return report


def _newest_first(connection: redis.Redis, batch: str) -> Iterator[tuple[str, int]]:
    """The id of each job that ended, and when (Unix milliseconds)."""
    before = "+"
    while True:
        entries: Any = connection.xrevrange(keys.batch_events(batch), before, count=CHUNK)
        for entry_id, fields in entries:
            yield text(fields[b"job_id"]), int(text(entry_id).partition("-")[0])
        if len(entries) < CHUNK:
            return
        before = f"({text(entries[-1][0])}"


def _short(result: Result) -> Result:
    return msgspec.structs.replace(
        result,
        thinking=_excerpt(result.thinking or ""),
        answer=_excerpt(result.answer),
        tool_calls=None,
        metadata=None,
    )


def _excerpt(long: str) -> str:
    """Both ends of a text: a loop shows at the end."""
    left_out = len(long) - 2 * EXCERPT
    if left_out <= 0:
        return long
    return f"{long[:EXCERPT]}\n[… {left_out:,} characters left out …]\n{long[-EXCERPT:]}"
