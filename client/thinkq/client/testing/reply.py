"""What a pretended model says, and how a job's limits change it. A word is a token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import cycle, islice
from typing import Final

import msgspec

from thinkq.client.job import Job
from thinkq.client.result import CloseReason, JobError

MAX_TOKENS: Final = 8192
RESERVED_SHARE: Final = 4
"""One part in so many of `max_tokens` is kept for the answer."""

LOOP_TOKENS: Final = 64
LOOP_COPIES: Final = 4
"""A loop is closed when it covers so many tokens, and so many copies."""


class Reply(msgspec.Struct, frozen=True):
    """What the model writes for one prompt: `Reply("4", thinking="2 + 2 is 4.")`."""

    answer: str = ""
    thinking: str = ""
    loop: str = ""
    """Repeated at the end of the thinking, until the loop guard or the budget closes it."""
    error: JobError | None = None
    """The job fails with it, and nothing is written."""
    delay: float = 0
    """Steps before the first word of each attempt; `math.inf`: the job never ends."""
    crashes: int = 0
    """So many attempts break off after half of their words, and another one begins."""


class ScriptedAnswers:
    """Replies by prompt: the content of a job's last message.

    A text stands for `Reply(text)`. `default` is the reply to all other prompts; without one
    they fail with the kind `no_reply`.
    """

    def __init__(
        self, replies: Mapping[str, Reply | str] | None = None, default: Reply | str | None = None
    ) -> None:
        self._replies = dict(replies or {})
        self._default = default

    def reply_to(self, job: Job) -> Reply:
        """The reply to a job."""
        prompt = str(job.messages[-1].content)
        reply = self._replies.get(prompt, self._default)
        if reply is None:
            return Reply(error=JobError("no_reply", f"no reply to {prompt[:200]!r} is scripted"))
        return Reply(reply) if isinstance(reply, str) else reply


class Words(msgspec.Struct, frozen=True):
    """What of a reply a job's limits let through, and how its thinking is closed."""

    thinking: list[str]
    answer: list[str]
    close_reason: CloseReason = "none"
    loop_period: int | None = None
    cut: bool = False
    """Whether `max_tokens` cut the answer."""


def words_of(reply: Reply, job: Job) -> Words:
    """The words of a reply as the job's budget, loop guard and `max_tokens` let them through."""
    thinking, close_reason, period = _thought(reply, job)
    answer = split(reply.answer)
    room = max_tokens(job) - len(thinking)
    return Words(thinking, answer[:room], close_reason, period, cut=len(answer) > room)


def split(text: str) -> list[str]:
    """A text in words, each with the white space after it."""
    return re.findall(r"\S+\s*|\s+", text)


def max_tokens(job: Job) -> int:
    """Most words of the job, thinking included."""
    return job.max_completion_tokens or job.max_tokens or MAX_TOKENS


def budget(job: Job) -> int | None:
    """The budget that the job states."""
    stated = job.thinking_token_budget
    return None if stated is None or stated < 0 else stated


def limit(job: Job) -> int:
    """Most words of thinking: the budget that is enforced."""
    stated, most = budget(job), max_tokens(job)
    if stated is not None and (job.max_tokens or job.max_completion_tokens):
        return stated
    reserve = most // RESERVED_SHARE if job.answer_reserve is None else job.answer_reserve
    allowed = max(0, most - reserve)
    return allowed if stated is None else min(stated, allowed)


def _thought(reply: Reply, job: Job) -> tuple[list[str], CloseReason, int | None]:
    """The words of the thinking, why it is closed, and the length of a loop in words."""
    if job.thinking_switch is False or not (reply.thinking or reply.loop):
        return [], "none", None
    most, period = limit(job), len(split(reply.loop))
    words = split(reply.thinking)
    if period:
        looping = max(LOOP_TOKENS, LOOP_COPIES * period)
        words += _repeated(split(reply.loop), most + 1 if job.loop_guard is False else looping)
    if len(words) > most:
        return words[:most], "budget", None
    return words, "loop" if period else "natural", period or None


def _repeated(words: Iterable[str], number: int) -> Iterable[str]:
    return islice(cycle(words), number)
