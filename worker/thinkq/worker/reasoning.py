"""ReasoningTracker: where a row's tokens belong, and when its thinking must end.

Two rules govern everything here:

1. A budget of N means that at most N tokens which the model itself chose are spent on thinking,
   over all blocks of the job. Markers and forced tokens are never charged.
2. A close that is scheduled is carried out, once, whatever the model samples meanwhile.

How it works. The tracker is pure: no device, no text, no I/O. For each committed token the decode
loop calls `observe_token`, then asks `should_force_think_end`; if so, the next committed token is
`forced_token_id()`, in place of a sample that nobody has read yet. States and transitions:

    ANSWER   -- start marker ------------------> THINKING  charged to what is left of the budget
    THINKING -- end marker, sampled -----------> ANSWER    natural
    THINKING -- budget spent, or close(reason)-> CLOSING   a plan: transition, then end marker
    THINKING -- end of sequence, sampled ------> CLOSING   the loop commits `close_id` in its place
    CLOSING  -- the plan is carried out -------> ANSWER    natural, eos, or the reason scheduled

A marker may be several ids. Ids that may turn out to be a marker count as what surrounds them until
it is complete, then as control; `pending` says how many of the last ids are in that state. A marker
that the model has begun is completed, never begun again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from thinkq.client.result import CloseReason

Kind = Literal["thinking", "answer", "control"]


class Marker:
    """Finds ids in a stream of ids (Knuth, Morris, Pratt). Empty ids are never found."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = tuple(ids)
        self.matched = 0
        self._fallback = [0] * len(self.ids)
        for i in range(1, len(self.ids)):
            self._fallback[i] = self._advance(self._fallback[i - 1], self.ids[i])

    def _advance(self, matched: int, token: int) -> int:
        while matched and self.ids[matched] != token:
            matched = self._fallback[matched - 1]
        return matched + 1 if self.ids[matched] == token else 0

    def push(self, token: int) -> bool:
        """Whether this id completes the marker. If not, `matched` ids of one are behind us."""
        if not self.ids:
            return False
        self.matched = self._advance(self.matched, token)
        if self.matched < len(self.ids):
            return False
        self.matched = 0
        return True


