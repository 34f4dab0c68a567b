"""What a job comes back with."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from thinkq.client.errors import JobFailed

SCHEMA = 1
"""Version of the job, result and spool formats. A worker refuses a payload that is newer."""

Status = Literal["done", "failed", "cancelled"]
FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "timeout", "error"]
CloseReason = Literal["natural", "budget", "loop", "eos", "deadline", "tool", "length", "none"]


class Budget(msgspec.Struct, frozen=True):
    """The thinking budget in tokens: what the job or its effort asked for, and what was enforced.

    `enforced` null: thinking was not limited, or was off. `by` says how the close is made: by token
    ids, by the encoded text of the marker, or not at all.
    """

    requested: int | None = None
    enforced: int | None = None
    by: Literal["token", "text", "none"] = "none"


class Usage(msgspec.Struct, frozen=True):
    """Counts of token ids, taken in the decode loop; text is never re-tokenised.

    `control_tokens` are markers, forced transition text and end-of-sequence tokens.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    thinking_tokens: int = 0
    answer_tokens: int = 0
    control_tokens: int = 0
    completion_tokens: int = 0
    """The sum of thinking, answer and control tokens."""


class Timing(msgspec.Struct, frozen=True):
    """Seconds: waiting in the queue, prefill, from admission to the first token, decoding."""

    queued_s: float = 0.0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    decode_s: float = 0.0


class JobError(msgspec.Struct, frozen=True):
    """Why a job failed: a stable kind and one sentence, at most 4 KiB."""

    kind: str
    message: str


class Result(msgspec.Struct, kw_only=True):
    """One job's outcome.

    `status` done with an empty `answer` carries the warning `empty_answer`.
    """

    job_id: str
    custom_id: str | None = None
    status: Status
    finish_reason: FinishReason
    thinking: str | None = None
    answer: str = ""
    tool_calls: list[dict[str, Any]] | None = None
    close_reason: CloseReason = "none"
    loop_period: int | None = None
    """Length in tokens of the repeated cycle, where the close reason is loop."""
    budget: Budget = Budget()
    usage: Usage = Usage()
    timing: Timing = Timing()
    model: str | None = None
    worker: str | None = None
    attempt: int = 1
    warnings: list[str] = []
    error: JobError | None = None
    metadata: dict[str, Any] | None = None
    schema: int = SCHEMA

    @property
    def empty(self) -> bool:
        """Whether the job ended without an answer although nothing failed."""
        return self.status == "done" and "empty_answer" in self.warnings

    def require_answer(self) -> str:
        """The answer. Raises JobFailed if the job failed, was cancelled or came back empty."""
        if self.error:
            raise JobFailed(self.error.kind, self.error.message)
        if self.status == "cancelled":
            raise JobFailed("cancelled", f"job {self.job_id} was cancelled")
        if self.empty:
            raise JobFailed(
                "empty_answer",
                f"job {self.job_id} came back empty: raise max_tokens, or set a thinking budget",
            )
        return self.answer


def cancelled_result(job_id: str, custom_id: str | None, metadata: dict[str, Any] | None) -> Result:
    """The result of a job that was cancelled before a worker had begun it."""
    return Result(
        job_id=job_id,
        custom_id=custom_id,
        metadata=metadata,
        status="cancelled",
        finish_reason="cancelled",
    )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Result)


def encode_result(result: Result) -> bytes:
    """A result as one line of JSON without a line break."""
    return _encoder.encode(result)


def decode_result(data: bytes | str) -> Result:
    """The inverse of `encode_result`. Raises msgspec.DecodeError on anything else."""
    return _decoder.decode(data)
