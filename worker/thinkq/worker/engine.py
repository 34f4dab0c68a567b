"""The engine: jobs in, results out, many rows at once.

    engine = Engine.load("demo", max_batch=16)
    results = engine.run([Job(messages=[{"role": "user", "content": "What is 347 + 589?"}])])

A job is checked and rendered when it is added, prefilled when a row is free, and decoded with all others
until it ends. One thread owns an engine: it loads the model, and makes every call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from thinkq.client.errors import JobFailed
from thinkq.client.job import Job
from thinkq.client.result import FinishReason, Result
from thinkq.client.settings import Settings, load_settings
from thinkq.worker import budget, families, finalize, lm
from thinkq.worker.decode import Batch, Controls, Flight
from thinkq.worker.prompt import PromptBuilder
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.row import Row
from thinkq.worker.sampling import Penalties, Sampler, Sampling, sampling_of
from thinkq.worker.tagger import Sink, Tagger
from thinkq.worker.tokens import TokenBytes

PREFILL_STEP = 2048
"""Prompt tokens that are prefilled between two turns of the running rows."""


@dataclass(eq=False)
class _Prefill:
    """A row whose prompt is being read: `done` ids are in the cache."""

    row: Row
    cache: lm.Cache
    done: int = 0


class Engine:
    """Decodes jobs with hard thinking budgets.

    Args:
        model: An mlx-lm model.
        tokenizer: Its tokenizer, mlx-lm's wrapper or Hugging Face's own.
        max_batch: Rows decoded at once. A model whose cache cannot be batched runs one at a time.
        settings: Defaults for jobs that leave things open; by default from the environment.
        pipelined: False runs the plain twin of the loop: the same tokens, slower.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_batch: int = 16,
        settings: Settings | None = None,
        pipelined: bool = True,
    ) -> None:
        self._setup(lm.in_hand(model, tokenizer), max_batch, settings, pipelined)

    @classmethod
    def load(cls, name: str, *, max_batch: int = 16, settings: Settings | None = None, pipelined: bool = True) -> Engine:
        """Load `demo`, a path, or a model of the hub. Raises JobFailed (unknown_model)."""
        engine = cls.__new__(cls)
        engine._setup(lm.load(name), max_batch, settings, pipelined)
        return engine

    def _setup(self, loaded: lm.LoadedModel, max_batch: int, settings: Settings | None, pipelined: bool) -> None:
        self.model, self.tokenizer, self.name = loaded.model, loaded.tokenizer, loaded.name
        self.settings = settings or load_settings()
        self.batches = lm.can_batch(lm.new_cache(self.model))
        self.max_batch = max_batch if self.batches else 1
        self._loaded, self._pipelined = loaded, pipelined
        self._table = TokenBytes(loaded.hf_tokenizer)
        self._markers = families.resolve(loaded.hf_tokenizer, loaded.model_type, self.settings.thinking_transition)
        self._prompts = PromptBuilder(loaded.hf_tokenizer, self._markers)
        self._controls = Controls(
            eos=tuple(sorted(loaded.eos_ids)),
            end=self._markers.end_ids,
            start=self._markers.start_ids,
            blank=self._blank_ids(loaded.vocabulary),
        )
        self._waiting: deque[_Prefill] = deque()
        self._batch: Batch | None = None
        self._flight: Flight | None = None

    def _blank_ids(self, vocabulary: int) -> mx.array:
        """For each id, whether it adds nothing that can be seen: white space, or a marker."""
        markers = {ids[0] for ids in (self._markers.start_ids, self._markers.end_ids) if len(ids) == 1}
        return mx.array([i in markers or not self._table[i].strip() for i in range(vocabulary)])

    @property
    def rows(self) -> list[Row]:
        """Rows that are decoding."""
        return list(self._batch.rows) if self._batch else []  # type: ignore[arg-type]  # rows are Row here

    @property
    def free(self) -> int:
        """How many jobs can be added now."""
        return self.max_batch - len(self.rows) - len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether any job is in flight."""
        return bool(self._waiting) or self._batch is not None

    def run(self, jobs: Sequence[Job]) -> list[Result]:
        """Decode all jobs and return their results in the order given. A job that cannot run fails alone."""
        results: dict[str, Result] = {}
        queue = deque((f"run-{i}", job) for i, job in enumerate(jobs))
        names = [name for name, _ in queue]
        while queue or self.busy:
            while queue and self.free > 0:
                name, job = queue.popleft()
                try:
                    self.add(job, job_id=name)
                except JobFailed as error:
                    results[name] = finalize.failed(
                        job, job_id=name, attempt=1, kind=error.kind, message=str(error), model=self.name
                    )
            for row in self.turn():
                assert row.result is not None
                results[row.job_id] = row.result
        return [results[name] for name in names]

    def add(self, job: Job, *, job_id: str, attempt: int = 1, queued_s: float = 0.0, sink: Sink | None = None) -> Row:
        """Take in a job. Raises JobFailed before anything is computed if it cannot run.

        `sink(text, is_reasoning)` is called with each piece of text as it is decoded.
        """
        prompt = self._prompts.build(job)
        plan = budget.plan(job, prompt, self._markers, self.settings, self._loaded.context)
        tracker = ReasoningTracker(
            prompt.starts_in_thinking,
            plan.budget.enforced,
            self._markers.end_ids,
            self._markers.start_ids,
            plan.transition_ids,
            eos_ids=self._controls.eos,
        )
        tagger = Tagger(self._table, tracker, job.stop_strings, sink, job.include_reasoning is not False)
        row = Row(
            job_id=job_id,
            job=job,
            attempt=attempt,
            prompt=prompt,
            plan=plan,
            tracker=tracker,
            tagger=tagger,
            sampling=sampling_of(job, self._loaded.generation_config),
            eos=self._loaded.eos_ids,
            model=self.name,
            queued_s=queued_s,
        )
        self._waiting.append(_Prefill(row, lm.new_cache(self.model)))
        return row

    def cancel(self, row: Row, reason: FinishReason = "cancelled") -> None:
        """End a row at the next turn; its text so far is kept."""
        if row.ended is None:
            row.ended = reason

    def turn(self) -> list[Row]:
        """Prefill some of what waits, decode one token of every row, and return the rows that ended."""
        self._prefill()
        now = time.monotonic()
        for row in self.rows:
            row.check_deadline(now)
        if self._batch is not None and self._flight is not None:
            step = self._batch.turn if self._pipelined else self._batch.plain_turn
            self._flight = step(self._flight)
        return self._release()

    def _prefill(self) -> None:
        """Read up to PREFILL_STEP prompt tokens; rows whose prompt is read join the batch."""
        left = PREFILL_STEP
        while self._waiting and left > 0:
            work = self._waiting[0]
            if work.row.ended is not None:
                return
            ids = work.row.prompt.ids[work.done : work.done + left]
            left -= len(ids)
            logits = lm.forward(self.model, mx.array(ids)[None], work.cache)
            work.done += len(ids)
            if work.done < len(work.row.prompt.ids):
                mx.eval(lm.state(work.cache))
            else:
                self._waiting.popleft()
                self._join(work, logits)

    def _join(self, work: _Prefill, logits: mx.array) -> None:
        row = work.row
        cache = lm.as_batch(work.cache) if self.batches else work.cache
        vocabulary = logits.shape[-1]
        penalties = None
        if row.sampling.penalised or row.sampling.logit_bias:
            penalties = Penalties(row.sampling, row.prompt.ids, vocabulary)
        joining = Batch(self.model, self._controls, [row], cache, Sampler([(row.sampling, row.random)]), penalties)
        flight = joining.first(logits)
        row.prefilled_at = time.monotonic()
        if self._batch is None or self._flight is None:
            self._batch, self._flight = joining, flight
            return
        self._flight = self._batch.join(self._flight, joining, flight, vocabulary)
        self._refresh(self._batch)

    def _release(self) -> list[Row]:
        """Take the rows that have ended out of the batch, and make their results."""
        ended = [work.row for work in self._waiting if work.row.ended is not None]
        self._waiting = deque(work for work in self._waiting if work.row.ended is None)
        if self._batch is not None and self._flight is not None:
            stay = [i for i, row in enumerate(self.rows) if row.ended is None]
            if len(stay) < len(self.rows):
                ended += [row for row in self.rows if row.ended is not None]
                self._drop_all_but(stay)
        for row in ended:
            row.finish()
        return ended

    def _drop_all_but(self, stay: list[int]) -> None:
        if self._batch is None or self._flight is None or not stay:
            self._batch = self._flight = None
            return
        self._flight = self._batch.keep(self._flight, stay)
        if not any(row.sampling.penalised or row.sampling.logit_bias for row in self.rows):
            self._batch.penalties = None
        self._refresh(self._batch)

    def _refresh(self, batch: Batch) -> None:
        batch.sampler = Sampler([(row.sampling, row.random) for row in self.rows])
        batch.refresh()
