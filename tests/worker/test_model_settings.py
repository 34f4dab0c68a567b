"""What is set for a model reaches the engine; only a job's own field comes before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.queues import job
from thinkq.client.settings import ModelSettings, load_settings
from thinkq.worker.engine import Engine
from thinkq.worker.sampling import sampling_of

PRESETS = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20}


def test_a_jobs_own_sampling_wins_then_the_settings_then_the_models_config() -> None:
    found = sampling_of(job("x", temperature=0.1), PRESETS, {"temperature": 0.5, "top_p": 0.9})
    assert (found.temperature, found.top_p, found.top_k) == (0.1, 0.9, 20)


@pytest.mark.parametrize("do_sample", [False, None])
def test_a_temperature_in_the_settings_samples_whatever_the_models_config_says(
    do_sample: bool | None,
) -> None:
    assert sampling_of(job("x"), {"do_sample": do_sample}, {"temperature": 0.5}).temperature == 0.5


def test_penalties_can_be_set_and_a_job_can_switch_them_off() -> None:
    settings = {"presence_penalty": 1.0, "frequency_penalty": 0.5, "repetition_penalty": 1.1}
    assert sampling_of(job("x"), {}, settings).penalised
    own = job("x", presence_penalty=0, frequency_penalty=0, repetition_penalty=1)
    assert not sampling_of(own, {}, settings).penalised


def run(tmp_path: Path, own: ModelSettings, **fields: Any) -> Any:
    """One job of the demo model with a table of its own."""
    settings = load_settings({}, home=str(tmp_path), max_tokens=600, models={"demo": own})
    (result,) = Engine.load("demo", settings=settings).run([job("What is 17 + 25?", **fields)])
    return result


def test_the_engine_follows_the_table_of_its_model(tmp_path: Path) -> None:
    result = run(tmp_path, ModelSettings(max_tokens=40, budget_medium=3), reasoning_effort="medium")
    assert result.budget.requested == result.budget.enforced == result.usage.thinking_tokens == 3
    assert result.close_reason == "budget"
    assert result.usage.completion_tokens <= 40


def test_the_sampling_of_a_models_table_reaches_its_rows(tmp_path: Path) -> None:
    own = ModelSettings(temperature=0.5, repetition_penalty=1.1)
    engine = Engine.load(
        "demo", settings=load_settings({}, home=str(tmp_path), models={"demo": own})
    )
    row = engine.add(job("What is 17 + 25?", repetition_penalty=1), job_id="one")
    assert (row.sampling.temperature, row.sampling.repetition_penalty) == (0.5, 1)


def test_minus_one_means_no_budget_of_the_efforts_own(tmp_path: Path) -> None:
    result = run(tmp_path, ModelSettings(budget_medium=-1), reasoning_effort="medium")
    assert result.budget.requested is None
    assert result.close_reason == "natural"


def test_a_jobs_own_budget_wins_over_the_table(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        ModelSettings(budget_medium=3),
        reasoning_effort="medium",
        thinking_token_budget=5,
    )
    assert result.usage.thinking_tokens == 5


def test_the_transition_of_a_models_table_is_forced(tmp_path: Path) -> None:
    """Its text is neither thinking nor answer; it is counted among the control tokens."""
    plain, told = (
        run(tmp_path, ModelSettings(thinking_transition=text), thinking_token_budget=3)
        for text in ("", "Stop here.")
    )
    assert plain.thinking == told.thinking
    assert told.usage.control_tokens > plain.usage.control_tokens + 3
