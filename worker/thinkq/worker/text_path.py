"""The split for models whose vocabulary has no think markers: by their text.

Here ThinkFilter reads what the model writes and says which side it is on. It can be fooled by a
tag that is merely mentioned, which is why token ids come first wherever a model has them. The
budget is as hard as ever: at its end the encoded marker is forced, whatever the filter makes of
the text, and reading begins anew behind it.

A tag cannot be barred, because its pieces are ordinary text. So a block that the model opens
again after a forced close is closed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thinkq.client.job import Job
from thinkq.worker.families import THINK, Markers
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.tagger import Sink, Tagger, new_decoder
from thinkq.worker.think_filter import Segment, ThinkFilter
from thinkq.worker.tokens import TokenBytes
from thinkq.worker.tools import ToolSyntax

Encode = Callable[[str], list[int]]
"""Text to ids, without any special tokens."""


def is_needed(markers: Markers) -> bool:
    """Whether these markers are text, and such as the filter can read."""
    return markers.by == "text" and markers.end == THINK.end


class TextTracker(ReasoningTracker):
    """A ReasoningTracker whose blocks open and close where ThinkFilter says so.

    A token counts for the side that it leaves the filter on. Those that make up a tag that opens
    or closes a block are control, as far as they hold nothing else, and so is the one that
    completes it. Tags inside of a block are thinking: a budget must not be spun out with them.

    Args:
        starts_in_thinking: The rendered prompt's tail opened a block.
        budget: Thinking tokens allowed over all blocks; None never forces.
        markers: The markers' text and its ids.
        transition_ids: Forced before the end marker.
        eos_ids: Ids that end the sequence; sampled while thinking they are a close.
        table: The tokenizer's bytes.
        encode: The tokenizer's encoder, for the rest of a marker that the model has begun.
    """

    def __init__(
        self,
        starts_in_thinking: bool,
        budget: int | None,
        markers: Markers,
        transition_ids: Sequence[int] = (),
        *,
        eos_ids: Sequence[int] = (),
        table: TokenBytes,
        encode: Encode,
    ) -> None:
        super().__init__(
            starts_in_thinking, budget, markers.end_ids, (), transition_ids, eos_ids=eos_ids
        )
        self.warnings: list[str] = []
        """What the filter found odd so far."""
        self._marker, self._table = markers.end, table
        rests = {size: tuple(encode(markers.end[size:])) for size in range(1, len(markers.end))}
        self._rests = {size: ids for size, ids in rests.items() if len(ids) <= len(markers.end_ids)}
        self._filter = ThinkFilter(starts_in_thinking)
        self._decoder = new_decoder("replace")
        self._segments: list[Segment] = []

    @property
    def pending(self) -> int:
        """How much of the end marker is there: ids of a forced one, or the model's characters."""
        return self._end.matched or self._begun

    @property
    def close_ids(self) -> tuple[int, ...]:
        """What ends the open block: the end marker, or the rest of one that the model has begun."""
        return self._rests.get(self._begun, self._end.ids)

    @property
    def _begun(self) -> int:
        """How many characters of the end marker the model has written, if it can be completed."""
        held = self._filter.held
        begins = self._marker.startswith(held.lower()) and len(held) in self._rests
        unfinished, _ = self._decoder.getstate()  # bytes that the marker does not have
        return len(held) if begins and not unfinished else 0

    def should_force_think_end(self) -> bool:
        """Whether the next committed token has to be `forced_token_id()`."""
        if self.forced_close:
            self.close(self._reason)
        return super().should_force_think_end()

    def take(self) -> list[Segment]:
        """The text that was decided since the last call."""
        taken, self._segments = self._segments, []
        return taken

    def finish(self) -> None:
        """Decide what is held back: the row has ended."""
        self._segments += self._end_text()

    def _observe_thinking(self, token: int) -> None:
        if self._read(token):
            self._count("control")
            self._finish_close()
        else:
            self._count("thinking")

    def _observe_answer(self, token: int) -> None:
        if token in self._eos:
            self._count("control")
        elif self._read(token):
            self._open_block()
        else:
            self._count("answer")

    def _read(self, token: int) -> bool:
        """Give a token's text to the filter; whether that changes the side."""
        before = self._filter.in_thinking
        text = self._decoder.decode(self._table[token])
        segments = self._filter.push(text).segments
        self._segments += segments
        changed = self._filter.in_thinking != before
        if any(segment.is_reasoning == before for segment in segments):
            self._tentative = 0
        elif text and not changed:
            self._tentative += 1
        return changed

    def _finish_close(self) -> None:
        if self._filter.in_thinking:  # the close was forced, and did not go through the filter
            begun, rest = self._begun, self._end_text()
            if not begun:
                self._segments += rest
                self._tentative = 0
            self._filter = ThinkFilter()
            self._transition = ()
        super()._finish_close()

    def _end_text(self) -> list[Segment]:
        """Finish the filter: what it held back, of which a begun marker is no text."""
        last = self._filter.push(self._decoder.decode(b"", True)).segments
        segments = [*last, *self._filter.finish().segments]
        self.warnings += [each for each in self._filter.warnings if each not in self.warnings]
        return segments


class TextTagger(Tagger):
    """A Tagger of the text that a TextTracker has decided."""

    def __init__(
        self,
        table: TokenBytes,
        tracker: TextTracker,
        job: Job,
        syntax: ToolSyntax | None = None,
        sink: Sink | None = None,
    ) -> None:
        super().__init__(table, tracker, job, syntax, sink)
        self._reader = tracker
        # Both sides are one text, and only its beginning has the dummy prefix.
        self._untouched[not tracker.in_thinking] = False

    @property
    def warnings(self) -> list[str]:
        """What was odd about the text so far."""
        return [*super().warnings, *self._reader.warnings]

    def push(self, token: int) -> None:
        """Take in the token that the tracker has just observed."""
        for segment in self._reader.take():
            self._write(*segment)

    def finish(self) -> None:
        """Let go of all that was held back: the row has ended."""
        self._reader.finish()
        for segment in self._reader.take():
            self._write(*segment)
        self._finish_answer()
