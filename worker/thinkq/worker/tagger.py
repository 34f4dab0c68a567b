"""Token ids to tagged text, by position and nothing else.

Each side of a row has an incremental decoder of its own. Bytes of an unfinished character wait for the
next token; at the end of a side they become one U+FFFD. Ids that may turn out to be a marker wait too.
The concatenation of all pieces is the text that is stored, to the byte.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.tokens import TokenBytes

Sink = Callable[[str, bool], None]
"""Called with each piece of text, and whether it is reasoning. It must only take note of it."""

_new_decoder = codecs.getincrementaldecoder("utf-8")


class StopStrings:
    """Finds the first of several strings in a text that comes in pieces.

    What may still become a stop string is held back; text from the match on never leaves.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that is safe to show. After a match `found` is set."""
        if not self._stops or self.found:
            return "" if self.found else text
        text = self._held + text
        at = min((i for i in map(text.find, self._stops) if i >= 0), default=-1)
        if at >= 0:
            self.found, self._held = True, ""
            return text[:at]
        keep = self._hold(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back and never became a stop string."""
        held, self._held = self._held, ""
        return held

    def _hold(self, text: str) -> int:
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0


class Tagger:
    """Text of one row, told apart by the tracker.

    Args:
        table: The tokenizer's bytes.
        tracker: The row's tracker; each token is observed there first, then pushed here.
        stops: Strings that end the answer.
        sink: Where pieces go as they come; None: they are only kept.
        include_reasoning: Whether thinking is kept and sent.
    """

    def __init__(
        self,
        table: TokenBytes,
        tracker: ReasoningTracker,
        stops: Sequence[str] = (),
        sink: Sink | None = None,
        include_reasoning: bool = True,
    ) -> None:
        self._table, self._tracker = table, tracker
        self._stops = StopStrings(stops)
        self._sink, self._include_reasoning = sink, include_reasoning
        self._decoders = (_new_decoder("replace"), _new_decoder("replace"))
        self._pieces: tuple[list[str], list[str]] = ([], [])
        self._begun = [False, False]
        self._blank = ""
        self._answer_has_text = False
        self._waiting: list[int] = []
        self._side = tracker.in_thinking

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the answer."""
        return self._stops.found

    @property
    def answer_is_blank(self) -> bool:
        """Whether the answer is white space only, so far."""
        return not self._answer_has_text

    @property
    def thinking(self) -> str | None:
        """All thinking so far, verbatim; None if it is white space only or not included."""
        return "".join(self._pieces[True]) or None

    @property
    def answer(self) -> str:
        """All of the answer so far, without its leading newlines."""
        return "".join(self._pieces[False])

    def push(self, token: int) -> None:
        """Take in the token that the tracker has just observed."""
        tracker = self._tracker
        if tracker.kind == "control":
            self._waiting.clear()
        else:
            self._waiting.append(token)
            ready = len(self._waiting) - tracker.pending
            if ready > 0:
                self._write(b"".join(map(self._table.__getitem__, self._waiting[:ready])), self._side)
                del self._waiting[:ready]
        if tracker.in_thinking != self._side:
            self._end_side()
            self._side = tracker.in_thinking

    def finish(self) -> None:
        """Let go of all that was held back: the row has ended."""
        self._write(b"".join(map(self._table.__getitem__, self._waiting)), self._side)
        self._waiting.clear()
        self._end_side()
        if not self.stopped:
            self._emit(self._stops.flush(), False)

    def _end_side(self) -> None:
        self._write(b"", self._side, final=True)
        self._decoders[self._side].reset()

    def _write(self, data: bytes, reasoning: bool, *, final: bool = False) -> None:
        text = self._decoders[reasoning].decode(data, final)
        if not text:
            return
        if not self._begun[reasoning]:
            text = self._begin(text, reasoning)
        if text and not reasoning:
            self._answer_has_text = self._answer_has_text or not text.isspace()
            text = self._stops.push(text)
        self._emit(text, reasoning)

    def _begin(self, text: str, reasoning: bool) -> str:
        """Drop the answer's leading newlines; hold thinking back while it is white space only."""
        if reasoning:
            text = self._blank + text
            self._blank = "" if text.strip() else text
            self._begun[True] = not self._blank
            return "" if self._blank else text
        text = text.lstrip("\n")
        self._begun[False] = bool(text)
        return text

    def _emit(self, text: str, reasoning: bool) -> None:
        if not text or (reasoning and not self._include_reasoning):
            return
        self._pieces[reasoning].append(text)
        if self._sink is not None:
            self._sink(text, reasoning)
