"""The engine on the shipped model: the same tokens as mlx-lm, and budgets to the token."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import msgspec
import pytest
from mlx_lm.generate import generate_step

from support.scripted import EOS, ScriptCache, ask, natural, scripted_engine
from support.taps import run_tapped
from thinkq.client.job import Job, Message
from thinkq.client.settings import load_settings
from thinkq.worker.demo import evaluation
from thinkq.worker.engine import Engine

HARD = [job for job, _ in evaluation("hard")]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("demo", max_batch=8, settings=load_settings({}, home="/nonexistent"))


def committed(engine: Engine, jobs: Sequence[Job]) -> list[list[int]]:
    """Every token id that each job committed, in order."""
    return [ids for _, ids in run_tapped(engine, jobs)]


def free_running(engine: Engine, job: Job, length: int) -> list[int]:
    """What mlx-lm itself generates for a job, greedily, up to the end of sequence."""
    prompt = engine.tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in job.messages],
        add_generation_prompt=True,
    )
    ids = []
    for token, _ in generate_step(mx.array(prompt), engine.model, max_tokens=length):
        ids.append(int(token))
        if ids[-1] in engine.tokenizer.eos_token_ids:
            break
    return ids


def thinks_on(engine: Engine, job: Job) -> bool:
    """Whether the free run is still thinking after 40 tokens."""
    return len(free_running(engine, job, 40)) == 40


def with_budget(job: Job, budget: int | None, max_tokens: int = 120) -> Job:
    return Job(messages=list(job.messages), thinking_token_budget=budget, max_tokens=max_tokens)


def test_greedy_without_a_budget_gives_the_tokens_of_generate_step(engine: Engine) -> None:
    """Alone, and in a batch in which rows join and leave."""
    jobs = [job for job, _ in evaluation("easy")[:12]]
    expected = [free_running(engine, job, 150) for job in jobs]
    limited = [with_budget(job, None, 600) for job in jobs]
    assert [committed(engine, [job])[0][:150] for job in limited[:3]] == expected[:3]
    batched: list[list[int]] = []
    for start in range(0, len(limited), 8):
        batched += committed(engine, limited[start : start + 8])
    assert [ids[:150] for ids in batched] == expected


@pytest.mark.parametrize("budget", [0, 1, 2, 17])
def test_budget_n_gives_exactly_n_thinking_tokens_of_the_free_run(
    engine: Engine, budget: int
) -> None:
    (close,) = engine.tokenizer.encode("</think>", add_special_tokens=False)
    jobs = [job for job in HARD[:12] if thinks_on(engine, job)][:4]
    assert len(jobs) == 4
    results = engine.run([with_budget(job, budget) for job in jobs])
    tokens = committed(engine, [with_budget(job, budget) for job in jobs])
    for job, result, ids in zip(jobs, results, tokens, strict=True):
        free = free_running(engine, job, 40)
        assert ids[:budget] == free[:budget]
        assert ids[budget] == close
        assert ids.count(close) == 1
        assert result.usage.thinking_tokens == budget
        assert result.close_reason == "budget"
        assert result.answer


def test_the_stream_equals_the_result(engine: Engine) -> None:
    pieces: list[tuple[str, bool]] = []
    job = Job(messages=[Message(role="user", content="What is 47 + 58?")])
    engine.add(job, job_id="j", sink=lambda text, side: pieces.append((text, side)))
    ended = []
    while engine.busy:
        ended += engine.turn()
    (result,) = (row.result for row in ended)
    assert result is not None
    assert "".join(text for text, side in pieces if side) == result.thinking
    assert "".join(text for text, side in pieces if not side) == result.answer


def test_without_include_reasoning_thinking_is_decoded_but_neither_kept_nor_sent(
    engine: Engine,
) -> None:
    sides: list[bool] = []
    job = Job(messages=[Message(role="user", content="What is 47 + 58?")], include_reasoning=False)
    row = engine.add(job, job_id="j", sink=lambda text, side: sides.append(side))
    while engine.busy:
        engine.turn()
    assert row.result is not None
    assert row.result.thinking is None
    assert row.result.answer
    assert row.result.usage.thinking_tokens > 0
    assert not any(sides)


def test_a_seeded_row_does_not_depend_on_its_neighbours(engine: Engine) -> None:
    seeded = Job(messages=HARD[0].messages, temperature=1.0, seed=7, max_tokens=60)
    others = [
        Job(messages=job.messages, temperature=0.7, max_tokens=60, top_k=5) for job in HARD[1:8]
    ]
    (alone,) = engine.run([seeded])
    together = engine.run([*others[:3], seeded, *others[3:]])[3]
    assert (alone.thinking, alone.answer) == (together.thinking, together.answer)


def test_a_prompt_longer_than_the_context_fails_alone_with_the_numbers(engine: Engine) -> None:
    long = Job(messages=[Message(role="user", content="9" * 5000)])
    short = Job(messages=[Message(role="user", content="What is 4 + 5?")])
    failed, done = engine.run([long, short])
    assert failed.error is not None
    assert failed.error.kind == "context_length_exceeded"
    assert "4096" in failed.error.message
    assert done.status == "done"


def test_max_tokens_beyond_the_context_is_lowered_with_a_warning(engine: Engine) -> None:
    job = Job(messages=[Message(role="user", content="9" * 4000)], max_tokens=500)
    (result,) = engine.run([job])
    assert "max_tokens_clamped" in result.warnings
    assert result.usage.prompt_tokens + result.usage.completion_tokens <= 4096


def test_thirty_two_budgets_in_one_batch_are_each_kept_to_the_token(engine: Engine) -> None:
    wide = Engine(engine.model, engine.tokenizer, max_batch=32, settings=engine.settings)
    jobs = [job for job in HARD if thinks_on(engine, job)]
    jobs = [with_budget(jobs[i % len(jobs)], i, 200) for i in range(32)]
    results = wide.run(jobs)
    assert [result.usage.thinking_tokens for result in results] == list(range(32))
    assert all(result.close_reason == "budget" for result in results)
    assert all(result.answer.strip() for result in results)


def test_what_the_rules_are_worth(engine: Engine) -> None:
    """Without reserve, guard and end-of-sequence rule most hard jobs have no answer."""
    bare = Engine(
        engine.model, engine.tokenizer, max_batch=16, settings=engine.settings, eos_closes=False
    )
    options = {"max_tokens": 512, "answer_reserve": 0, "loop_guard": False}
    jobs = HARD[:20]
    results = bare.run([msgspec.structs.replace(job, **options) for job in jobs])
    assert sum(bool(result.answer.strip()) for result in results) < 0.85 * len(jobs)
    assert all(result.answer.strip() for result in engine.run(jobs))


def test_an_end_of_sequence_ends_a_thought_for_good_without_the_rule() -> None:
    engine = scripted_engine(natural([*"AB", EOS], "XY"), eos_closes=False)
    (result,) = engine.run([ask(max_tokens=50)])
    assert (result.thinking, result.answer) == ("AB", "")
    assert result.warnings == ["empty_answer"]
    assert result.usage.completion_tokens == 3


def test_a_model_whose_cache_cannot_be_batched_runs_one_row_at_a_time_and_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ScriptCache, "merge")
    engine = scripted_engine(natural("ABC", "XY"), natural("DEF", "Z"), max_batch=8)
    assert engine.max_batch == engine.free == 1
    assert "one at a time" in caplog.text
    first, second = engine.run([ask(i, thinking_token_budget=2, max_tokens=30) for i in (0, 1)])
    assert (first.thinking, first.answer) == ("AB", "XY")
    assert (second.thinking, second.answer) == ("DE", "Z")
