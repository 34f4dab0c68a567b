"""A row that has ended, made into its result: the four-way split's last word and the warnings."""

from __future__ import annotations

from typing import Any

from thinkq.client.job import Job
from thinkq.client.result import (
    Budget,
    CloseReason,
    FinishReason,
    Result,
    Status,
    Timing,
    Usage,
)
from thinkq.worker.prompt import Prompt
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.tagger import Tagger


def finish(
    job: Job,
    *,
    job_id: str,
    attempt: int,
    prompt: Prompt,
    tracker: ReasoningTracker,
    tagger: Tagger,
    finish_reason: FinishReason,
    budget: Budget,
    timing: Timing,
    model: str,
    loop_period: int | None,
    warnings: list[str],
) -> Result:
    """The result of a decoded job. `tagger.finish()` was called before."""
    calls = _numbered(tagger.tool_calls, job_id)
    status: Status = "cancelled" if finish_reason == "cancelled" else "done"
    warnings = [*warnings, *tagger.warnings]
    if prompt.thinking_off and tracker.ever_thought:
        warnings.append("thought_while_disabled")
    if status == "done" and not calls and not tagger.answer.strip():
        warnings.append("empty_answer")
    close_reason = _close_reason(tracker, finish_reason)
    return Result(
        job_id=job_id,
        custom_id=job.custom_id,
        status=status,
        finish_reason="tool_calls" if calls and finish_reason == "stop" else finish_reason,
        thinking=tagger.thinking,
        answer=tagger.answer,
        tool_calls=calls or None,
        close_reason=close_reason,
        loop_period=loop_period if close_reason == "loop" else None,
        budget=budget,
        usage=usage_of(prompt, tracker),
        timing=timing,
        model=model,
        attempt=attempt,
        warnings=warnings,
        metadata=job.metadata,
    )


def _numbered(calls: list[dict[str, Any]], job_id: str) -> list[dict[str, Any]]:
    """The calls with an id each: the model's own, else one that a new attempt gives again."""
    return [{"id": f"call_{job_id}_{i}", **call} for i, call in enumerate(calls)]


def _close_reason(tracker: ReasoningTracker, finish_reason: FinishReason) -> CloseReason:
    """A thought that was open when the job was cancelled has no reason of its own."""
    if not tracker.in_thinking or finish_reason == "length":
        return tracker.close_reason
    return "deadline" if finish_reason == "timeout" else "none"


def usage_of(prompt: Prompt, tracker: ReasoningTracker) -> Usage:
    """Counts of ids; the kinds add up to every token that was committed."""
    kinds = (tracker.thinking_tokens, tracker.answer_tokens, tracker.control_tokens)
    return Usage(
        prompt_tokens=len(prompt.ids),
        thinking_tokens=kinds[0],
        answer_tokens=kinds[1],
        control_tokens=kinds[2],
        completion_tokens=sum(kinds),
    )
