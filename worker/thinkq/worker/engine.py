"""The engine: jobs in, results out, many rows at once.

    engine = Engine.load("demo", max_batch=16)
    results = engine.run([Job(messages=[{"role": "user", "content": "What is 347 + 589?"}])])

A job is checked and rendered when it is added, prefilled when a row is free, and decoded with all
others until it ends. One thread owns an engine: it loads the model, and makes every call.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from thinkq.client.errors import JobFailed
from thinkq.client.job import Job
from thinkq.client.result import FinishReason, Result
from thinkq.client.settings import Settings, load_settings
from thinkq.worker import budget, families, lm
from thinkq.worker.decode import Batch, Controls, Flight
from thinkq.worker.outcome import failed_result
from thinkq.worker.prefill import Prefill, Room
from thinkq.worker.prompt import PromptBuilder
from thinkq.worker.row import Row
from thinkq.worker.sampling import Penalties, Sampler, sampling_of
from thinkq.worker.splitter import Splitter
from thinkq.worker.tagger import Sink
from thinkq.worker.task import Note, no_note
from thinkq.worker.tokens import TokenBytes

_log = logging.getLogger(__name__)

PREFILL_STEP = 2048
"""Prompt tokens that are read at once when no row is running."""

PREFILL_STEP_BETWEEN = 512
"""Prompt tokens that are read between two turns of running rows."""

TIDY_TURNS = 512
"""Turns after which MLX's cache of free buffers is given back."""


