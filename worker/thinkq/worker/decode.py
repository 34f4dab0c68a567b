"""The decode loop: one turn is a function from what is in flight to what is now in flight.

A turn takes all rows one token on. A sampled token is committed only when it is fed to the next
forward pass. So whatever the host decides after it has read a row's token takes effect on the very
next one:

    turn k:  launch forward(y_k), sample y_k+1      the device is busy from here on
             read y_k                               usually done already
             observe y_k in each row                pure Python, no device
             y_k+1 := forced ids and closes         replaces unread samples: no sync, no lag

A row joins with the last id of its prompt in flight, so its first token is sampled like any other.
The id that is forced is the id that the model is fed, so the cache agrees with the transcript. The
raw sample is kept beside the committed id: the two together say why a thought ended.

Ids that must not be sampled (the end of sequence while an answer is blank, markers after a forced
close) are barred in the logits. Where reading y_k changes what is barred, y_k+1 is sampled once
more from the same logits with the same random numbers, before anybody has read it. One rule needs
y_k+1 itself and is left to the device: an end of sequence sampled by a row that thinks is committed
as its end marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx

from thinkq.worker import lm
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.sampling import Penalties, Sampler


@dataclass(frozen=True)
class Flight:
    """One token of each row, (rows,) each, on its way: launched, and not yet read."""

    sampled: mx.array
    """What the model chose."""
    committed: mx.array
    """What it will be fed."""


@dataclass(frozen=True)
class Controls:
    """The ids that the loop watches: those that end a sequence, and the markers.

    They are the same for all rows. A marker of several ids has ordinary words among them, so only
    its start can be barred: at the second id, and only behind the first.
    """

    eos: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def watched(self) -> list[int]:
        """Every id that may be barred."""
        return [*self.eos, *self.start[:2][-1:], *(self.end if len(self.end) == 1 else ())]

    def closing_table(self, vocabulary: int) -> mx.array:
        """For each id what a row that thinks commits in its place.

        Ends of sequence begin the end marker; every other id stays as it is.
        """
        table = mx.arange(vocabulary, dtype=mx.uint32)
        if self.end and self.eos:
            table[mx.array(self.eos)] = self.end[0]
        return table


class DecodeRow(Protocol):
    """What the loop needs of a row."""

    tracker: ReasoningTracker

    @property
    def answer_is_blank(self) -> bool:
        """The row is past its thinking and has written nothing that can be seen since."""
        ...

    def observe(self, committed: int, sampled: int) -> None:
        """Take in a token that was read."""
        ...


@dataclass(frozen=True)
class _Steering:
    """What the host's knowledge of all rows means for the next token.

    Rebuilt only when that changes.
    """

    thinking: mx.array | bool
    """(rows,) or one answer for all: an end of sequence is a close."""
    barred: mx.array | None
    """(rows, watched) to add to the logits; None where nothing is barred."""


class Batch:
    """The rows in flight, their cache, and the arrays that steer them.

    Args:
        model: An mlx-lm model.
        controls: The ids to watch.
        closing: `controls.closing_table` of the model's vocabulary.
        rows: The rows, in the order of the cache's first axis.
        cache: Their prompts, all but the last id of each; of a single row, no batch yet.
        sampler: Chooses from logits (rows, vocabulary).
        penalties: Changes logits first, where a row asks for it.
    """

    def __init__(
        self,
        model: Any,
        controls: Controls,
        closing: mx.array,
        rows: Sequence[DecodeRow],
        cache: lm.Cache,
        sampler: Sampler,
        penalties: Penalties | None = None,
    ) -> None:
        self.rows, self.cache = list(rows), cache
        self.sampler, self.penalties = sampler, penalties
        self._model, self._controls, self._closing = model, controls, closing
        self._batched = len(self.rows) > 1
        self._watched = mx.array(controls.watched, mx.int32)
        self._known: list[tuple[bool, ...]] = []
        self._steering = _Steering(False, None)
        self.steer()

    def steer(self) -> bool:
        """Bring the steering up to date with the rows; whether anything has changed."""
        known = [_known(row) for row in self.rows]
        if known == self._known:
            return False
        self._known = known
        thinking = [
            row.tracker.in_thinking and row.tracker.close_id is not None for row in self.rows
        ]
        mixed = any(thinking) and not all(thinking)
        bars = [_bars(row, self._controls) for row in self.rows]
        self._steering = _Steering(
            thinking=mx.array(thinking) if mixed else all(thinking),
            barred=mx.where(mx.array(bars), -mx.inf, 0.0) if any(map(any, bars)) else None,
        )
        return True

    def turn(self, flight: Flight) -> Flight:
        """Feed and read the tokens in flight, and launch the next: the pipelined turn."""
        logits, uniforms = self._launch(flight)
        ahead = self._choose(logits, uniforms)
        mx.async_eval(ahead.sampled, ahead.committed)
        self._read(flight)
        after = self._seam(logits, uniforms, ahead)
        if after is not ahead:
            mx.async_eval(after.sampled, after.committed)
        return after

    def plain_turn(self, flight: Flight) -> Flight:
        """The unpipelined twin: the same tokens, with nothing running while the host thinks."""
        self._read(flight)
        logits, uniforms = self._launch(flight)
        ahead = self._choose(logits, uniforms)
        mx.eval(ahead.sampled, ahead.committed)
        after = self._seam(logits, uniforms, ahead)
        mx.eval(after.sampled, after.committed)
        return after

    def join(self, flight: Flight, other: Batch, its: Flight, vocabulary: int) -> Flight:
        """Take in another batch's rows, behind one's own; a new sampler is to follow."""
        if self.penalties is not None or other.penalties is not None:
            mine = self.penalties or Penalties.neutral(len(self.rows), vocabulary)
            mine.extend(other.penalties or Penalties.neutral(len(other.rows), vocabulary))
            self.penalties = mine
        lm.join(self._as_batch(), other._as_batch())
        self.rows += other.rows
        return Flight(
            mx.concatenate([flight.sampled, its.sampled]),
            mx.concatenate([flight.committed, its.committed]),
        )

    def _as_batch(self) -> lm.Cache:
        if not self._batched:
            self.cache, self._batched = lm.batched(self.cache), True
        return self.cache

    def keep(self, flight: Flight, rows: Sequence[int]) -> Flight:
        """Drop all other rows; a new sampler is to follow."""
        self.rows = [self.rows[i] for i in rows]
        lm.keep(self.cache, rows)
        if self.penalties is not None:
            self.penalties.keep(rows)
        index = mx.array(list(rows))
        return Flight(flight.sampled[index], flight.committed[index])

    def _launch(self, flight: Flight) -> tuple[mx.array, mx.array | None]:
        """Logits after the tokens in flight, and the random numbers to sample from them."""
        logits = lm.forward(self._model, flight.committed[:, None], self.cache)
        if self.penalties is not None:
            logits = self.penalties(logits, flight.committed)
        return logits, self.sampler.draw()

    def _choose(self, logits: mx.array, uniforms: mx.array | None) -> Flight:
        """The next tokens, as far as the host knows."""
        if self._steering.barred is not None:
            logits = logits.at[:, self._watched].add(self._steering.barred.astype(logits.dtype))
        sampled = self.sampler(logits, uniforms)
        return Flight(sampled, self._closed(sampled))

    def _closed(self, sampled: mx.array) -> mx.array:
        """The samples, with ends of sequence made into closes where a row thinks."""
        thinking = self._steering.thinking
        if thinking is False:
            return sampled
        closed = self._closing[sampled]
        return closed if thinking is True else mx.where(thinking, closed, sampled)

    def _read(self, flight: Flight) -> None:
        committed: list[int]
        committed = flight.committed.tolist()  # type: ignore[assignment]  # a flat array of ids
        sampled = committed
        if flight.sampled is not flight.committed:
            sampled = flight.sampled.tolist()  # type: ignore[assignment]  # a flat array of ids
        for row, token, choice in zip(self.rows, committed, sampled, strict=True):
            row.observe(token, choice)

    def _seam(self, logits: mx.array, uniforms: mx.array | None, ahead: Flight) -> Flight:
        """What is committed in place of the samples that nobody has read."""
        barred = self._steering.barred
        if self.steer():
            if barred is not None or self._steering.barred is not None:
                ahead = self._choose(logits, uniforms)
            else:
                ahead = Flight(ahead.sampled, self._closed(ahead.sampled))
        forced = [row.tracker.should_force_think_end() for row in self.rows]
        if any(forced) or (
            len(self._controls.end) > 1 and any(row.tracker.pending for row in self.rows)
        ):
            ahead = Flight(ahead.sampled, self._force(ahead.sampled, ahead.committed, forced))
        return ahead

    def _force(self, sampled: mx.array, committed: mx.array, forced: list[bool]) -> mx.array:
        """Put in the ids that must come.

        Where the sequence would end, markers that are begun are finished.
        """
        trackers = [row.tracker for row in self.rows]
        close = mx.array([tracker.close_id or 0 for tracker in trackers], mx.uint32)
        begun = mx.array([tracker.in_thinking and tracker.pending > 0 for tracker in trackers])
        committed = mx.where(begun & (committed != sampled), close, committed)
        ids = [
            tracker.forced_token_id() if on else 0
            for tracker, on in zip(trackers, forced, strict=True)
        ]
        # A transition gives way to an end marker that the model has sampled itself.
        gives_way = mx.array([tracker.in_transition for tracker in trackers]) & (sampled == close)
        return mx.where(mx.array(forced) & ~gives_way, mx.array(ids, mx.uint32), committed)


def _known(row: DecodeRow) -> tuple[bool, ...]:
    """What the steering of a row depends on."""
    tracker = row.tracker
    return tracker.in_thinking, tracker.start_is_barred, tracker.forced_close, row.answer_is_blank


def _bars(row: DecodeRow, controls: Controls) -> list[bool]:
    """For each watched id, whether it must not be sampled."""
    tracker = row.tracker
    bars = [row.answer_is_blank] * len(controls.eos)
    if controls.start:
        bars.append(tracker.start_is_barred)
    if len(controls.end) == 1:
        bars.append(tracker.forced_close and not tracker.in_thinking)
    return bars
