"""The pretended server and worker: what clients read of Redis, in a dictionary."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from typing import Any

import msgspec
from rq.job import Job as RQJob

from thinkq.client import batches, keys
from thinkq.client.batches import BatchStatus
from thinkq.client.cancel import Cancellation
from thinkq.client.events import Event
from thinkq.client.job import Job
from thinkq.client.joblines import JobLines
from thinkq.client.result import Result, decode_result, encode_result
from thinkq.client.steps import Call, Step
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
        self._jobs: dict[str, Job] = {}
        self._queues: dict[keys.Priority, list[Row]] = {name: [] for name in keys.QUEUES}
        self._rows: list[Row] = []
        self._entries = 0

    def submit(self, id: str, jobs: JobLines, name: str) -> int:
        """Queue those jobs that the batch lacks; how many they were."""
        batch = self.batches.setdefault(id, Batch(name, time.time()))
        self._data[keys.batch(id)] = batch
        before = len(batch.job_ids)
        for line, job in jobs.items():
            if (job_id := keys.job_id(id, line)) not in self._jobs:
                batch.job_ids.append(job_id)
                self._queue(job_id, job)
        batch.job_ids.sort(key=batches.line_of)
        return len(batch.job_ids) - before

    def cancel(self, job_ids: list[str]) -> Cancellation:
        """End those jobs that have not ended."""
        wanted = set(job_ids)
        waiting = [row for queue in self._queues.values() for row in queue if row.job_id in wanted]
        running = [row for row in self._rows if row.job_id in wanted]
        for row in (*waiting, *running):
            self._end(row, row.result("cancelled"))
        ended = len(wanted) - len(waiting) - len(running)
        return Cancellation(cancelled=len(waiting), stopping=len(running), ended=ended)

    def retry(self, id: str) -> int:
        """Queue those jobs of a batch anew that have no answer; how many they were."""
        stored = [self._data.get(keys.result(job_id)) for job_id in self.batches[id].job_ids]
        results = [decode_result(data) for data in stored if data]
        unanswered = [result for result in results if batches.unanswered(result)]
        for result in unanswered:
            self.batches[id].tally.subtract(batches.counts(result))
            del self._data[keys.result(result.job_id)], self._data[keys.stream(result.job_id)]
            self._queue(result.job_id, self._jobs[result.job_id])
        return len(unanswered)

    def remove(self, id: str) -> None:
        """Forget a batch whose jobs have ended."""
        for job_id in self.batches.pop(id).job_ids:
            del self._jobs[job_id]
            for key in (keys.result(job_id), keys.stream(job_id), RQJob.key_for(job_id)):
                del self._data[key]
        for key in (keys.batch(id), keys.batch_events(id)):
            self._data.pop(key, None)

    def _queue(self, job_id: str, job: Job) -> None:
        self._jobs[job_id] = self._data[RQJob.key_for(job_id)] = job
        row = Row(job_id, job, self._answers.reply_to(job))
        self._queues[job.priority or "normal"].append(row)

    def status(self, id: str) -> BatchStatus:
        """The counts of a batch."""
        batch = self.batches[id]
        running = sum(keys.batch_of(row.job_id) == id for row in self._rows)
        ended = sum(batch.tally[status] for status in ("done", "failed", "cancelled"))
        queued = len(batch.job_ids) - ended - running
        counts = {field: n for field, n in batch.tally.items() if ":" not in field}
        return msgspec.convert(
            {
                "batch": id,
                "name": batch.name,
                "state": "running" if running else "queued" if queued else "finished",
                "created": batch.created,
                "total": len(batch.job_ids),
                "queued": queued,
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

    def ask(self, ask: Step) -> Any:
        """The replies that Redis would give. Waiting for news takes a step."""
        if isinstance(ask, Call):
            return None  # They look for what Redis has lost, and nothing is lost here.
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
