"""What tests of the worker say about jobs and queues."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from rq import Queue
from rq.executions import Execution

from support.fake_engine import FakeEngine
from support.processes import python
from thinkq.client import batches, keys
from thinkq.client.events import Event, parse_event
from thinkq.client.job import Job, Message
from thinkq.client.queue import JobQueue
from thinkq.client.result import Result
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.settings import Settings
from thinkq.worker.books import Books
from thinkq.worker.lease import Lease
from thinkq.worker.process import Process


def job(prompt: str | int, **fields: object) -> Job:
    """A job for the fake engine."""
    return Job(messages=[Message(role="user", content=str(prompt))], **fields)  # type: ignore[arg-type]


def submit(connection: redis.Redis, batch: str, *jobs: Job) -> list[str]:
    """Queue a batch; returns the job ids."""
    JobQueue(connection).submit(batch, dict(enumerate(jobs, start=1)))
    return batches.job_ids(connection, batch)


def result(connection: redis.Redis, job_id: str) -> Result:
    """The job's result, which must be there."""
    found = batches.find_result(connection, job_id)
    assert found is not None
    return found


def events(connection: redis.Redis, job_id: str) -> list[Event]:
    """All entries of the job's stream."""
    entries: Any = connection.xrange(keys.stream(job_id))
    return [
        parse_event(entry.decode(), {name.decode(): text.decode() for name, text in fields.items()})
        for entry, fields in entries
    ]


def streamed(connection: redis.Redis, job_id: str, *, reasoning: bool) -> str:
    """What a reader has put together of one kind of text when the stream ends."""
    text = ""
    for event in events(connection, job_id):
        if event.type in ("start", "restart"):
            text = ""
        elif event.type == "delta" and event.is_reasoning == reasoning:
            text += event.text
    return text


def queue(connection: redis.Redis, priority: keys.Priority = "normal") -> Queue:
    """RQ's queue of a priority."""
    return Queue(keys.QUEUES[priority], connection=connection, serializer=MsgpackSerializer)


def started(books: Books, *, priority: keys.Priority = "normal") -> Lease:
    """Pop the next job and open an execution of it, as a worker does."""
    (rq_queue,) = (each for each in books.queues if each.name == keys.QUEUES[priority])
    job_id = books.pop(rq_queue)
    assert job_id is not None
    popped = books.popped(rq_queue, job_id)
    assert popped is not None
    lease = books.start(rq_queue, popped)
    assert lease is not None
    return lease


def leases(connection: redis.Redis, priority: keys.Priority = "normal") -> list[str]:
    """The leases held now."""
    members: Any = connection.zrange(queue(connection, priority).started_job_registry.key, 0, -1)
    return [member.decode() for member in members]


def left_over(connection: redis.Redis) -> dict[str, int]:
    """What is still open anywhere in the queues; empty when all is over."""
    found: dict[str, int] = {}
    for priority in keys.QUEUES:
        rq_queue = queue(connection, priority)
        found[f"{priority} queued"] = connection.llen(rq_queue.key)
        found[f"{priority} popped"] = connection.llen(rq_queue.intermediate_queue_key)
        found[f"{priority} leased"] = len(leases(connection, priority))
    found["executions"] = len(connection.keys(Execution("*", "*", connection).key))
    found["attempts"] = connection.hlen(keys.ATTEMPTS)
    found["cancelled"] = connection.scard(keys.CANCELLED)
    return {name: count for name, count in found.items() if count}


def tick_until(
    process: Process, predicate: Callable[[], object], timeout: float = 10.0, ahead: float = 0.0
) -> None:
    """Drive an open worker until the predicate holds, by a clock that is `ahead` seconds ahead."""
    deadline = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < deadline, f"not within {timeout} s"
        process.tick(time.monotonic() + ahead)
        time.sleep(0.001)


@contextmanager
def opened(settings: Settings, engine: FakeEngine | None = None) -> Iterator[Process]:
    """An open worker around the engine; closed at the end."""
    engine = engine or FakeEngine(settings.max_batch)
    process = Process(settings, lambda *_: engine)
    process.open()
    try:
        yield process
    finally:
        if engine.turns:
            engine.turns.release(1000)
        process.close()


def gated(max_batch: int = 4) -> FakeEngine:
    """An engine that makes a turn for each `engine.turns.release()`."""
    return FakeEngine(max_batch, turns=threading.Semaphore(0))


def have_results(connection: redis.Redis, ids: list[str]) -> Callable[[], bool]:
    """Whether all those jobs have a result and nothing is left over."""
    return lambda: (
        connection.exists(*map(keys.result, ids)) == len(ids) and not left_over(connection)
    )


@contextmanager
def worker_process(settings: Settings, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker of its own process around the fake engine; killed at the end."""
    with python("-m", "support.fake_worker", *arguments, **variables(settings)) as process:
        yield process


def variables(settings: Settings) -> dict[str, str]:
    """The settings that matter to a worker, as its environment."""
    names = ("home", "max_batch", "hang_s", "heartbeat_s", "lease_s")
    values = {f"THINKQ_{name.upper()}": str(getattr(settings, name)) for name in names}
    return values | {"THINKQ_REDIS_URL": settings.effective_redis_url}


def done_entries(connection: redis.Redis, job_ids: list[str]) -> list[int]:
    """How often each stream says that its job is done."""
    return [[e.type for e in events(connection, job_id)].count("done") for job_id in job_ids]