class ReasoningTracker:
    """One job's thinking, counted and ended on time.

    Args:
        starts_in_thinking: The rendered prompt's tail opened a block.
        budget: Thinking tokens allowed over all blocks; None never forces.
        think_end_ids: The end marker. Empty: nothing can be forced.
        think_start_ids: The start marker, for models that open blocks themselves.
        transition_ids: Forced before the end marker; left out at budget 0, and where the model has
            begun the marker itself.
        eos_ids: Ids that end the sequence; sampled while thinking they are a close.
        answer_start_ids: What the model writes before an answer that no thought precedes; control.
    """

    def __init__(
        self,
        starts_in_thinking: bool,
        budget: int | None,
        think_end_ids: Sequence[int],
        think_start_ids: Sequence[int] = (),
        transition_ids: Sequence[int] = (),
        *,
        eos_ids: Sequence[int] = (),
        answer_start_ids: Sequence[int] = (),
    ) -> None:
        self.in_thinking = self.ever_thought = starts_in_thinking
        self.budget = budget
        self.thinking_tokens = 0
        self.answer_tokens = 0
        self.control_tokens = 0
        self.kind: Kind = "answer"
        """What the last observed token is."""
        self.is_stray = False
        """Whether the last token is control but no part of a marker: what was pending is text."""
        self.forced_close = False
        """Whether any block was closed by other means than the model's own marker."""
        self._end, self._start = Marker(think_end_ids), Marker(think_start_ids)
        self._answer_start = Marker(answer_start_ids)
        self._transition = () if budget == 0 else tuple(transition_ids)
        self._eos = frozenset(eos_ids)
        self._reason: CloseReason = "none"
        self._scheduled: CloseReason | None = None
        self._plan: tuple[int, ...] = ()
        self._close_has_begun = False
        self._handed_out = False
        self._tentative = 0
        self._marker_is_natural = True

    @property
    def spent(self) -> bool:
        """Whether no thinking token is left."""
        return self.budget is not None and self.thinking_tokens >= self.budget

    @property
    def start_is_barred(self) -> bool:
        """Whether the start marker must not be sampled: after a forced close, or when all is spent.

        One of several ids is barred behind its first. With nothing to spend its first block is let
        in: a model that always opens one has no other way to its answer.
        """
        barred = self.forced_close or self.spent
        if len(self._start.ids) == 1:
            return barred
        return barred and self.ever_thought and self._start.matched == 1

    @property
    def pending(self) -> int:
        """How many of the last ids may yet turn out to be a marker."""
        if self.in_thinking:
            return self._end.matched
        return max(self._start.matched, self._answer_start.matched)

    @property
    def in_transition(self) -> bool:
        """Whether a close is scheduled whose next id is transition text, not yet the marker."""
        return len(self._plan) > len(self._end.ids)

    @property
    def close_ids(self) -> tuple[int, ...]:
        """What ends the open block: the end marker, or what is left of one that is begun."""
        return self._end.ids[self._end.matched :]

    @property
    def close_id(self) -> int | None:
        """The first of `close_ids`; None where there is no end marker."""
        return self.close_ids[0] if self._end.ids else None

    @property
    def close_reason(self) -> CloseReason:
        """Why the last block ended; `length` while one is open, `none` if there was none."""
        return "length" if self.in_thinking else self._reason

    def close(self, reason: CloseReason) -> None:
        """Schedule the end of the open block (loop, deadline, tool). The first reason stands."""
        if self.in_thinking and self._end.ids and self._scheduled is None:
            self._scheduled = reason
            self._plan = (() if self.pending else self._transition) + self.close_ids

    def should_force_think_end(self) -> bool:
        """Whether the next committed token has to be `forced_token_id()`."""
        if self.spent:
            self.close("budget")
        return self._scheduled is not None

    def forced_token_id(self) -> int:
        """The next id of the close. Asking twice gives the same id; observing it moves on.

        Raises RuntimeError where nothing is to be forced.
        """
        if not self.should_force_think_end():
            raise RuntimeError("no close is scheduled")
        self._handed_out = True
        return self._plan[0]

    def observe_token(self, token: int, sampled: int | None = None) -> bool:
        """Take in one committed id; `sampled` is the model's own choice at that position.

        Without `sampled` a token that was handed out counts as forced, any other as chosen.
        Returns whether the token is reasoning; `kind` tells control from answer.
        Raises ValueError if another token was committed than the forced one: the loop is broken.
        """
        natural = not self._handed_out if sampled is None else sampled == token
        self._handed_out = self.is_stray = False
        if self.in_thinking:
            if self._scheduled is None and sampled in self._eos and token == self.close_id:
                self.close("eos")
                self._plan = self.close_ids
            if self._scheduled is not None:
                self._observe_closing(token, natural, by_eos=sampled in self._eos)
            else:
                self._observe_thinking(token)
        else:
            self._observe_answer(token)
        return self.kind == "thinking"

    def _observe_closing(self, token: int, natural: bool, *, by_eos: bool) -> None:
        if token != self._plan[0]:
            if not (natural and token == self._end.ids[0] and self.in_transition):
                raise ValueError(f"token {token} was committed where {self._plan[0]} had to be")
            self._plan = self._end.ids  # the model's own marker makes the transition needless
        if by_eos and not self._close_has_begun:
            self._scheduled = "eos"
        self._close_has_begun = True
        in_marker = not self.in_transition
        self._plan = self._plan[1:]
        self._count("control")
        if in_marker:
            self._marker_is_natural &= natural
            self._end.push(token)
            if not self._plan:
                self._finish_close()

    def _observe_thinking(self, token: int) -> None:
        if self._end.push(token):
            self._count("control")
            self._finish_close()
        elif token in self._eos:
            self._count("control")  # only where nothing closes a thought at the end of sequence
        else:
            self._count("thinking")
            self._tentative = self._end.matched

    def _finish_close(self) -> None:
        self.thinking_tokens -= self._tentative
        self.control_tokens += self._tentative
        self.in_thinking = False
        self._reason = "natural" if self._marker_is_natural else self._scheduled or "natural"
        self.forced_close |= not self._marker_is_natural
        self._scheduled, self._plan, self._tentative = None, (), 0
        self._marker_is_natural, self._close_has_begun = True, False

    def _observe_answer(self, token: int) -> None:
        opens, begins = self._start.push(token), self._answer_start.push(token)
        if opens:
            self._open_block()
        elif begins:
            self._complete_marker()
        elif token in self._eos or self._end.ids == (token,):
            self.is_stray = True
            self._count("control")
        else:
            self._count("answer")
            self._tentative = self.pending

    def _open_block(self) -> None:
        self._complete_marker()
        self.in_thinking = self.ever_thought = True

    def _complete_marker(self) -> None:
        self.answer_tokens -= self._tentative
        self.control_tokens += self._tentative
        self._tentative = 0
        self._count("control")

    def _count(self, kind: Kind) -> None:
        self.kind = kind
        if kind == "thinking":
            self.thinking_tokens += 1
        elif kind == "answer":
            self.answer_tokens += 1
        else:
            self.control_tokens += 1
