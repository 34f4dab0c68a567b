"""OpenAI's batch format: a line in, a row out."""

from __future__ import annotations

import time
from typing import Any, Final

from thinkq.client.errors import InvalidJob
from thinkq.client.job import Job
from thinkq.client.result import Result

URL: Final = "/v1/chat/completions"

INERT: Final = frozenset({"user", "store", "service_tier", "parallel_tool_calls"})
"""Fields of a body that may have any value: they change nothing here."""

NEUTRAL: Final[dict[str, object]] = {"stream": False, "n": 1, "logprobs": False, "top_logprobs": 0}
"""Fields that may be null or have this one value; any other asks for what is not supported."""

BODY_FIELDS: Final = frozenset(Job.__struct_fields__) - {"custom_id"}
LINE_FIELDS: Final = frozenset({"custom_id", "method", "url", "body"})

FINISH_REASONS: Final = {"timeout": "length"}
"""Finish reasons that OpenAI does not know, as those that say the most alike."""


CODES: Final = {"cancelled": "batch_cancelled", "failed": "failed"}
"""Codes of errors that a result does not give a kind."""


def job_fields(line: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The job's fields of an OpenAI batch line, and the names of unknown ones, which are ignored.

    Raises InvalidJob.
    """
    for name in ("custom_id", "method", "url"):
        if line.get(name) is None:
            raise InvalidJob(f"missing_field:{name}", f"missing field `{name}` of an OpenAI line")
    if line["method"] != "POST":
        raise InvalidJob("unsupported_method", "method must be POST")
    if line["url"] != URL:
        raise InvalidJob("unsupported_url", f"url must be {URL}; nothing else is supported")
    body = _merged_body(line["body"])
    for name, value in NEUTRAL.items():
        _refuse_unless(name, body.pop(name, None), value)
    unknown = (line.keys() - LINE_FIELDS) | (body.keys() - BODY_FIELDS - INERT)
    fields = {name: value for name, value in body.items() if name in BODY_FIELDS}
    return fields | {"custom_id": line["custom_id"]}, sorted(unknown)


def _merged_body(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise InvalidJob("bad_type:body", "body must be an object")
    extra = body.get("extra_body")
    if extra is not None and not isinstance(extra, dict):
        raise InvalidJob("bad_type:extra_body", "extra_body must be an object")
    # As OpenAI's own client does it: what is in extra_body wins.
    return {name: value for name, value in body.items() if name != "extra_body"} | (extra or {})


def _refuse_unless(name: str, value: object, neutral: object) -> None:
    # Compared with their types: True is not 1.
    if value is not None and (type(value), value) != (type(neutral), neutral):
        raise InvalidJob(f"unsupported:{name}", f"{name} is not supported; leave it out")


def response_row(result: Result) -> dict[str, Any]:
    """A result as a row of OpenAI's output file: one of `response` and `error` is null."""
    row: dict[str, Any] = {
        "id": f"batch_req_{result.job_id}",
        "custom_id": result.custom_id,
        "response": None,
        "error": None,
    }
    if result.status == "done":
        body = _completion(result)
        row["response"] = {"status_code": 200, "request_id": result.job_id, "body": body}
    elif result.error:
        row["error"] = {"code": result.error.kind, "message": result.error.message}
    else:
        row["error"] = {"code": CODES[result.status], "message": f"the job was {result.status}"}
    return row


def _completion(result: Result) -> dict[str, Any]:
    usage = result.usage
    message: dict[str, Any] = {
        "role": "assistant",
        "content": result.answer,
        "refusal": None,
        "reasoning_content": result.thinking,
    }
    if result.tool_calls:
        message |= {"tool_calls": result.tool_calls, "content": result.answer or None}
    reason = FINISH_REASONS.get(result.finish_reason, result.finish_reason)
    return {
        "id": f"chatcmpl-{result.job_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": result.model or "",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        },
    }
