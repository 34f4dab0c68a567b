"""What holds of the decode loop for any script."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from support.scripted import (
    CLOSE,
    EOS,
    OPEN,
    TEMPLATE,
    UNOPENED_TEMPLATE,
    Script,
    ask,
    scripted_engine,
)
from thinkq.client.result import Result
from thinkq.client.settings import load_settings

TOKENS = st.sampled_from([*"abcd\n", OPEN, CLOSE, EOS])


@dataclass(frozen=True)
class Case:
    """One row: what the model wants at each step, and its limits."""

    wants: list[str]
    budget: int | None
    max_tokens: int | None

    @property
    def script(self) -> Script:
        """By position alone: a script that pays no heed to a close is the hardest one."""
        return lambda fed: self.wants[len(fed) % len(self.wants)]


CASES = st.builds(
    Case,
    wants=st.lists(TOKENS, min_size=1, max_size=12),
    budget=st.none() | st.integers(0, 9),
    max_tokens=st.none() | st.integers(25, 40),
)


def run(
    cases: list[Case], *, pipelined: bool, template: str, transition: str, max_batch: int
) -> tuple[list[Result], list[list[str]]]:
    engine = scripted_engine(
        *(case.script for case in cases),
        template=template,
        settings=load_settings(
            {}, home="/nonexistent", thinking_transition=transition, max_tokens=30
        ),
        pipelined=pipelined,
        max_batch=max_batch,
    )
    jobs = [
        ask(i, thinking_token_budget=case.budget, max_tokens=case.max_tokens)
        for i, case in enumerate(cases)
    ]
    results = engine.run(jobs)
    return results, [engine.model.written(i) for i in range(len(cases))]


@settings(max_examples=60)
@given(
    cases=st.lists(CASES, min_size=1, max_size=4),
    template=st.sampled_from([TEMPLATE, UNOPENED_TEMPLATE]),
    transition=st.sampled_from(["", "now"]),
    max_batch=st.integers(1, 4),
)
def test_any_script_keeps_every_promise(
    cases: list[Case], template: str, transition: str, max_batch: int
) -> None:
    """Pipelined equals plain; the budget holds; usage adds up; only a full row has no answer."""
    results, written = run(
        cases, pipelined=True, template=template, transition=transition, max_batch=max_batch
    )
    plain, plainly_written = run(
        cases, pipelined=False, template=template, transition=transition, max_batch=1
    )
    assert written == plainly_written
    for result, twin in zip(results, plain, strict=True):
        assert (result.thinking, result.answer, result.usage) == (
            twin.thinking,
            twin.answer,
            twin.usage,
        )
        usage = result.usage
        assert result.budget.enforced is not None
        assert usage.thinking_tokens <= result.budget.enforced
        assert usage.completion_tokens == (
            usage.thinking_tokens + usage.answer_tokens + usage.control_tokens
        )
        assert result.answer.strip() or result.finish_reason == "length"
        assert EOS not in result.answer
        assert CLOSE not in result.answer
        assert OPEN not in result.answer
