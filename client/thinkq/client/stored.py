"""Jobs as RQ keeps them, read without the worker's machinery."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
import redis
from rq.job import Job as RQJob

from thinkq.client import keys
from thinkq.client.batches import text
from thinkq.client.serializer import MsgpackSerializer


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is in Redis, whatever has become of it."""

    job_id: str
    payload: str
    queue: str
    """RQ's name of it."""
    worker: str = ""
    """The worker that has started it last."""
    started: datetime | None = None
    attempts: int = 0
    """Attempts that were admitted, and not given back uncharged."""

    def label(self) -> Label:
        """What the job carries for its owner; empty if the payload cannot be read."""
        try:
            return _payload_decoder.decode(self.payload).job
        except msgspec.DecodeError:
            return Label()


class Label(msgspec.Struct, frozen=True):
    """What a job carries for its owner and nobody else reads."""

    custom_id: str | None = None
    metadata: dict[str, Any] | None = None


class _Payload(msgspec.Struct):
    job: Label


_payload_decoder = msgspec.json.Decoder(_Payload)

_FIELDS = ("data", "origin", "worker_name", "started_at")


def stored_jobs(connection: redis.Redis, ids: Sequence[str]) -> Iterator[StoredJob]:
    """Those of the jobs that Redis has and thinkq has queued, all in memory."""
    if not ids:
        return
    with connection.pipeline(transaction=False) as pipe:
        for job_id in ids:
            pipe.hmget(RQJob.key_for(job_id), _FIELDS)
        pipe.hmget(keys.ATTEMPTS, ids)
        *stored, attempts = pipe.execute()
    for job_id, fields, attempt in zip(ids, stored, attempts, strict=True):
        data, origin, worker, started = fields
        if (payload := _payload(data)) is not None:
            yield StoredJob(
                job_id=job_id,
                payload=payload,
                queue=text(origin),
                worker=text(worker),
                started=datetime.fromisoformat(text(started)) if started else None,
                attempts=int(attempt or 0),
            )


def _payload(data: bytes | None) -> str | None:
    """The payload, or None where the data is not what thinkq writes."""
    if data is None:
        return None
    try:
        task, _, arguments, _ = MsgpackSerializer.loads(zlib.decompress(data))
    except (zlib.error, msgspec.DecodeError, TypeError, ValueError):
        return None
    if task != keys.TASK or not arguments or not isinstance(arguments[0], str):
        return None
    return str(arguments[0])