class Engine:
    """Decodes jobs with hard thinking budgets.

    Args:
        model: An mlx-lm model.
        tokenizer: Its tokenizer, mlx-lm's wrapper or Hugging Face's own.
        max_batch: Rows decoded at once. A model whose cache cannot be batched runs one at a time.
        settings: Defaults for jobs that leave things open; by default from the environment.
        pipelined: False runs the plain twin of the loop: the same tokens, slower.
        eos_closes: False lets an end of sequence end a job that has not answered, as it does
            elsewhere; to measure what the rule is worth.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_batch: int = 16,
        settings: Settings | None = None,
        pipelined: bool = True,
        eos_closes: bool = True,
    ) -> None:
        loaded = lm.in_hand(model, tokenizer)
        self._setup(loaded, max_batch, settings, pipelined=pipelined, eos_closes=eos_closes)

    @classmethod
    def load(
        cls,
        name: str,
        *,
        max_batch: int = 16,
        settings: Settings | None = None,
        pipelined: bool = True,
        eos_closes: bool = True,
        note: Note = no_note,
    ) -> Engine:
        """Load `demo`, a path, or a model of the hub, which is downloaded where it is not yet here.

        `note` is told of a download's progress. Raises JobFailed (unknown_model).
        """
        engine = cls.__new__(cls)
        loaded = lm.load(name, note)
        engine._setup(loaded, max_batch, settings, pipelined=pipelined, eos_closes=eos_closes)
        return engine

    def _setup(
        self,
        loaded: lm.LoadedModel,
        max_batch: int,
        settings: Settings | None,
        *,
        pipelined: bool,
        eos_closes: bool,
    ) -> None:
        self.model, self.tokenizer, self.name = loaded.model, loaded.tokenizer, loaded.name
        self.settings = settings or load_settings()
        self.batches = lm.can_batch(lm.new_cache(self.model))
        self.max_batch = max_batch if self.batches else 1
        if not self.batches:
            _log.warning("%s: its cache cannot be batched; jobs run one at a time", self.name)
        self._loaded, self._pipelined = loaded, pipelined
        self._table = TokenBytes(loaded.hf_tokenizer)
        self._markers = families.resolve(
            loaded.hf_tokenizer, loaded.model_type, self.settings.thinking_transition
        )
        self._prompts = PromptBuilder(loaded.hf_tokenizer, self._markers)
        self._splitter = Splitter(
            loaded.tokenizer, self._table, self._markers, sorted(loaded.eos_ids)
        )
        self._controls = Controls(
            eos=tuple(sorted(loaded.eos_ids)) if eos_closes else (),
            start=self._markers.start_ids,
            end=self._markers.end_ids,
        )
        self._closing = self._controls.closing_table(loaded.vocabulary)
        limit = self.settings.memory_limit_gb
        total = lm.memory_limit() if limit is None else int(limit * 1e9)
        self._room = Room(lm.kv_cost(self.model), total - mx.get_active_memory())
        self._prefill = Prefill(self.model, batches=self.batches, room=self._room)
        self._turns = 0
        self._batch: Batch | None = None
        self._flight: Flight | None = None

    @property
    def rows(self) -> list[Row]:
        """Rows that are decoding."""
        return list(self._batch.rows) if self._batch else []  # type: ignore[arg-type]  # rows are Row here

    @property
    def free(self) -> int:
        """How many jobs can be added now."""
        return self.max_batch - len(self.rows) - len(self._prefill)

    @property
    def memory(self) -> int:
        """Bytes that MLX holds on the device: model, caches, and what a turn needs."""
        return mx.get_active_memory()

    @property
    def busy(self) -> bool:
        """Whether any job is in flight."""
        return len(self._prefill) > 0 or self._batch is not None

    def close(self) -> None:
        """Give the model's memory back; nothing can be called any more."""
        self.__dict__.clear()
        gc.collect()
        mx.clear_cache()

    def run(self, jobs: Sequence[Job]) -> list[Result]:
        """Decode all jobs and return their results in the order given.

        A job that cannot run fails alone.
        """
        results: dict[str, Result] = {}
        queue = deque((f"run-{i}", job) for i, job in enumerate(jobs))
        names = [name for name, _ in queue]
        try:
            while queue or self.busy:
                while queue and self.free > 0:
                    name, job = queue.popleft()
                    try:
                        self.add(job, job_id=name)
                    except JobFailed as error:
                        results[name] = failed_result(name, error, job=job, model=self.name)
                for row in self.turn():
                    assert row.result is not None
                    results[row.job_id] = row.result
        except BaseException:
            # What was interrupted must not come back among the results of the next call.
            self._batch = self._flight = None
            self._prefill = Prefill(self.model, batches=self.batches, room=self._room)
            raise
        return [results[name] for name in names]

    def add(
        self,
        job: Job,
        *,
        job_id: str,
        attempt: int = 1,
        queued_s: float = 0.0,
        sink: Sink | None = None,
    ) -> Row:
        """Take in a job. Raises JobFailed before anything is computed if it cannot run.

        `sink(text, is_reasoning)` is called with each piece of text as it is decoded.
        """
        prompt = self._prompts.build(job)
        plan = budget.plan(job, prompt, self._markers, self.settings, self._loaded.context)
        tracker, tagger = self._splitter.start(job, prompt, plan, sink)
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
        self._prefill.add(row)
        return row

    def cancel(self, row: Row, reason: FinishReason = "cancelled") -> None:
        """End a row at the next turn; its text so far is kept."""
        if row.ended is None:
            row.ended = reason

    def turn(self) -> list[Row]:
        """Read some of the prompts that wait, and decode one token of every row.

        Returns the rows that ended.
        """
        self._admit()
        now = time.monotonic()
        for row in self.rows:
            row.check_deadline(now)
        if self._batch is not None and self._flight is not None:
            step = self._batch.turn if self._pipelined else self._batch.plain_turn
            self._flight = step(self._flight)
        ended = self._release()
        self._turns += 1
        if self._turns % TIDY_TURNS == 0 or not self.busy:
            mx.clear_cache()
        return ended

    def _admit(self) -> None:
        """Let rows whose prompts are read join the batch."""
        running = self.rows
        group = self._prefill.step(running, PREFILL_STEP_BETWEEN if running else PREFILL_STEP)
        if group is None:
            return
        vocabulary = self._loaded.vocabulary
        joining = Batch(
            self.model,
            self._controls,
            self._closing,
            group.rows,
            group.cache,
            Sampler([]),
            self._penalties(group.rows),
        )
        last = mx.array([row.prompt.ids[-1] for row in group.rows], mx.uint32)
        flight = Flight(last, last)
        now = time.monotonic()
        for row in group.rows:
            row.start(now)
        if self._batch is None or self._flight is None:
            self._batch, self._flight = joining, flight
        else:
            self._flight = self._batch.join(self._flight, joining, flight, vocabulary)
        self._resample(self._batch)

    def _penalties(self, rows: Sequence[Row]) -> Penalties | None:
        if not any(row.sampling.changes_logits for row in rows):
            return None
        vocabulary = self._loaded.vocabulary
        first, *others = (Penalties(row.sampling, row.prompt.ids, vocabulary) for row in rows)
        for other in others:
            first.extend(other)
        return first

    def _release(self) -> list[Row]:
        """Take the rows that have ended out of the batch, and make their results."""
        ended = self._prefill.take_ended()
        rows = self.rows
        stay = [i for i, row in enumerate(rows) if row.ended is None]
        if self._batch is not None and self._flight is not None and len(stay) < len(rows):
            ended += [row for row in rows if row.ended is not None]
            if not stay:
                self._batch = self._flight = None
            else:
                self._flight = self._batch.keep(self._flight, stay)
                if not any(row.sampling.changes_logits for row in self.rows):
                    self._batch.penalties = None
                self._resample(self._batch)
        for row in ended:
            row.finish()
        return ended

    def _resample(self, batch: Batch) -> None:
        batch.sampler = Sampler([(row.sampling, row.random) for row in self.rows])
        batch.steer()
