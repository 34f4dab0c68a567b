"""Checks of the queues: workers, and jobs that do not move."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec
import redis
from rq import Queue
from rq.suspension import is_suspended

from thinkq.client import keys
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.workers import FRESH_S, WorkerStatus
from thinkq.daemon.doctor.finding import Installation, ServerCheck, Verdict, counted, ok, warn

POPPED_S: Final = 0.3
"""A worker needs milliseconds between taking a job id and starting the job."""

ASKED: Final = 1000
"""Failed jobs that are asked about, the latest."""

START: Final = "start a worker: `thinkq daemon start`, or `thinkq worker`"


def workers(_: Installation, connection: redis.Redis) -> Verdict:
    """Whether anybody works on what waits."""
    waiting = sum(connection.llen(queue.key) for queue in _queues(connection))
    lines, unreadable = _status_lines(connection)
    living = [line for line in lines if time.time() - line.updated < FRESH_S]
    if waiting and not living:
        return warn(f"waiting: {counted(waiting, 'job')}, and no worker lives", START)
    if len(living) < len(lines) or unreadable:
        old = len(lines) - len(living) + unreadable
        return warn(
            f"still listed, but not heard of any more: {counted(old, 'worker')}",
            "start a worker on their machine; it clears up after them",
        )
    states = ", ".join(f"{line.model or 'a model'} {line.state}" for line in living) or "none"
    return ok(f"{counted(len(living), 'worker')} ({states}), waiting: {counted(waiting, 'job')}")


def suspension(_: Installation, connection: redis.Redis) -> Verdict | None:
    """`rq suspend` stops every worker from taking jobs."""
    if not is_suspended(connection):
        return None
    return warn("all workers are told to take no jobs (rq suspend)", "run `rq resume` to go on")


def popped(_: Installation, connection: redis.Redis) -> Verdict:
    """Jobs that were taken off their queue and not started."""
    before = _popped(connection)
    if before:
        time.sleep(POPPED_S)
    stuck = before & _popped(connection)
    if not stuck:
        return ok("no job is stuck between its queue and a worker")
    return warn(
        f"taken by a worker that died before it began them: {counted(len(stuck), 'job')}", START
    )


def leases(_: Installation, connection: redis.Redis) -> Verdict:
    """Jobs of workers that are not heard of any more."""
    registries = [queue.started_job_registry.key for queue in _queues(connection)]
    expired = sum(connection.zcount(key, "-inf", time.time()) for key in registries)
    running = sum(connection.zcard(key) for key in registries)
    if expired:
        return warn(
            f"with a worker that is not heard of any more: {counted(expired, 'job')}",
            f"{START}; it runs them again",
        )
    return ok(f"with a worker that lives: {counted(running, 'job')}")


def failed(_: Installation, connection: redis.Redis) -> Verdict:
    """Jobs that RQ has failed by itself: whoever waits for their result waits in vain."""
    without = 0
    for queue in _queues(connection):
        members: Any = connection.zrevrange(queue.failed_job_registry.key, 0, ASKED - 1)
        with connection.pipeline(transaction=False) as pipeline:
            for member in members:
                pipeline.exists(keys.result(member.decode()))
            without += pipeline.execute().count(0)
    if without:
        return warn(
            f"failed without a result: {counted(without, 'job')}",
            f"{START}; it gives each the result worker_crashed within a minute",
        )
    return ok("every failed job has a result")


def _queues(connection: redis.Redis) -> list[Queue]:
    names = keys.QUEUES.values()
    return [Queue(name, connection=connection, serializer=MsgpackSerializer) for name in names]


def _popped(connection: redis.Redis) -> set[bytes]:
    lists: list[Any] = [
        connection.lrange(queue.intermediate_queue_key, 0, -1) for queue in _queues(connection)
    ]
    return {job_id for ids in lists for job_id in ids}


def _status_lines(connection: redis.Redis) -> tuple[list[WorkerStatus], int]:
    """The workers' lines, and how many cannot be read."""
    lines, unreadable = [], 0
    for text in connection.hgetall(keys.WORKERS).values():
        try:
            lines.append(msgspec.json.decode(text, type=WorkerStatus))
        except msgspec.DecodeError:
            unreadable += 1
    return lines, unreadable


CHECKS: Final[dict[str, ServerCheck]] = {
    "workers": workers,
    "suspension": suspension,
    "taken jobs": popped,
    "leases": leases,
    "failed jobs": failed,
}
