"""The pretended server and worker: what clients read of Redis, in a dictionary."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from rq.job import Job as RQJob

from thinkq.client import batches, keys
from thinkq.client.batches import BatchStatus
from thinkq.client.events import Event
from thinkq.client.job import Job
from thinkq.client.result import Result, encode_result
from thinkq.client.steps import Ask
from thinkq.client.testing.reply import ScriptedAnswers
from thinkq.client.testing.row import Row

Entry = tuple[str, dict[str, str]]


class Batch(msgspec.Struct):
    """A batch as it was submitted."""

    name: str
    created: float
    job_ids: list[str] = []
    tally: Counter[str] = msgspec.field(default_factory=Counter)


class Memory:
    """The queue, its streams and results, and a worker that takes a step when it is told to."""

    def __init__(self, answers: ScriptedAnswers, max_batch: int) -> None:
        self._answers, self._max_batch = answers, max_batch
        self.batches: dict[str, Batch] = {}
        self.steps = 0
        """Steps taken so far."""
        self._data: dict[str, Any] = {}
        self._queues: dict[keys.Priority, list[Row]] = {name: [] for name in keys.QUEUES}
        self._rows: list[Row] = []
        self._entries = 0

    def submit(self, id: str, jobs: Mapping[int, Job], name: str) -> None:
        """Queue those jobs that the batch lacks."""
        batch = self.batches.setdefault(id, Batch(name, time.time()))
        self._data[keys.batch(id)] = batch
        for line, job in jobs.items():
            job_id = keys.job_id(id, line)
            if (key := RQJob.key_for(job_id)) not in self._data:
                self._data[key] = job
                batch.job_ids.append(job_id)
                row = Row(job_id, job, self._answers.reply_to(job))
                self._queues[job.priority or "normal"].append(row)
        batch.job_ids.sort(key=batches.line_of)

    def cancel(self, job_ids: list[str]) -> int:
        """End those jobs that have not ended; how many they were."""
        pending = [row for rows in (*self._queues.values(), self._rows) for row in rows]
        wanted = set(job_ids)
        cancelled = [row for row in pending if row.job_id in wanted]
        for row in cancelled:
            self._end(row, row.result("cancelled"))
        return len(cancelled)

    def status(self, id: str) -> BatchStatus:
        """The counts of a batch."""
        batch = self.batches[id]
        running = sum(keys.batch_of(row.job_id) == id for row in self._rows)
        ended = sum(batch.tally[status] for status in ("done", "failed", "cancelled"))
        counts = {field: n for field, n in batch.tally.items() if ":" not in field}
        return msgspec.convert(
            {
                "batch": id,
                "name": batch.name,
                "created": batch.created,
                "total": len(batch.job_ids),
                "queued": len(batch.job_ids) - ended - running,
                "running": running,
                "closes": batches.closes(batch.tally),
                **counts,
            },
            BatchStatus,
        )

    def step(self) -> bool:
        """Let time pass: each running job writes a word or ends; whether anything happened."""
        self.steps += 1
        self._admit()
        before = self._entries
        for row in list(self._rows):
            try:
                event = next(row.turns)
            except StopIteration:
                self._end(row, row.result())
            else:
                if event:
                    self._append(keys.stream(row.job_id), event.fields())
        return self._entries > before

    def _admit(self) -> None:
        for queue in self._queues.values():
            while queue and len(self._rows) < self._max_batch:
                self._rows.append(queue.pop(0))

    def _end(self, row: Row, result: Result) -> None:
        """What a worker commits at once: result, `done`, counts, and the batch's event."""
        for rows in (*self._queues.values(), self._rows):
            if row in rows:
                rows.remove(row)
        short = msgspec.structs.replace(result, thinking=None, answer="")
        done = Event(type="done", attempt=result.attempt, result=encode_result(short).decode())
        batch = keys.batch_of(row.job_id)
        self._data[keys.result(row.job_id)] = encode_result(result)
        self._append(keys.stream(row.job_id), done.fields())
        self.batches[batch].tally.update(batches.counts(result))
        self._append(
            keys.batch_events(batch),
            {
                "job_id": row.job_id,
                "status": result.status,
                "finish_reason": result.finish_reason,
                "empty": "1" if result.empty else "0",
            },
        )

    def _append(self, key: str, fields: dict[str, str]) -> None:
        self._entries += 1
        self._data.setdefault(key, []).append((f"{self._entries}-0", fields))

    def ask(self, ask: Ask) -> Any:
        """The replies that Redis would give. Waiting for news takes a step."""
        replies = [self._reply(*command) for command in ask.commands]
        if ask.waits and not any(replies):
            self.step()
            replies = [self._reply(*command) for command in ask.commands]
        return replies[0] if len(replies) == 1 else replies

    def _reply(self, name: str | int, *arguments: Any) -> Any:
        match name:
            case "XREAD":
                return self._read(*arguments[-2:])
            case "XREVRANGE":
                return self._data.get(arguments[0], [])[-1:]
            case "EXISTS":
                return int(arguments[0] in self._data)
            case "GET":
                return self._data.get(arguments[0])
            case "MGET":
                return [self._data.get(key) for key in arguments]
        raise NotImplementedError(name)

    def _read(self, key: str, after: str) -> list[tuple[str, list[Entry]]] | None:
        entries = self._data.get(key, [])
        news = entries[bisect_right(entries, _number(after), key=lambda entry: _number(entry[0])) :]
        return [(key, news)] if news else None


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])
