"""The job: what a client asks for, and the checks that need no model.

Field names are those of the OpenAI API and vLLM. Types are checked when a job is read from JSON and
when it is built in Python alike: a bool or a float is not an int, NaN and infinity are errors.
"""

from __future__ import annotations

import difflib
import hashlib
from typing import Any, Literal

import msgspec

from thinkq.client.errors import InvalidJob
from thinkq.client.job_checks import EFFORTS_OFF, Effort, check
from thinkq.client.keys import Priority
from thinkq.client.result import SCHEMA

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Message(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One chat message.

    Lists of text parts are joined; an assistant's old thinking may be given.
    """

    role: Role
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.content, list):
            self.content = "".join(_part_text(part) for part in self.content)
        # Three spellings of one field; a result row's own `thinking` can be pasted back as history.
        self.reasoning_content = self.reasoning_content or self.reasoning or self.thinking
        self.reasoning = self.thinking = None
        # What OpenAI's responses carry and no template reads.
        self.refusal = self.annotations = None
        if self.content is None and not self.tool_calls:
            raise InvalidJob("missing_field:content", f"a {self.role} message has no content")


def _part_text(part: dict[str, Any]) -> str:
    kind = part.get("type")
    if kind != "text":
        raise InvalidJob(
            f"unsupported:{kind}",
            f"a content part of type {str(kind)[:40]!r} is not supported; only text is",
        )
    if not isinstance(part.get("text"), str):
        raise InvalidJob("bad_type:content", "a text part needs a string in `text`")
    return str(part["text"])


class Job(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One chat job. `null` is the default of every option.

    See docs/jobs.md for the meaning of each field.
    """

    messages: list[Message]
    model: str | None = None
    custom_id: str | None = None
    metadata: dict[str, Any] | None = None
    priority: Priority | None = None
    timeout: float | None = None

    reasoning_effort: Effort | None = None
    thinking_token_budget: int | None = None
    include_reasoning: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    answer_reserve: int | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    loop_guard: bool | None = None
    answer_retry: bool | None = None

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_messages(self)
        check(self)

    @property
    def thinking_switch(self) -> bool | None:
        """What all spellings of on and off together say; None: the template decides."""
        if self.enable_thinking is not None:
            return self.enable_thinking
        given = (self.chat_template_kwargs or {}).get("enable_thinking")
        if given is not None:
            return bool(given)
        if self.reasoning_effort is None:
            return None
        return self.reasoning_effort not in EFFORTS_OFF

    @property
    def stop_strings(self) -> list[str]:
        """`stop` as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])


def _check_messages(job: Job) -> None:
    if not isinstance(job.messages, list):
        raise InvalidJob("bad_type:messages", "messages must be a list")
    if not job.messages:
        raise InvalidJob("empty_messages", "messages is empty; a job needs at least one message")
    if not all(isinstance(message, Message) for message in job.messages):
        job.messages = _convert(job.messages, list[Message])


def nearest(name: str, known: tuple[str, ...]) -> str:
    """`; did you mean X?` where one of the known names is close, else nothing."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else ""


def _convert(value: Any, kind: Any) -> Any:
    """msgspec.convert with its errors made into InvalidJob."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def invalid(error: msgspec.ValidationError) -> InvalidJob:
    """msgspec's error as an InvalidJob with a code, the path, and the nearest known name."""
    if isinstance(error.__cause__, InvalidJob):
        return error.__cause__
    text = str(error)
    path = (
        text.rpartition(" - at `$")[2].removesuffix("`").lstrip(".") if " - at `$" in text else ""
    )
    field = path.partition("[")[0].partition(".")[0]
    if "unknown field" in text:
        name = text.partition("unknown field `")[2].partition("`")[0][:64]
        known = (Message if path.startswith("messages") else Job).__struct_fields__
        return InvalidJob(f"unknown_field:{name}", f"unknown field `{name}`{nearest(name, known)}")
    if "missing required field" in text:
        name = text.partition("required field `")[2].partition("`")[0]
        return InvalidJob(
            f"missing_field:{name}", f"missing field `{name}`" + (f" in {path}" if path else "")
        )
    # msgspec repeats a wrong enum value, which may be anything, a misplaced prompt too.
    reason = text.partition(" - at ")[0].partition(" '")[0]
    return InvalidJob(
        f"bad_type:{field or 'line'}",
        f"{path or 'the line'}: {reason[0].lower()}{reason[1:]}"[:1024],
    )


def convert_job(fields: Any) -> Job:
    """A job from plain data (a parsed JSON object). Raises InvalidJob."""
    job: Job = _convert(fields, Job)
    return job


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Job)


def encode_job(job: Job) -> bytes:
    """A job as canonical JSON: fields in the order of the struct, defaults left out.

    Raises InvalidJob for text that is not Unicode.
    """
    try:
        return _encoder.encode(job)
    except UnicodeEncodeError:
        reason = "a text holds a lone surrogate, which is no character; remove it"
        raise InvalidJob("bad_encoding", reason) from None


def decode_job(data: bytes) -> Job:
    """The inverse of `encode_job`. Raises InvalidJob, for broken JSON too."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJob("bad_json", f"not JSON: {error}") from None


class _Envelope(msgspec.Struct, frozen=True):
    schema: int
    job: msgspec.Raw


_envelope_decoder = msgspec.json.Decoder(_Envelope)


def encode_payload(job: Job) -> str:
    """What is queued: the job and the version of its format."""
    return _encoder.encode(_Envelope(SCHEMA, msgspec.Raw(encode_job(job)))).decode()


def decode_payload(payload: object) -> Job:
    """The job of a queued payload. Raises InvalidJob for anything that is not one."""
    try:
        envelope = _envelope_decoder.decode(payload)  # type: ignore[arg-type]  # no text: refused below
    except (msgspec.DecodeError, TypeError) as error:
        raise InvalidJob(
            "bad_payload", f"the payload is not a thinkq job: {str(error)[:200]}"
        ) from None
    if envelope.schema > SCHEMA:
        raise InvalidJob(
            "newer_schema",
            f"the job was written by a newer thinkq (format {envelope.schema}, "
            f"this worker reads {SCHEMA}); update the worker",
        )
    return decode_job(bytes(envelope.job))


def job_hash(job: Job) -> str:
    """16 hex digits of what decides the outcome and the label: the same job, the same hash."""
    return hashlib.sha256(encode_job(job)).hexdigest()[:16]
