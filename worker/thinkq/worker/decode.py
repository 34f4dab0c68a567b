"""The decode loop: one turn of all rows is a function from what is in flight to what is now in flight.

A sampled token is committed only when it is fed to the next forward pass. So whatever the host decides
after it has read a row's token takes effect on the very next one:

    turn k:  launch forward(y_k), sample y_k+1      the device is busy from here on
             read y_k                               usually done already
             observe y_k in each row                pure Python, no device
             y_k+1 := forced ids and closes         replaces unread samples: no sync, no lag

A row joins with the last id of its prompt in flight, so its first token is sampled like any other. The
id that is forced is the id that the model is fed, so the cache agrees with the transcript. The raw
sample is kept beside the committed id: the two together say why a thought ended.

Three rules need the token in flight, which the host has not read when the next one is sampled, so the
device works them out: while a row thinks, an end of sequence is committed as the end marker; as long as
an answer is blank, it cannot be sampled; and after a close that was not the model's own, no marker can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx

from thinkq.worker import lm
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.sampling import Penalties


@dataclass(frozen=True)
class Flight:
    """One token of each row, (rows,) each, on its way: launched, and not yet read."""

    sampled: mx.array
    """What the model chose."""
    committed: mx.array
    """What it will be fed."""


@dataclass(frozen=True)
class Controls:
    """The ids that the loop watches, the same for all rows.

    `eos` end the sequence. Of the markers only single ids can be barred without barring ordinary words.
    `blank` tells of each id of the vocabulary whether it adds nothing that can be seen.
    """

    eos: tuple[int, ...]
    end: tuple[int, ...]
    start: tuple[int, ...]
    blank: mx.array

    @property
    def ids(self) -> list[int]:
        """Every id whose logit may be put down: eos first, then single-id markers."""
        return [*self.eos, *self.markers]

    @property
    def markers(self) -> list[int]:
        """The single-id markers."""
        return [ids[0] for ids in (self.start, self.end) if len(ids) == 1]


class DecodeRow(Protocol):
    """What the loop needs of a row."""

    tracker: ReasoningTracker
    primed: bool
    """The token in flight is the row's own, not the last of its prompt."""

    @property
    def answer_is_blank(self) -> bool:
        """The row is past its thinking and has written nothing but white space since."""
        ...

    def observe(self, committed: int, sampled: int) -> None:
        """Take in a token that was read."""
        ...


