"""One job in flight: its prompt, its tracker, its text, and when it is over."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from thinkq.client.job import Job
from thinkq.client.result import FinishReason, Result, Timing
from thinkq.worker import finalize
from thinkq.worker.budget import Plan
from thinkq.worker.loop_guard import LoopGuard
from thinkq.worker.prompt import Prompt
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.sampling import Sampling
from thinkq.worker.tagger import Tagger


@dataclass(eq=False)
class Row:
    """A job between admission and result. `result` is set when it has ended."""

    job_id: str
    job: Job
    attempt: int
    prompt: Prompt
    plan: Plan
    tracker: ReasoningTracker
    tagger: Tagger
    sampling: Sampling
    eos: frozenset[int]
    model: str
    queued_s: float = 0.0
    primed: bool = False
    """Its first own token is in flight; before, that is the last id of its prompt."""
    result: Result | None = None
    ended: FinishReason | None = None
    random: random.Random = field(init=False)
    admitted_at: float = field(default_factory=time.monotonic)
    prefilled_at: float = 0.0
    first_token_at: float = 0.0
    deadline: float | None = None
    overdue: bool = False
    answer_limit: int | None = None
    guard: LoopGuard | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.sampling.seed)
        if self.job.loop_guard is not False:
            self.guard = LoopGuard()

    def start(self, now: float) -> None:
        """The prompt is read and decoding begins; from here on its time counts."""
        self.prefilled_at = now
        if self.job.timeout is not None:
            self.deadline = now + self.job.timeout

    @property
    def longest(self) -> int:
        """Tokens of its cache when it has written all it may."""
        return len(self.prompt.ids) + self.plan.max_tokens

    @property
    def completion_tokens(self) -> int:
        """Tokens committed so far, of all kinds."""
        tracker = self.tracker
        return tracker.thinking_tokens + tracker.answer_tokens + tracker.control_tokens

    @property
    def answer_is_blank(self) -> bool:
        """The row is past its thinking and has written nothing but white space since."""
        return not self.tracker.in_thinking and self.tagger.answer_is_blank

    def observe(self, committed: int, sampled: int) -> None:
        """Take in a token that was read; sets `ended` when it was the row's last."""
        if self.ended is not None or not self.primed:
            self.primed = True
            return
        tracker = self.tracker
        tracker.observe_token(committed, sampled)
        self.tagger.push(committed)
        if self.guard is not None and tracker.kind == "thinking" and self.guard.push(committed):
            tracker.close("loop")
        if self.overdue:
            tracker.close("deadline")
        if not self.first_token_at:
            self.first_token_at = time.monotonic()
        if committed in self.eos or self.tagger.stopped:
            self.ended = "stop"
        elif self.completion_tokens >= self.plan.max_tokens:
            self.ended = "length"
        elif self.answer_limit is not None and tracker.answer_tokens >= self.answer_limit:
            self.ended = "timeout"

    def check_deadline(self, now: float) -> None:
        """End an open thought whose time is up; end a job whose answer has had its time as well."""
        if self.deadline is None or now < self.deadline or self.ended is not None:
            return
        if self.tracker.in_thinking and self.tracker.close_id is not None:
            # Carried out behind the token in flight, which is committed already.
            self.overdue = True
            self.answer_limit = self.plan.answer_reserve
            self.deadline = now + (self.job.timeout or 0.0)
        else:
            self.ended = "timeout"

    def finish(self) -> None:
        """Make the result. The row must have ended."""
        assert self.ended is not None
        now = time.monotonic()
        began = self.prefilled_at or now
        self.tagger.finish()
        self.result = finalize.finish(
            self.job,
            job_id=self.job_id,
            attempt=self.attempt,
            prompt=self.prompt,
            tracker=self.tracker,
            tagger=self.tagger,
            finish_reason=self.ended,
            budget=self.plan.budget,
            timing=Timing(
                queued_s=round(self.queued_s, 3),
                prefill_s=round(began - self.admitted_at, 3),
                first_token_s=round((self.first_token_at or now) - self.admitted_at, 3),
                decode_s=round(now - began, 3),
            ),
            model=self.model,
            loop_period=self.guard.period if self.guard else None,
            warnings=list(self.plan.warnings),
        )
