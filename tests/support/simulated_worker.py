"""A worker that follows the protocol of docs/protocol.md with plain commands, and has no model.

Tests of the client use it as the other side; it shares no code with the real worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import redis
from rq.job import Job as RQJob

from thinkq.client import batches, keys
from thinkq.client.job import Job, convert_job, decode_payload
from thinkq.client.result import Result, Usage, encode_result
from thinkq.client.serializer import MsgpackSerializer

Answer = Callable[[str, Job], Result | None]
"""The result of a job; None: it never ends."""


def answered(job_id: str, job: Job, answer: str = "42", **fields: object) -> Result:
    """A result as a worker makes it: answered, unless the fields say otherwise."""
    values: dict[str, object] = {
        "status": "done",
        "finish_reason": "stop",
        "thinking": "hm",
        "close_reason": "natural",
        "usage": Usage(thinking_tokens=3, answer_tokens=2, control_tokens=2, completion_tokens=7),
    }
    if not answer:
        values["warnings"] = ["empty_answer"]
    return msgspec.convert(
        values
        | {"job_id": job_id, "custom_id": job.custom_id, "metadata": job.metadata, "answer": answer}
        | fields,
        Result,
        from_attributes=True,
    )


def some_jobs(topic: str, number: int = 3, **fields: object) -> dict[int, Job]:
    """Jobs by line; the topic makes them those of one test."""
    return {
        line: convert_job(
            {"messages": [{"role": "user", "content": f"{topic} {line}"}], "custom_id": f"c{line}"}
            | fields
        )
        for line in range(1, number + 1)
    }


class SimulatedWorker:
    """Takes jobs from the queues and ends them as told."""

    def __init__(self, connection: redis.Redis) -> None:
        self.connection = connection
        self.taken: list[str] = []

    def register(self, name: str = "simulated") -> None:
        """Be known to RQ as a living worker."""
        self.connection.hset(f"rq:worker:{name}", "birth", "2026-01-01T00:00:00Z")
        self.connection.sadd("rq:workers:thinkq:normal", f"rq:worker:{name}")

    def take(self) -> tuple[str, Job] | None:
        """The next job by priority."""
        for name in keys.QUEUES.values():
            queue = f"rq:queue:{name}"
            # Until the job has ended it stays where no crash can lose it.
            job_id: Any = self.connection.lmove(queue, f"{queue}:intermediate", "LEFT", "RIGHT")
            if job_id:
                self.taken.append(batches.text(job_id))
                return self.taken[-1], self.payload(self.taken[-1])
        return None

    def payload(self, job_id: str) -> Job:
        """The job as it was queued."""
        job = RQJob.fetch(job_id, connection=self.connection, serializer=MsgpackSerializer)
        assert job.func_name == keys.TASK
        return decode_payload(job.args[0])

    def event(self, job_id: str, **fields: str) -> str:
        """Append an entry to the job's stream; its id."""
        entry: dict[Any, Any] = {"attempt": "1", **fields}
        return batches.text(self.connection.xadd(keys.stream(job_id), entry))

    def commit(self, result: Result) -> None:
        """All that ends a job, in one transaction."""
        short = msgspec.structs.replace(result, thinking=None, answer="")
        batch = keys.batch_of(result.job_id)
        with self.connection.pipeline() as pipe:
            for name in keys.QUEUES.values():
                pipe.lrem(f"rq:queue:{name}:intermediate", 1, result.job_id)
            pipe.set(keys.result(result.job_id), encode_result(result))
            pipe.xadd(
                keys.stream(result.job_id),
                {"type": "done", "attempt": result.attempt, "result": encode_result(short)},
            )
            for field, number in batches.counts(result).items():
                pipe.hincrby(keys.batch(batch), field, number)
            pipe.xadd(
                keys.batch_events(batch),
                {
                    "job_id": result.job_id,
                    "status": result.status,
                    "finish_reason": result.finish_reason,
                    "empty": int(result.empty),
                },
            )
            pipe.execute()

    def work(self, answer: Answer = answered) -> int:
        """End every job that is queued; how many they were."""
        count = 0
        while taken := self.take():
            job_id, job = taken
            result = answer(job_id, job)
            if result is None:
                continue
            self.event(job_id, type="start")
            if result.thinking:
                self.event(job_id, type="delta", is_reasoning="1", text=result.thinking)
            if result.answer:
                self.event(job_id, type="delta", is_reasoning="0", text=result.answer)
            self.commit(result)
            count += 1
        return count

    @contextmanager
    def at_work(self, answer: Answer = answered) -> Iterator[None]:
        """Register, and end jobs as they come, until the context is left."""
        self.register()
        stop = threading.Event()

        def loop() -> None:
            while not stop.is_set():
                if not self.work(answer):
                    stop.wait(0.01)

        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
