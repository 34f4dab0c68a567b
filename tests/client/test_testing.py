"""What the pretended queue does beyond the real one's names: its scripts, and its time."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from thinkq.client import AsyncClient, Client, Result
from thinkq.client.cancel import Cancellation
from thinkq.client.errors import ResultTimeout, ThinkqError
from thinkq.client.testing import AsyncMemoryClient, MemoryClient, Reply, ScriptedAnswers


def asking(text: str = "?", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def saying(reply: Reply | str, **options: Any) -> MemoryClient:
    return MemoryClient(ScriptedAnswers(default=reply), **options)


def test_a_prompt_without_a_reply_fails_by_name() -> None:
    client = MemoryClient(ScriptedAnswers({"known": "yes"}))
    assert client.ask("known").answer == "yes"
    failed = client.ask("unknown")
    assert failed.error
    assert (failed.error.kind, failed.finish_reason) == ("no_reply", "error")
    assert "'unknown'" in failed.error.message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("a b c d ", "natural", "e f", "stop")),
        ({"thinking_token_budget": 4}, ("a b c d ", "natural", "e f", "stop")),
        ({"thinking_token_budget": 3}, ("a b c ", "budget", "e f", "stop")),
        ({"thinking_token_budget": 0}, (None, "budget", "e f", "stop")),
        ({"thinking_token_budget": -1}, ("a b c d ", "natural", "e f", "stop")),
        ({"max_tokens": 4}, ("a b c ", "budget", "e ", "length")),
        ({"max_tokens": 4, "answer_reserve": 2}, ("a b ", "budget", "e f", "stop")),
        ({"reasoning_effort": "none"}, (None, "none", "e f", "stop")),
        ({"include_reasoning": False}, (None, "natural", "e f", "stop")),
    ],
)
def test_the_limits_of_a_job_hold(fields: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Code that sets them sees what they do."""
    result = saying(Reply("e f", thinking="a b c d ")).ask("?", **fields)
    told = (result.thinking, result.close_reason, result.answer, result.finish_reason)
    assert told == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (66, "loop", 2)),
        ({"loop_guard": False, "thinking_token_budget": 100}, (100, "budget", None)),
        ({"thinking_token_budget": 10}, (10, "budget", None)),
    ],
)
def test_a_loop_is_closed(fields: dict[str, Any], expected: tuple[Any, ...]) -> None:
    result = saying(Reply("42", thinking="Let me ", loop="check again. ")).ask("?", **fields)
    told = (result.usage.thinking_tokens, result.close_reason, result.loop_period)
    assert told == expected
    assert result.answer == "42"


def test_usage_adds_up() -> None:
    usage = saying(Reply("e f", thinking="a b c ")).ask("one two").usage
    assert (usage.prompt_tokens, usage.thinking_tokens, usage.answer_tokens) == (2, 3, 2)
    assert usage.completion_tokens == 3 + 2 + usage.control_tokens


def test_the_stream_is_the_stored_result_word_by_word() -> None:
    client = saying(Reply("e  f", thinking="a\nb "))
    (job_id,) = client.submit([asking()]).job_ids
    events = list(client.follow(job_id))
    assert [event.text for event in events if event.type == "delta"] == ["a\n", "b ", "e  ", "f"]
    assert client.result(job_id).answer == "e  f"


def test_an_attempt_that_breaks_off_begins_anew() -> None:
    client = saying(Reply("c d", thinking="a b ", crashes=1))
    (job_id,) = client.submit([asking()]).job_ids
    told = [(event.type, event.text, event.attempt) for event in client.follow(job_id)]
    assert told[:4] == [
        ("start", "", 1),
        ("delta", "a ", 1),
        ("delta", "b ", 1),
        ("restart", "", 2),
    ]
    assert [text for _, text, attempt in told if attempt == 2] == ["", "a ", "b ", "c ", "d", ""]
    result = client.result(job_id)
    assert (result.attempt, result.answer, result.usage.thinking_tokens) == (2, "c d", 2)


def test_time_passes_while_somebody_waits() -> None:
    client = saying(Reply("42", delay=5))
    (job_id,) = client.submit([asking()]).job_ids
    with pytest.raises(ResultTimeout):
        client.result(job_id, timeout=3)
    assert client.result(job_id, timeout=10).answer == "42"
    assert client.clock() == 8, "a start, five quiet steps, a word, the end"


def test_a_status_lets_time_pass() -> None:
    """A loop that polls sees the batch begin and end."""
    batch = saying("a b", max_batch=1).submit([asking("1"), asking("2")])
    seen = []
    while not (status := batch.status()).finished:
        seen.append((status.queued, status.running, status.done))
    assert list(dict.fromkeys(seen)) == [(2, 0, 0), (1, 1, 0), (1, 0, 1), (0, 1, 1)]


def test_the_priority_decides_who_goes_first() -> None:
    client = saying("a", max_batch=1)
    batch = client.submit([asking("1"), asking("2"), asking("3", priority="high")], priority="low")
    order = [result.job_id for result in batch.completed()]
    assert order == [batch.job_ids[2], batch.job_ids[0], batch.job_ids[1]]


def test_a_cancelled_job_keeps_what_it_has_written() -> None:
    client = saying("a b c", max_batch=1)
    batch = client.submit([asking("1"), asking("2")])
    client.step(3)
    assert client.cancel(batch.id) == Cancellation(cancelled=1, stopping=1)
    assert client.cancel(batch.id) == Cancellation(ended=2)
    first, second = batch.completed()
    assert (first.status, first.finish_reason, first.answer) == ("cancelled", "cancelled", "a b ")
    assert (second.status, second.answer, second.warnings) == ("cancelled", "", [])
    assert batch.status().cancelled == 2


def test_waiting_for_ever_is_an_error() -> None:
    client = saying(Reply(delay=math.inf))
    (job_id,) = client.submit([asking()]).job_ids
    with pytest.raises(ThinkqError, match="wait with a timeout"):
        client.result(job_id)


def test_the_fakes_pass_for_the_real_clients() -> None:
    """Code that says that it takes a Client, and asks, takes these."""

    def answer(client: Client) -> str:
        with client:
            return client.ask("?").require_answer()

    async def answer_async(client: AsyncClient) -> str:
        async with client:
            return (await client.ask("?")).require_answer()

    answers = ScriptedAnswers(default="42")
    assert answer(MemoryClient(answers)) == "42"
    assert asyncio.run(answer_async(AsyncMemoryClient(answers))) == "42"


def test_the_async_fake_has_the_same_names() -> None:
    answers = ScriptedAnswers({"slow": Reply(delay=math.inf)}, default=Reply("42", thinking="hm "))

    async def collect(client: AsyncClient, id: str) -> list[Result]:
        return [result async for result in (await client.batch(id)).completed()]

    async def main() -> None:
        client = AsyncMemoryClient(answers)
        batch = await client.submit([asking("1"), asking("2")])
        assert (await batch.status()).queued == 2
        both = await asyncio.gather(collect(client, batch.id), collect(client, batch.id))
        assert [len(results) for results in both] == [2, 2]
        assert [result async for result in batch.results()] == both[0]
        types = [event.type async for event in client.follow(batch.job_ids[0])]
        assert types == ["start", "delta", "delta", "done"]
        (slow,) = (await client.submit([asking("slow")])).job_ids
        with pytest.raises(ResultTimeout):
            await client.result(slow, timeout=3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.result(slow)
        assert await client.cancel(slow) == Cancellation(stopping=1)
        assert (await client.result(slow)).status == "cancelled"

    asyncio.run(main())
