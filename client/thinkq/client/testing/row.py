"""One job in the hands of the pretended worker."""

from __future__ import annotations

from collections.abc import Iterator

from thinkq.client.events import Event
from thinkq.client.job import Job
from thinkq.client.result import Budget, FinishReason, Result, Status, Usage
from thinkq.client.testing.reply import Reply, Words, budget, limit, split, words_of


class Row:
    """Writes a reply word by word; `turns` yields once a step."""

    def __init__(self, job_id: str, job: Job, reply: Reply) -> None:
        self.job_id, self.job, self.reply = job_id, job, reply
        self.attempt = 0
        self._words = words_of(reply, job)
        self._thinking: list[str] = []
        self._answer: list[str] = []
        self.turns = self._turns()

    def _turns(self) -> Iterator[Event | None]:
        """What is published in each step, until the job ends; None: nothing."""
        if self.reply.error:
            return
        for _ in range(self.reply.crashes):
            yield self._begin()
            yield from self._write((len(self._words.thinking) + len(self._words.answer)) // 2)
        yield self._begin()
        yield from self._write()

    def _begin(self) -> Event:
        self.attempt += 1
        self._thinking, self._answer = [], []
        return Event(type="start" if self.attempt == 1 else "restart", attempt=self.attempt)

    def _write(self, most: int | None = None) -> Iterator[Event | None]:
        yield from self._pause()
        told = [(word, True) for word in self._words.thinking]
        told += [(word, False) for word in self._words.answer]
        for word, is_reasoning in told[:most]:
            (self._thinking if is_reasoning else self._answer).append(word)
            yield self._delta(word, is_reasoning)

    def _pause(self) -> Iterator[None]:
        waited = 0
        while waited < self.reply.delay:
            waited += 1
            yield None

    def _delta(self, word: str, is_reasoning: bool) -> Event | None:
        if is_reasoning and self.job.include_reasoning is False:
            return None
        return Event(type="delta", text=word, is_reasoning=is_reasoning, attempt=self.attempt)

    def run(self) -> Result:
        """The job's result, without anybody watching."""
        for _ in self.turns:
            pass
        return self.result()

    def result(self, status: Status | None = None) -> Result:
        """The result of what has been written so far."""
        words, failed = self._words, self.reply.error is not None
        status = status or ("failed" if failed else "done")
        answer, thinking = "".join(self._answer), "".join(self._thinking)
        shown = thinking.strip() and self.job.include_reasoning is not False
        return Result(
            job_id=self.job_id,
            custom_id=self.job.custom_id,
            metadata=self.job.metadata,
            status=status,
            finish_reason=_FINISH.get(status, "length" if words.cut else "stop"),
            thinking=thinking if shown else None,
            answer=answer,
            close_reason=words.close_reason if status == "done" else "none",
            loop_period=words.loop_period if status == "done" else None,
            budget=self._budget(),
            usage=self._usage(status, words),
            model="scripted",
            worker="memory",
            attempt=max(1, self.attempt),
            warnings=["empty_answer"] if status == "done" and not answer.strip() else [],
            error=self.reply.error if status == "failed" else None,
        )

    def _budget(self) -> Budget:
        if self.job.thinking_switch is False:
            return Budget(requested=budget(self.job))
        return Budget(requested=budget(self.job), enforced=limit(self.job), by="token")

    def _usage(self, status: Status, words: Words) -> Usage:
        thinking, answer = len(self._thinking), len(self._answer)
        closed = status == "done" and words.close_reason != "none"
        control = closed + (status == "done" and not words.cut)
        return Usage(
            prompt_tokens=sum(len(split(str(m.content or ""))) for m in self.job.messages),
            thinking_tokens=thinking,
            answer_tokens=answer,
            control_tokens=control,
            completion_tokens=thinking + answer + control,
        )


_FINISH: dict[Status, FinishReason] = {"failed": "error", "cancelled": "cancelled"}