class Batch:
    """The rows in flight, their cache, and the arrays that steer them.

    Args:
        model: An mlx-lm model.
        controls: The ids to watch.
        rows: The rows, in the order of the cache's first axis.
        cache: Their prompts, prefilled.
        sampler: Chooses from logits (rows, vocabulary).
        penalties: Changes logits first, where a row asks for it.
    """

    def __init__(
        self,
        model: Any,
        controls: Controls,
        rows: Sequence[DecodeRow],
        cache: lm.Cache,
        sampler: Callable[[mx.array], mx.array],
        penalties: Penalties | None = None,
    ) -> None:
        self.rows, self.cache = list(rows), cache
        self.sampler, self.penalties = sampler, penalties
        self._model, self._controls = model, controls
        self._eos = mx.array(controls.eos, mx.int32)[None]
        self._watched = mx.array(controls.ids, mx.int32)
        self.refresh()

    def refresh(self) -> None:
        """Bring the steering arrays up to date with the rows' trackers. Needed after any change of rows."""
        self._state = [_steer(row) for row in self.rows]
        trackers = [row.tracker for row in self.rows]
        thinking = [tracker.in_thinking and tracker.close_id is not None for tracker in trackers]
        self._thinking = mx.array(thinking) if any(thinking) else None
        self._close = mx.array([tracker.close_id or 0 for tracker in trackers], mx.int32)
        end = self._controls.end
        about_to_close = [on and tracker.pending == len(end) - 1 for on, tracker in zip(thinking, trackers, strict=True)]
        self._about_to_close = mx.array(about_to_close) if any(about_to_close) else None
        blank = [row.answer_is_blank for row in self.rows]
        self._blank = mx.array(blank) if any(blank) else None
        self._primed = mx.array([row.primed for row in self.rows])
        barred = [_barred(row, self._controls) for row in self.rows]
        self._barred = mx.array(barred) if any(map(any, barred)) else None

    def turn(self, flight: Flight) -> Flight:
        """Feed and read the tokens in flight, and launch the next: the pipelined turn."""
        sampled = self._launch(flight)
        mx.async_eval(sampled)
        self._read(flight)
        after = self._seam(sampled)
        if after.committed is not sampled:
            mx.async_eval(after.committed)
        return after

    def plain_turn(self, flight: Flight) -> Flight:
        """The unpipelined twin: the same tokens, with nothing running while the host thinks."""
        mx.eval(flight.sampled, flight.committed)
        sampled = self._launch(flight)
        mx.eval(sampled)
        self._read(flight)
        after = self._seam(sampled)
        mx.eval(after.committed)
        return after

    def join(self, flight: Flight, other: Batch, its: Flight, vocabulary: int) -> Flight:
        """Take in another batch's rows, behind one's own; `refresh` is to follow."""
        if self.penalties is not None or other.penalties is not None:
            mine = self.penalties or Penalties.neutral(len(self.rows), vocabulary)
            mine.extend(other.penalties or Penalties.neutral(len(other.rows), vocabulary))
            self.penalties = mine
        self.rows += other.rows
        lm.join(self.cache, other.cache)
        return Flight(
            mx.concatenate([flight.sampled, its.sampled]),
            mx.concatenate([flight.committed, its.committed]),
        )

    def keep(self, flight: Flight, rows: Sequence[int]) -> Flight:
        """Drop all other rows; `refresh` is to follow."""
        self.rows = [self.rows[i] for i in rows]
        lm.keep(self.cache, rows)
        if self.penalties is not None:
            self.penalties.keep(rows)
        index = mx.array(list(rows))
        return Flight(flight.sampled[index], flight.committed[index])

    def _launch(self, flight: Flight) -> mx.array:
        logits = lm.forward(self._model, flight.committed[:, None], self.cache)
        return self._sample(logits, flight)

    def _sample(self, logits: mx.array, fed: Flight) -> mx.array:
        if self.penalties is not None:
            logits = self.penalties(logits, fed.committed, self._primed)
        barred = self._barred_now(fed)
        if barred is not None:
            down = mx.where(barred, -mx.inf, 0.0).astype(logits.dtype)
            logits = logits.at[:, self._watched].add(down)
        return self.sampler(logits).astype(mx.int32)

    def _barred_now(self, fed: Flight) -> mx.array | None:
        """Which of the watched ids must not be sampled after the tokens in flight, (rows, watched)."""
        eos = self._blank & self._controls.blank[fed.committed] if self._blank is not None else None
        markers = None
        if self._about_to_close is not None:
            closing = self._about_to_close & (fed.committed == self._controls.end[-1])
            eos = closing if eos is None else eos | closing
            markers = closing & (fed.sampled != fed.committed)
        if eos is None:
            return self._barred
        columns = [eos] * len(self._controls.eos)
        columns += [mx.zeros_like(eos) if markers is None else markers] * len(self._controls.markers)
        now = mx.stack(columns, axis=1)
        return now if self._barred is None else now | self._barred

    def _read(self, flight: Flight) -> None:
        committed = flight.committed.tolist()
        sampled = committed if flight.sampled is flight.committed else flight.sampled.tolist()
        for row, token, choice in zip(self.rows, committed, sampled, strict=True):
            row.observe(token, choice)

    def _seam(self, sampled: mx.array) -> Flight:
        """What is committed in place of the samples that nobody has read."""
        if [_steer(row) for row in self.rows] != self._state:
            self.refresh()
        committed = sampled
        if self._thinking is not None:
            ended = mx.any(sampled[:, None] == self._eos, axis=-1) & self._thinking
            committed = mx.where(ended, self._close, sampled)
        forced = [row.tracker.should_force_think_end() for row in self.rows]
        if any(forced):
            committed = self._force(sampled, committed, forced)
        return Flight(sampled, committed)

    def _force(self, sampled: mx.array, committed: mx.array, forced: list[bool]) -> mx.array:
        trackers = [row.tracker for row in self.rows]
        ids = [tracker.forced_token_id() if on else 0 for tracker, on in zip(trackers, forced, strict=True)]
        mask = mx.array(forced)
        if any(tracker.in_transition for tracker in trackers):
            # A transition gives way to an end marker that the model has sampled itself.
            yields = mx.array([tracker.in_transition for tracker in trackers])
            mask = mask & ~(yields & (sampled == self._close))
        return mx.where(mask, mx.array(ids, mx.int32), committed)


def _steer(row: DecodeRow) -> tuple[bool, int, bool, bool, bool]:
    """What decides the steering arrays of a row; they are rebuilt only when it changes."""
    tracker = row.tracker
    return tracker.in_thinking, tracker.pending, tracker.start_is_barred, row.answer_is_blank, row.primed


def _barred(row: DecodeRow, controls: Controls) -> list[bool]:
    """For each watched id, whether it must not be sampled, as far as the host can see."""
    tracker = row.tracker
    bars = [row.answer_is_blank and not row.primed] * len(controls.eos)
    if len(controls.start) == 1:
        bars.append(tracker.start_is_barred)
    if len(controls.end) == 1:
        bars.append(tracker.forced_close and not tracker.in_thinking)
    return bars
