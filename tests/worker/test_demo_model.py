"""The shipped model is what its card says, by decoding alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from thinkq.client.result import Result
from thinkq.client.settings import load_settings
from thinkq.worker.demo import evaluation, path
from thinkq.worker.demo.train import EVALUATION, evaluation_lines
from thinkq.worker.engine import Engine

MAX_TOKENS = 512


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("demo", max_batch=16, settings=load_settings({}, home="/nonexistent"))


def decode(
    engine: Engine, level: Literal["easy", "hard"], count: int, **options: object
) -> list[tuple[Result, str]]:
    """Results and right answers of the first jobs of a set, without the reserve and the guard."""
    pairs = evaluation(level)[:count]
    options = {"max_tokens": MAX_TOKENS, "answer_reserve": 0, "loop_guard": False} | options
    results = engine.run([msgspec.structs.replace(job, **options) for job, _ in pairs])
    return [(result, answer) for result, (_, answer) in zip(results, pairs, strict=True)]


def test_nine_of_ten_easy_answers_are_right(engine: Engine) -> None:
    results = decode(engine, "easy", 60)
    right = sum(result.answer.strip() == answer for result, answer in results)
    assert right >= 54


def test_on_hard_problems_it_does_not_stop_thinking_unless_it_is_made_to(engine: Engine) -> None:
    free = decode(engine, "hard", 20)
    never_left = [r for r, _ in free if r.usage.thinking_tokens >= MAX_TOKENS - 1]
    assert len(never_left) >= 3
    for result, _ in decode(engine, "hard", 20, thinking_token_budget=96):
        assert result.usage.thinking_tokens <= 96
        assert result.answer.strip()


def test_a_user_who_sets_nothing_gets_an_answer_to_every_hard_job(engine: Engine) -> None:
    results = engine.run([job for job, _ in evaluation("hard")[:32]])
    assert all(result.answer.strip() for result in results)
    assert any(result.close_reason == "loop" for result in results)


def test_the_evaluation_set_is_fixed_by_its_seed() -> None:
    shipped = {level: len(evaluation(level)) for level in ("easy", "hard")}
    assert shipped == EVALUATION
    lines = (path() / "evaluation.jsonl").read_text("utf-8").splitlines()
    assert [msgspec.json.decode(line) for line in lines] == evaluation_lines()


def test_it_is_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in Path(path()).iterdir()) < 12_000_000


@given(st.text())
def test_the_tokenizer_takes_any_text(text: str) -> None:
    tokenizer = _tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


@cache
def _tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(str(path()))
