"""The checks of a job that need no model: types, ranges, choices, and what contradicts itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

from thinkq.client.errors import InvalidJob

if TYPE_CHECKING:
    from thinkq.client.job import Job

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]

EFFORTS: Final[tuple[Effort, ...]] = ("none", "minimal", "low", "medium", "high", "xhigh")
EFFORTS_OFF: Final = frozenset({"none", "minimal", "low"})
"""Efforts that switch thinking off where the template can."""

NO_BUDGET: Final = -1
"""`thinking_token_budget` of -1: no budget of the job's own, as in vLLM and llama.cpp."""

MIN_ANSWER_TOKENS: Final = 16
"""A stated budget must leave this many of a stated `max_tokens` for the answer."""

Limits = tuple[type, float | None, float | None]
"""Type of a number (int or float), its least and its greatest value; None: no such limit."""

NUMBERS: Final[dict[str, Limits]] = {
    "thinking_token_budget": (int, NO_BUDGET, None),
    "max_tokens": (int, 1, None),
    "max_completion_tokens": (int, 1, None),
    "answer_reserve": (int, 0, None),
    "top_k": (int, -1, 2**31 - 1),
    "seed": (int, -(2**63), 2**64 - 1),
    "timeout": (float, 0, None),
    "temperature": (float, 0, 100),
    "top_p": (float, 0, 1),
    "min_p": (float, 0, 1),
    "presence_penalty": (float, -2, 2),
    "frequency_penalty": (float, -2, 2),
    "repetition_penalty": (float, 0, 100),
}
"""The limits of every number."""

_PLAIN: Final[tuple[tuple[str, type, str], ...]] = (
    ("model", str, "a string"),
    ("custom_id", str, "a string"),
    ("metadata", dict, "an object"),
    ("chat_template_kwargs", dict, "an object"),
    ("logit_bias", dict, "an object"),
    ("include_reasoning", bool, "true or false"),
    ("enable_thinking", bool, "true or false"),
    ("loop_guard", bool, "true or false"),
    ("answer_retry", bool, "true or false"),
    ("tools", list, "a list"),
    ("response_format", dict, "an object"),
)


_RENDERING: Final = frozenset(
    {"chat_template", "add_generation_prompt", "continue_final_message", "tokenize", "messages"}
)
"""How a prompt is rendered is not for a job to say."""


def _shown(value: object) -> str:
    """A wrong value as an error may repeat it: never long, never a prompt."""
    if isinstance(value, bool | int | float):
        return f"{value!r}"[:40]
    return f"a {type(value).__name__}"


def check_number(name: str, value: Any, limits: Limits) -> None:
    """Raise InvalidJob unless the value is a number in these limits, or None."""
    kind, low, high = limits
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        expected = "a whole number" if kind is int else "a number"
        raise InvalidJob(f"bad_type:{name}", f"{name} must be {expected}, not {_shown(value)}")
    if not math.isfinite(value):
        raise InvalidJob(f"bad_value:{name}", f"{name} must be a finite number")
    if (low is not None and value < low) or (high is not None and value > high):
        allowed = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidJob(f"bad_value:{name}", f"{name} must be {allowed}, not {_shown(value)}")


def check(job: Job) -> None:
    """Raise InvalidJob for the first fault; joins the two spellings of max_tokens."""
    for name, limits in NUMBERS.items():
        check_number(name, getattr(job, name), limits)
    for name, kind, expected in _PLAIN:
        value = getattr(job, name)
        if value is not None and not isinstance(value, kind):
            raise InvalidJob(f"bad_type:{name}", f"{name} must be {expected}, not {_shown(value)}")
    _check_choices(job)
    _check_combinations(job)


def _check_choices(job: Job) -> None:
    if job.reasoning_effort is not None and job.reasoning_effort not in EFFORTS:
        raise InvalidJob(
            "bad_value:reasoning_effort", f"reasoning_effort must be one of {', '.join(EFFORTS)}"
        )
    if job.priority not in (None, "high", "normal", "low"):
        raise InvalidJob("bad_value:priority", "priority must be high, normal or low")
    if job.custom_id == "":
        raise InvalidJob("empty:custom_id", "custom_id is empty; leave it out or give it a value")
    if job.stop is not None:
        strings = job.stop_strings
        if not all(isinstance(text, str) and text for text in strings):
            raise InvalidJob(
                "bad_value:stop", "stop must be a string or a list of strings, none of them empty"
            )
    for token, bias in (job.logit_bias or {}).items():
        if not str(token).isdecimal():
            raise InvalidJob("bad_value:logit_bias", "the keys of logit_bias must be token ids")
        check_number("logit_bias", bias, (float, -100, 100))
    if job.repetition_penalty == 0:
        raise InvalidJob(
            "bad_value:repetition_penalty", "repetition_penalty must be greater than 0"
        )
    if job.response_format is not None and job.response_format.get("type") != "text":
        raise InvalidJob(
            "unsupported:response_format", "response_format is not supported yet; leave it out"
        )
    for name in _RENDERING & (job.chat_template_kwargs or {}).keys():
        raise InvalidJob(
            "unsupported:chat_template_kwargs",
            f"chat_template_kwargs cannot set {name}; it is for the template's own variables",
        )
    if job.answer_retry:
        raise InvalidJob(
            "unsupported:answer_retry", "answer_retry is not supported yet; leave it out"
        )


def _check_combinations(job: Job) -> None:
    if job.max_completion_tokens is not None:
        if job.max_tokens not in (None, job.max_completion_tokens):
            raise InvalidJob(
                "conflict:max_tokens",
                "max_tokens and max_completion_tokens differ; give one of them",
            )
        job.max_tokens, job.max_completion_tokens = job.max_completion_tokens, None
    budget = job.thinking_token_budget
    if (
        budget is not None
        and budget >= 0
        and job.max_tokens is not None
        and job.max_tokens - budget < MIN_ANSWER_TOKENS
    ):
        raise InvalidJob(
            "no_room_for_answer",
            f"max_tokens {job.max_tokens} leaves fewer than {MIN_ANSWER_TOKENS} tokens "
            f"for the answer after thinking_token_budget {budget}; "
            "raise max_tokens or lower the budget",
        )
    effort, template_options = job.reasoning_effort, job.chat_template_kwargs or {}
    switches = {
        "enable_thinking": job.enable_thinking,
        "chat_template_kwargs.enable_thinking": template_options.get("enable_thinking"),
        "reasoning_effort": None if effort is None else effort not in EFFORTS_OFF,
    }
    said = {name: value for name, value in switches.items() if value is not None}
    if len(set(said.values())) > 1:
        raise InvalidJob(
            "contradiction:thinking", f"{' and '.join(said)} contradict each other about thinking"
        )
    if False in said.values() and budget is not None and budget > 0:
        raise InvalidJob(
            "contradiction:budget",
            f"thinking is off ({', '.join(said)}) but thinking_token_budget is {budget}",
        )
    last = job.messages[-1]
    if last.role == "assistant" and job.thinking_switch is not False:
        raise InvalidJob(
            "prefill_with_thinking",
            "the last message is from the assistant (a prefill), "
            "which works only with thinking off; "
            "set enable_thinking to false or drop that message",
        )
