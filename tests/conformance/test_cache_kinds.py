"""Rows of every kind of cache that mlx-lm can batch: together they write what each writes alone."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from support.scripted import make_tokenizer
from support.taps import run_tapped
from support.tiny_models import TINY, tiny_model
from thinkq.client.job import Job, Message
from thinkq.client.settings import load_settings
from thinkq.worker.engine import Engine

NEAR_TIE = 1e-4
"""Batched kernels differ from single ones by about 4e-6.

Where two logits are as close, either may win.
"""

FIRST_CONTROL = 256
"""Below are the bytes."""

JOBS = [
    Job(
        messages=[Message(role="user", content="the quick brown fox "[: 3 + i] * (1 + 3 * i))],
        max_tokens=30 + 5 * i,
        thinking_token_budget=[None, 3, 11, None, 7, 0, None, 14][i],
        answer_reserve=8,
        loop_guard=False,
    )
    for i in range(8)
]


def gap_at(model: Any, prompt: list[int], ids: list[int], other: list[int]) -> float | None:
    """How far apart the two choices' logits are where ids first differ; None if they do not."""
    for i, (mine, its) in enumerate(zip(ids, other, strict=False)):
        if mine != its:
            logits = model(mx.array([prompt + ids[:i]]))[0, -1].astype(mx.float32)
            return abs(float(logits[mine] - logits[its]))
    return None if len(ids) == len(other) else float("inf")


@pytest.mark.parametrize("kind", sorted(TINY))
def test_rows_that_join_and_leave_write_what_they_write_alone(kind: str) -> None:
    """Eight prompts of different lengths through three rows.

    Each leaves, and another joins, in mid-flight.
    """
    model, settings = tiny_model(kind), load_settings({}, home="/nonexistent")
    together = run_tapped(Engine(model, make_tokenizer(), max_batch=3, settings=settings), JOBS)
    for job, (prompt, ids) in zip(JOBS, together, strict=True):
        ((_, alone),) = run_tapped(
            Engine(model, make_tokenizer(), max_batch=1, settings=settings), [job]
        )
        gap = gap_at(model, prompt, alone, ids)
        assert gap is None or gap < NEAR_TIE, f"logit gap {gap}"
    assert len({token for _, ids in together for token in ids}) > 10, "the weights say too little"


@pytest.mark.parametrize("kind", sorted(TINY))
def test_an_unbudgeted_row_writes_what_generate_step_writes(kind: str) -> None:
    model, settings = tiny_model(kind), load_settings({}, home="/nonexistent")
    tokenizer = make_tokenizer()
    engine = Engine(model, tokenizer, max_batch=4, settings=settings)
    jobs = [
        Job(messages=list(job.messages), max_tokens=40, answer_reserve=0, loop_guard=False)
        for job in JOBS[:4]
    ]
    compared = 0
    for prompt, ids in run_tapped(engine, jobs):
        steps = generate_step(mx.array(prompt), model, max_tokens=len(ids))
        theirs = [int(token) for token, _ in steps]
        # Up to the first control token: from there on the loop's rules differ from mlx-lm's, on
        # purpose.
        until = next((i for i, token in enumerate(theirs) if token >= FIRST_CONTROL), 37)
        compared += until
        gap = gap_at(model, prompt, theirs[:until], ids[:until])
        assert gap is None or gap < NEAR_TIE, f"logit gap {gap}"
    assert compared > 30, "the models end too early to compare"
