"""How many tokens a job may think.

The numbers of a job, its effort and the context are made into one plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from thinkq.client.errors import JobFailed
from thinkq.client.job import Job
from thinkq.client.job_checks import MIN_ANSWER_TOKENS
from thinkq.client.result import Budget
from thinkq.client.settings import Settings
from thinkq.worker.families import Markers
from thinkq.worker.prompt import Prompt


@dataclass(frozen=True)
class Plan:
    """Limits of one job, in tokens."""

    max_tokens: int
    budget: Budget
    transition_ids: tuple[int, ...]
    answer_reserve: int
    warnings: tuple[str, ...]


def plan(job: Job, prompt: Prompt, markers: Markers, settings: Settings, context: int) -> Plan:
    """The limits of a job with this prompt.

    Raises JobFailed (context_length_exceeded) where the prompt leaves no room in the context.
    """
    room = context - len(prompt.ids)
    if room < 1:
        raise JobFailed(
            "context_length_exceeded",
            f"the prompt has {len(prompt.ids)} tokens and the model's context {context}; "
            "shorten the prompt",
        )
    wanted = settings.max_tokens if job.max_tokens is None else job.max_tokens
    max_tokens = min(wanted, room)
    warnings = ("max_tokens_clamped",) if max_tokens < wanted and job.max_tokens is not None else ()

    requested = _requested(job, settings)
    stated = (
        job.thinking_token_budget not in (None, -1) and job.max_tokens is not None and not warnings
    )
    reserve = (
        job.answer_reserve
        if job.answer_reserve is not None
        else int(max_tokens * settings.answer_reserve)
    )
    if stated and requested is not None:
        enforced, reserve = requested, max_tokens - requested
        fits = reserve - len(markers.transition_ids) - len(markers.end_ids) >= MIN_ANSWER_TOKENS
        transition = markers.transition_ids if fits else ()
    else:
        room = max(0, max_tokens - reserve - len(markers.end_ids))
        # A transition that would take most of a short thought's room does not fit.
        transition = markers.transition_ids if 2 * len(markers.transition_ids) <= room else ()
        cap = room - len(transition)
        enforced = cap if requested is None else min(requested, cap)
    if prompt.must_close:
        requested, enforced = 0, 0
    return Plan(
        max_tokens=max_tokens,
        budget=Budget(requested=requested, enforced=enforced, by=markers.by),
        transition_ids=transition if enforced else (),
        answer_reserve=reserve,
        warnings=warnings,
    )


def _requested(job: Job, settings: Settings) -> int | None:
    """What the job states, else its effort's default; None: no budget of its own."""
    defaults = {
        "medium": settings.budget_medium,
        "high": settings.budget_high,
        "xhigh": settings.budget_xhigh,
    }
    budget = job.thinking_token_budget
    if budget is None:
        budget = defaults.get(job.reasoning_effort or "")
    return None if budget is None or budget < 0 else budget
