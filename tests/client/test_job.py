"""What a job may say, from JSON and from Python alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from thinkq.client.errors import InvalidJob
from thinkq.client.job import (
    Job,
    convert_job,
    decode_job,
    decode_payload,
    encode_job,
    encode_payload,
)

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


def code_of(**fields: Any) -> str:
    """The code with which a job is refused, which has to be the same on both ways."""
    codes = set()
    for build in (partial(Job, **fields), partial(decode_job, msgspec.json.encode(fields))):
        with pytest.raises(InvalidJob) as caught:
            build()
        codes.add(caught.value.code)
        assert len(str(caught.value)) < 4096
    (code,) = codes
    return code


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        (-2, "bad_value:thinking_token_budget"),
        (2.5, "bad_type:thinking_token_budget"),
        ("128", "bad_type:thinking_token_budget"),
        (True, "bad_type:thinking_token_budget"),
    ],
)
def test_bu_11_a_budget_has_no_accidental_meaning(budget: object, code: str) -> None:
    assert code_of(messages=HELLO, thinking_token_budget=budget) == code


@pytest.mark.parametrize("budget", [-1, 0, 128, None])
def test_bu_11_what_a_budget_may_be(budget: int | None) -> None:
    assert Job(messages=HELLO, thinking_token_budget=budget).thinking_token_budget == budget


@pytest.mark.parametrize(
    ("fields", "switch"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "low"}, False),
        ({"reasoning_effort": "high"}, True),
        ({"enable_thinking": False}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"reasoning_effort": "low", "enable_thinking": False}, False),
    ],
)
def test_bu_19_all_spellings_meet_in_one_switch(fields: Any, switch: bool | None) -> None:
    assert Job(messages=HELLO, **fields).thinking_switch is switch


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"reasoning_effort": "high", "enable_thinking": False}, "contradiction:thinking"),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
            "contradiction:thinking",
        ),
        ({"reasoning_effort": "none", "thinking_token_budget": 5}, "contradiction:budget"),
        ({"max_tokens": 10, "max_completion_tokens": 20}, "conflict:max_tokens"),
        ({"max_tokens": 100, "thinking_token_budget": 90}, "no_room_for_answer"),
        ({"max_tokens": 0}, "bad_value:max_tokens"),
        ({"max_tokens": 2.0}, "bad_type:max_tokens"),
        ({"temperature": -1}, "bad_value:temperature"),
        ({"top_p": 1.5}, "bad_value:top_p"),
        ({"repetition_penalty": 0}, "bad_value:repetition_penalty"),
        ({"seed": True}, "bad_type:seed"),
        ({"stop": [""]}, "bad_value:stop"),
        ({"custom_id": ""}, "empty:custom_id"),
        ({"custom_id": 7}, "bad_type:custom_id"),
        ({"logit_bias": {"a": 1}}, "bad_value:logit_bias"),
        ({"logit_bias": {"5": 101}}, "bad_value:logit_bias"),
        ({"response_format": {"type": "json_object"}}, "unsupported:response_format"),
        ({"answer_retry": True}, "unsupported:answer_retry"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "unsupported:chat_template_kwargs"),
    ],
)
def test_what_a_job_may_not_say(fields: Any, code: str) -> None:
    assert code_of(messages=HELLO, **fields) == code


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_are_finite(value: float) -> None:
    with pytest.raises(InvalidJob, match="finite"):
        Job(messages=HELLO, temperature=value)


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], "empty_messages"),
        ("hello", "bad_type:messages"),
        ([{"role": "user"}], "missing_field:content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "unsupported:image_url"),
        ([*HELLO, {"role": "assistant", "content": "{"}], "prefill_with_thinking"),
    ],
)
def test_what_messages_may_not_be(messages: Any, code: str) -> None:
    assert code_of(messages=messages) == code


def test_a_prefill_is_taken_with_thinking_off() -> None:
    messages: list[Any] = [*HELLO, {"role": "assistant", "content": "{"}]
    assert Job(messages=messages, enable_thinking=False).messages[-1].content == "{"


def test_parts_are_joined_and_three_spellings_of_old_thinking_are_one() -> None:
    parts = [{"type": "text", "text": "Sum: "}, {"type": "text", "text": "1+1"}]
    for spelling in ("reasoning", "reasoning_content", "thinking"):
        old = {"role": "assistant", "content": "2", spelling: "add"}
        job = convert_job({"messages": [{"role": "user", "content": parts}, old, *HELLO]})
        assert job.messages[0].content == "Sum: 1+1"
        assert job.messages[1].reasoning_content == "add"


def test_an_unknown_field_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidJob, match="did you mean `thinking_token_budget`"):
        convert_job({"messages": HELLO, "thinking_budget": 5})


def test_a_payload_survives_the_queue_and_a_newer_one_is_refused_clearly() -> None:
    job = Job(messages=HELLO, max_completion_tokens=50, metadata={"a": [1, None]})
    assert decode_payload(encode_payload(job)) == job == decode_job(encode_job(job))
    newer = encode_payload(job).replace('"schema":1', '"schema":99')
    with pytest.raises(InvalidJob, match="update the worker"):
        decode_payload(newer)
