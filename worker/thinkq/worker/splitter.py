"""How the rows of one model are split: which tracker and which tagger a job gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thinkq.client.job import Job
from thinkq.worker import text_path
from thinkq.worker.budget import Plan
from thinkq.worker.families import Markers
from thinkq.worker.prompt import Prompt
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.tagger import Sink, Tagger
from thinkq.worker.text_path import TextTagger, TextTracker
from thinkq.worker.tokens import TokenBytes
from thinkq.worker.tools import syntax_of


class Splitter:
    """Makes trackers and taggers.

    Args:
        tokenizer: mlx-lm's wrapper, which knows how the model writes tool calls.
        table: The tokenizer's bytes.
        markers: The family's markers.
        eos_ids: Ids that end the sequence.
    """

    def __init__(
        self, tokenizer: Any, table: TokenBytes, markers: Markers, eos_ids: Sequence[int]
    ) -> None:
        self._tokenizer, self._table, self._markers = tokenizer, table, markers
        self._eos_ids = tuple(eos_ids)
        self._syntax = syntax_of(tokenizer)

    def start(
        self, job: Job, prompt: Prompt, plan: Plan, sink: Sink | None
    ) -> tuple[ReasoningTracker, Tagger]:
        """The tracker and the tagger of a new row."""
        thinking, limit = prompt.starts_in_thinking, plan.budget.enforced
        if text_path.is_needed(self._markers):
            reader = TextTracker(
                thinking,
                limit,
                self._markers,
                plan.transition_ids,
                eos_ids=self._eos_ids,
                table=self._table,
                encode=lambda text: self._tokenizer.encode(text, add_special_tokens=False),
            )
            return reader, TextTagger(self._table, reader, job, self._syntax, sink)
        tracker = ReasoningTracker(
            thinking,
            limit,
            self._markers.end_ids,
            self._markers.start_ids,
            plan.transition_ids,
            eos_ids=self._eos_ids,
            answer_start_ids=self._markers.answer_start_ids,
        )
        return tracker, Tagger(self._table, tracker, job, self._syntax, sink)
