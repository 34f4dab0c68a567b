"""Sampling for all rows at once, in a number of array operations that does not grow with the rows.

A row's tokens do not depend on its neighbours: its random numbers are its own (one uniform for
each token, from its own seed), and everything else is row by row. The uniform picks by the inverse
of the cumulative distribution: of the candidates sorted by logit where top-k or top-p cut them,
else of the vocabulary as it stands.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import mlx.core as mx

from thinkq.client.job import Job


@dataclass(frozen=True)
class Sampling:
    """How one row's tokens are chosen. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    @property
    def way(self) -> Literal["greedy", "plain", "ranked"]:
        """How a token is chosen; by the row alone, or its neighbours would change its choices."""
        if self.temperature == 0:
            return "greedy"
        return "ranked" if self.top_k or self.top_p < 1 else "plain"

    @property
    def changes_logits(self) -> bool:
        """Whether anything is done to the logits before they are sampled."""
        return self.penalised or bool(self.logit_bias)

    @property
    def penalised(self) -> bool:
        """Whether logits depend on what was written before."""
        return (
            bool(self.presence_penalty or self.frequency_penalty) or self.repetition_penalty != 1.0
        )


def sampling_of(
    job: Job, defaults: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> Sampling:
    """A job's sampling.

    What it leaves open comes from `settings`, then from `defaults`, the model's generation_config.
    """
    greedy = defaults.get("do_sample") is False

    def stated(name: str) -> Any:
        own = getattr(job, name)
        return own if own is not None else (settings or {}).get(name)

    def option(name: str, neutral: float) -> Any:
        value = stated(name)
        return value if value is not None else defaults.get(name, neutral)

    temperature = stated("temperature")
    if temperature is None:
        # A generation_config that samples and names no temperature means 1.
        temperature = (
            0.0 if greedy or not defaults.get("do_sample") else defaults.get("temperature", 1.0)
        )
    return Sampling(
        temperature=temperature if temperature >= COLDEST else 0.0,
        top_p=option("top_p", 1.0),
        top_k=max(0, option("top_k", 0)),
        min_p=option("min_p", 0.0),
        presence_penalty=stated("presence_penalty") or 0.0,
        frequency_penalty=stated("frequency_penalty") or 0.0,
        repetition_penalty=option("repetition_penalty", 1.0),
        logit_bias={int(token): bias for token, bias in (job.logit_bias or {}).items()},
        seed=job.seed,
    )


class Sampler:
    """The sampling of a fixed set of rows; made anew when a row joins or leaves.

    Args:
        rows: Each row's sampling and its own random numbers.
    """

    def __init__(self, rows: Sequence[tuple[Sampling, random.Random]]) -> None:
        self._random = [source if row.temperature > 0 else None for row, source in rows]
        self.greedy = not any(self._random)
        if self.greedy:
            return

        def column(values: list[float]) -> mx.array:
            return mx.array(values, mx.float32)[:, None]

        settings = [row for row, _ in rows]
        self._heat = column([row.temperature or 1.0 for row in settings])
        self._top_p = column([row.top_p for row in settings])
        self._min_p = column([row.min_p for row in settings])
        self._top_k = mx.array([row.top_k or _ALL for row in settings])[:, None]
        ways = [row.way for row in settings]
        self._is_ranked = mx.array([way == "ranked" for way in ways])
        self._is_plain = mx.array([way == "plain" for way in ways])
        self._any_ranked, self._any_plain = "ranked" in ways, "plain" in ways
        ks = [row.top_k for row in settings if row.way == "ranked"]
        self._widest = 0 if 0 in ks else max(ks, default=0)

    def draw(self) -> mx.array | None:
        """One random number of each row, (rows,), for one token; None where all rows are greedy."""
        if self.greedy:
            return None
        numbers = [min(source.random(), _BELOW_ONE) if source else 0.0 for source in self._random]
        return mx.array(numbers, mx.float32)

    def __call__(self, logits: mx.array, uniforms: mx.array | None) -> mx.array:
        """Ids (rows,) chosen from logits (rows, vocabulary) with the numbers that were drawn."""
        chosen = mx.argmax(logits, axis=-1)
        if uniforms is None:
            return chosen
        if self._any_ranked:
            chosen = mx.where(self._is_ranked, self._ranked(logits, uniforms), chosen)
        if self._any_plain:
            chosen = mx.where(self._is_plain, self._plain(logits, uniforms), chosen)
        return chosen

    def _plain(self, logits: mx.array, uniforms: mx.array) -> mx.array:
        """Choices of rows that need no order: the vocabulary as it stands, cut by min-p alone."""
        probabilities = mx.softmax(logits.astype(mx.float32) / self._heat, axis=-1, precise=True)
        least = self._min_p * probabilities.max(axis=-1, keepdims=True)
        return _inverse(mx.where(probabilities >= least, probabilities, 0), uniforms)

    def _ranked(self, logits: mx.array, uniforms: mx.array) -> mx.array:
        """Choices of rows with top-k or top-p: the candidates by falling logit."""
        ids, logits = self._candidates(logits)
        rank = mx.arange(logits.shape[-1])[None]
        scaled = mx.where(rank < self._top_k, logits.astype(mx.float32) / self._heat, -mx.inf)
        probabilities = mx.softmax(scaled, axis=-1, precise=True)
        before = mx.cumsum(probabilities, axis=-1) - probabilities
        keep = (before < self._top_p) & (probabilities >= self._min_p * probabilities[:, :1])
        # The likeliest candidate always stays, also at top_p 0.
        chosen = _inverse(mx.where(keep | (rank == 0), probabilities, 0), uniforms)
        return mx.take_along_axis(ids, chosen[:, None], axis=-1)[:, 0]

    def _candidates(self, logits: mx.array) -> tuple[mx.array, mx.array]:
        """Ids and logits of all that a ranked row may choose, (rows, candidates), largest first."""
        if not 0 < self._widest < logits.shape[-1]:
            order = mx.argsort(-logits, axis=-1)
            return order, mx.take_along_axis(logits, order, axis=-1)
        ids = _largest(logits, self._widest)
        logits = mx.take_along_axis(logits, ids, axis=-1)
        order = mx.argsort(-logits, axis=-1)
        return mx.take_along_axis(ids, order, axis=-1), mx.take_along_axis(logits, order, axis=-1)


def _inverse(weights: mx.array, uniforms: mx.array) -> mx.array:
    """Where in each row (rows, choices) the cumulative weight passes its uniform's share."""
    cumulative = mx.cumsum(weights, axis=-1)
    return mx.argmax(cumulative > uniforms[:, None] * cumulative[:, -1:], axis=-1)


_BLOCK = 64
_ALL = 2**31 - 1
_BELOW_ONE = 1 - 2**-23
"""As a float32 times any weight it stays below that weight; a double just below 1 would not."""

COLDEST = 1e-6
"""Below this temperature a row is greedy: its logits would not stay finite."""


def _largest(logits: mx.array, k: int) -> mx.array:
    """Ids of the k largest logits of each row, (rows, k), in no order.

    The k largest lie in the k blocks with the largest peaks, so that a large vocabulary is read
    once and only those blocks are searched.
    """
    rows, width = logits.shape
    blocks = width // _BLOCK
    if width % _BLOCK or blocks < 4 * k:
        return mx.argpartition(-logits, k - 1, axis=-1)[:, :k]
    tiled = logits.reshape(rows, blocks, _BLOCK)
    best = mx.argpartition(-tiled.max(axis=-1), k - 1, axis=-1)[:, :k]
    pool = mx.take_along_axis(tiled, best[:, :, None], axis=1).reshape(rows, k * _BLOCK)
    inner = mx.argpartition(-pool, k - 1, axis=-1)[:, :k]
    return mx.take_along_axis(best, inner // _BLOCK, axis=-1) * _BLOCK + inner % _BLOCK


class Penalties:
    """Presence, frequency and repetition penalties, and logit biases.

    Counts are kept on the device, (rows, vocabulary), and only while a row asks for any of these.
    """

    def __init__(self, row: Sampling, prompt: Sequence[int], vocabulary: int) -> None:
        self._counts = mx.zeros((1, vocabulary))
        self._own = mx.zeros((1,))
        self._seen = mx.zeros((1, vocabulary), mx.bool_)
        if row.penalised and prompt:
            self._seen[0, mx.array(sorted(set(prompt)))] = True
        self._bias = mx.zeros((1, vocabulary))
        known = {token: bias for token, bias in row.logit_bias.items() if token < vocabulary}
        if known:
            self._bias[0, mx.array(list(known))] = mx.array(list(known.values()), mx.float32)
        self._presence = mx.array([[row.presence_penalty]])
        self._frequency = mx.array([[row.frequency_penalty]])
        self._repetition = mx.array([[row.repetition_penalty]])

    @classmethod
    def neutral(cls, rows: int, vocabulary: int) -> Penalties:
        """Rows that ask for nothing."""
        penalties = cls(Sampling(), (), vocabulary)
        penalties.keep([0] * rows)
        return penalties

    _ARRAYS = ("_own", "_counts", "_seen", "_bias", "_presence", "_frequency", "_repetition")

    def extend(self, other: Penalties) -> None:
        """Append another row."""
        for name in self._ARRAYS:
            setattr(self, name, mx.concatenate([getattr(self, name), getattr(other, name)]))

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these rows."""
        for name in self._ARRAYS:
            setattr(self, name, getattr(self, name)[mx.array(list(rows))])

    def __call__(self, logits: mx.array, tokens: mx.array) -> mx.array:
        """Logits (rows, vocabulary) after taking note of the tokens (rows,) just fed."""
        rows = mx.arange(tokens.shape[0])
        # The first token that a row feeds is the last of its prompt: it was read, not written.
        self._counts = self._counts.at[rows, tokens].add(self._own)
        self._own = mx.ones_like(self._own)
        logits = logits.astype(mx.float32)
        written = self._counts > 0
        damped = mx.where(logits > 0, logits / self._repetition, logits * self._repetition)
        logits = mx.where(self._seen | written, damped, logits)
        return logits - self._frequency * self._counts - self._presence * written + self._bias
