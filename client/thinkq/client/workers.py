"""The workers on a Redis, as they report themselves."""

from __future__ import annotations

import time
from typing import Final, Literal

import msgspec
import redis
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from thinkq.client import keys
from thinkq.client.connection import reason

FRESH_S: Final = 30.0
"""A worker writes its line about each second; an older one was left by a crash."""


class WorkerStatus(msgspec.Struct, kw_only=True):
    """One worker's status line."""

    state: Literal["loading", "idle", "busy", "paused"]
    model: str | None = None
    rows: int = 0
    """Jobs being decoded now."""
    max_batch: int = 0
    tokens_per_s: float = 0.0
    pid: int = 0
    host: str = ""
    updated: float = 0.0
    """Unix seconds."""


_decoder = msgspec.json.Decoder(WorkerStatus)


def workers(connection: redis.Redis) -> list[WorkerStatus]:
    """The workers that live. While Redis refuses writes they pause, and their lines grow old."""
    lines = [_decoder.decode(line) for line in connection.hgetall(keys.WORKERS).values()]
    if refusal(connection):
        return [msgspec.structs.replace(line, state="paused") for line in lines]
    return [line for line in lines if time.time() - line.updated < FRESH_S]


def refusal(connection: redis.Redis) -> str:
    """Why Redis takes no writes now, in its own words; nothing if it does.

    It may be full, or unable to write to its disk.
    """
    try:
        # The write of a key only where it exists already, and it never does.
        connection.set(keys.NEVER, "", xx=True)
    except redis.ResponseError as error:
        return reason(error)
    return ""


def note_of_workers(connection: redis.Redis) -> str:
    """Why nothing ends although jobs wait, or nothing if a worker is at work."""
    states = {worker.state: worker for worker in workers(connection)}
    if not states:
        return "waiting for a worker"
    if states.keys() & {"busy", "idle"}:
        return ""
    if "loading" in states:
        return f"the worker is loading {states['loading'].model or 'its model'}"
    return "the worker has paused until Redis or its disk has room again"


def registered(connection: redis.Redis) -> bool:
    """Whether RQ knows a living worker on our queues, also one that is still loading its model."""
    names = connection.smembers(WORKERS_BY_QUEUE_KEY % keys.QUEUES["normal"])
    # The set keeps the names of crashed workers; their hashes expire, or carry the time of death.
    return any(
        connection.exists(name) and not connection.hexists(_key(name), "death") for name in names
    )


def _key(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
