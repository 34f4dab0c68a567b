"""One line of a result file, in thinkq's form or in OpenAI's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

import msgspec
import redis
from rq.exceptions import DeserializationError
from rq.job import Job as RQJob

from thinkq.client import batches, openai_format
from thinkq.client.errors import InvalidJob, LineError
from thinkq.client.job import decode_payload, job_hash
from thinkq.client.result import JobError, Result
from thinkq.client.serializer import MsgpackSerializer

Format = Literal["thinkq", "openai"]
FORMATS: tuple[Format, ...] = get_args(Format)


class Row(Result, kw_only=True):
    """A result with its place in the input."""

    line: int
    """Physical line of the input, from 1."""
    job_hash: str | None = None
    """Tells on the next run whether the line has changed; null for a line that could not run."""


class _OpenAIRow(msgspec.Struct):
    """What of an OpenAI row is read again: the addition that this project makes to it."""

    thinkq: Row


_row_decoder = msgspec.json.Decoder(Row)
_openai_decoder = msgspec.json.Decoder(_OpenAIRow)
_encoder = msgspec.json.Encoder()


def result_row(result: Result, hash_of_job: str | None) -> Row:
    """The row of a job's result."""
    fields: dict[str, Any] = {name: getattr(result, name) for name in Result.__struct_fields__}
    return Row(**fields, line=batches.line_of(result.job_id), job_hash=hash_of_job)


def stored_rows(connection: redis.Redis, job_ids: Iterable[str]) -> Iterator[Row]:
    """The rows of those jobs that have a result, in the order of the ids."""
    for ids in batches.chunked(job_ids):
        queued = RQJob.fetch_many(ids, connection, serializer=MsgpackSerializer)
        hashes = {job.id: _hash_of(job) for job in queued if job is not None}
        for result in batches.results(connection, ids):
            yield result_row(result, hashes.get(result.job_id))


def _hash_of(job: RQJob) -> str | None:
    try:
        return job_hash(decode_payload(job.args[0]))
    except (InvalidJob, DeserializationError, IndexError):
        return None


def error_row(job_id: str, custom_id: str | None, error: LineError) -> Row:
    """The row of a line that could not run."""
    return Row(
        job_id=job_id,
        custom_id=custom_id,
        status="failed",
        finish_reason="error",
        error=JobError(error.code, error.message),
        line=error.line,
    )


def without_texts(row: Row) -> Row:
    """The row without what may be long."""
    return msgspec.structs.replace(row, thinking=None, answer="", tool_calls=None)


def encode_row(row: Row, form: Format) -> bytes:
    """The row as a line of JSON with its line end."""
    if form == "thinkq":
        return _encoder.encode(row) + b"\n"
    # The texts are in the response already.
    both = openai_format.response_row(row) | {"thinkq": without_texts(row)}
    return _encoder.encode(both) + b"\n"


def decode_row(data: bytes) -> tuple[Row, Format]:
    """The row of a line and its form; an OpenAI row comes without its texts.

    Raises msgspec.DecodeError for anything that is not a row.
    """
    try:
        return _row_decoder.decode(data), "thinkq"
    except msgspec.ValidationError:
        return _openai_decoder.decode(data).thinkq, "openai"
