"""The workers on a Redis, as they report themselves."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, Literal

import msgspec
import redis
from rq.worker import BaseWorker
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from thinkq.client import keys
from thinkq.client.batches import text

FRESH_S: Final = 30.0
"""A worker writes its line about each second; an older one was left by a crash."""

SILENT_S: Final = 5.0
"""What an older line says of rows and speed is not true any more."""


class WorkerStatus(msgspec.Struct, kw_only=True):
    """One worker's status line."""

    name: str = ""
    """RQ's name of the worker."""
    state: Literal["loading", "idle", "busy", "paused"]
    model: str | None = None
    rows: int = 0
    """Jobs being decoded now."""
    max_batch: int = 0
    note: str = ""
    """What the worker does while it is loading, such as a download's progress."""
    memory_bytes: int = 0
    """Memory of the device that model and caches take."""
    tokens_per_s: float = 0.0
    pid: int = 0
    host: str = ""
    updated: float = 0.0
    """Unix seconds."""

    @property
    def silent_s(self) -> float:
        """Seconds since the worker was heard of, where that is too long; else 0."""
        age = time.time() - self.updated
        return age if age > SILENT_S else 0.0


_decoder = msgspec.json.Decoder(WorkerStatus)


def workers(connection: redis.Redis) -> list[WorkerStatus]:
    """The workers that live. The lines of those that RQ has forgotten are removed.

    While Redis refuses writes they pause, and their lines grow old.
    """
    refused = bool(refusal(connection))
    alive = []
    for name, line in connection.hgetall(keys.WORKERS).items():
        worker = _decoder.decode(line)
        worker.name = text(name)
        if refused:
            worker.state = "paused"
        if refused or time.time() - worker.updated < FRESH_S:
            alive.append(worker)
        elif not connection.exists(f"{BaseWorker.redis_worker_namespace_prefix}{worker.name}"):
            connection.hdel(keys.WORKERS, name)
    return alive


def tokens_per_s(lines: Iterable[WorkerStatus]) -> float:
    """What these workers decode together."""
    return sum(line.tokens_per_s for line in lines if not line.silent_s)


def refusal(connection: redis.Redis) -> str:
    """Why Redis takes no writes now, in its own words; nothing if it does.

    It may be full, or unable to write to its disk.
    """
    try:
        # The write of a key only where it exists already, and it never does.
        connection.set(keys.NEVER, "", xx=True)
    except redis.ResponseError as error:
        return str(error).rstrip(".")
    return ""


def note_of_workers(connection: redis.Redis) -> str:
    """Why nothing ends although jobs wait, or nothing if a worker is at work."""
    states = {worker.state: worker for worker in workers(connection)}
    if not states:
        return "waiting for a worker"
    if states.keys() & {"busy", "idle"}:
        return ""
    if "loading" in states:
        worker = states["loading"]
        return worker.note or f"the worker is loading {worker.model or 'its model'}"
    return "the worker has paused until Redis or its disk has room again"


def registered(connection: redis.Redis) -> bool:
    """Whether RQ knows a living worker on our queues, also one that is still loading its model."""
    names = connection.smembers(WORKERS_BY_QUEUE_KEY % keys.QUEUES["normal"])
    # The set keeps the names of crashed workers; their hashes expire, or carry the time of death.
    return any(
        connection.exists(name) and not connection.hexists(text(name), "death") for name in names
    )
