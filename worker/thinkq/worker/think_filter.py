"""Splits streamed text into thinking and answer by its `<think>` tags.

For models whose think markers are not tokens of their own. Where they are, the split is by token
id, for this filter cannot tell a tag from the mention of one. Needs the standard library only.

Two rules stand above the others: no text is lost, and where the text was cut into chunks changes
nothing. So it reads one character at a time, and `_State` says what the last one left open.

- A `<` may begin a tag. From there on text is held, until the tag is complete or a character rules
  it out. What was held is then text like any other, and that character is read anew: it may be the
  next `<`.
- A tag is `<` or `</`, then `think` or `thinking` in ASCII letters of any case, then `>`; or `/` or
  white space and any attributes up to `>`. A value quoted after `=` may contain anything. Outside
  of quotes a `<` rules the tag out, so that `I <think so</think>` still finds its closer.
- Tags are removed. An opener goes one level deeper, a closer one level back but never below zero,
  a self-closing opener does nothing. Text at level zero is the answer, all other is thinking.
- A stream that starts in thinking starts at level one. An opener that is the first thing in it but
  for white space echoes the one in the prompt: it is removed and goes no level deeper.
- A tag has at most `max_buffer` characters. One that is still open at that length is given out as
  text and reading goes on behind it, so the rest of it is text too. When the stream ends, what is
  held is text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Literal, NamedTuple

FilterWarning = Literal["unbalanced_think", "orphan_close"]


class Segment(NamedTuple):
    """A piece of the text, never empty, and the side it belongs to."""

    text: str
    is_reasoning: bool


@dataclass(frozen=True, slots=True)
class FilterOut:
    """What one call gave out: segments in the order of the text, neighbours of different sides."""

    segments: tuple[Segment, ...]

    @property
    def content(self) -> str:
        """The answer in these segments, verbatim."""
        return "".join(segment.text for segment in self.segments if not segment.is_reasoning)

    @property
    def thinking(self) -> str:
        """The thinking in these segments, verbatim."""
        return "".join(segment.text for segment in self.segments if segment.is_reasoning)


@dataclass(slots=True)
class _Run:
    """A segment in the making."""

    is_reasoning: bool
    texts: list[str] = field(default_factory=list)


class _State(Enum):
    """TEXT and FINISHED hold nothing, TAG is complete, the others are inside of a possible tag."""

    TEXT = auto()
    NAME = auto()
    ATTRIBUTES = auto()
    VALUE = auto()  # behind `=`, where a quote may open
    SINGLE_QUOTED = auto()
    DOUBLE_QUOTED = auto()
    TAG = auto()
    FINISHED = auto()


_NAMES: Final = frozenset({"<think", "<thinking", "</think", "</thinking"})
_STARTS: Final = frozenset(name[:end] for name in _NAMES for end in range(1, len(name) + 1))
_WHITE_SPACE: Final = frozenset(" \t\n\r\f")


def _after_name(held: str, char: str) -> _State:
    """Where `char` leads from NAME; TEXT: it rules the tag out."""
    name = held.lower()
    # isascii: the Kelvin sign is a K that lower-cases to an ASCII k.
    if char.isascii() and name + char.lower() in _STARTS:
        return _State.NAME
    if name not in _NAMES:
        return _State.TEXT
    if char == ">":
        return _State.TAG
    return _State.ATTRIBUTES if char == "/" or char in _WHITE_SPACE else _State.TEXT


def _after_attributes(state: _State, char: str) -> _State:
    """Where `char` leads from the states behind the name; TEXT: it rules the tag out."""
    match state, char:
        case (_State.SINGLE_QUOTED, "'") | (_State.DOUBLE_QUOTED, '"'):
            return _State.ATTRIBUTES
        case ((_State.SINGLE_QUOTED | _State.DOUBLE_QUOTED), _):
            return state
        case _, ">":
            return _State.TAG
        case _, "<":
            return _State.TEXT
        case _, "=":
            return _State.VALUE
        case _State.VALUE, "'":
            return _State.SINGLE_QUOTED
        case _State.VALUE, '"':
            return _State.DOUBLE_QUOTED
    return state if char in _WHITE_SPACE else _State.ATTRIBUTES


class ThinkFilter:
    """Splits one stream: `push` each chunk, then `finish` once.

    `starts_in_thinking`: the prompt ends inside an open think block. `max_buffer`: the most
    characters that a tag may have, and so an upper bound of what is held back.

    `warnings` names what looked wrong so far, each once: `orphan_close`, a closer outside of any
    block; `unbalanced_think`, the stream ended inside a block although there was a closer, so part
    of the answer may be in the thinking.

    Raises ValueError for a `max_buffer` below 1.
    """

    def __init__(self, starts_in_thinking: bool = False, max_buffer: int = 1024) -> None:
        if max_buffer < 1:
            raise ValueError(f"max_buffer must be at least 1 character, not {max_buffer}")
        self.warnings: list[FilterWarning] = []
        self._max_buffer = max_buffer
        self._state = _State.TEXT
        self._level = int(starts_in_thinking)
        self._echo_possible = starts_in_thinking
        self._closer_seen = False
        self._held: list[str] = []
        self._ready: list[_Run] = []

    @property
    def in_thinking(self) -> bool:
        """Whether text read now would be thinking. Held text decides nothing yet."""
        return self._level > 0

    @property
    def held(self) -> str:
        """The text that is held back: what may still become a tag."""
        return "".join(self._held)

    def push(self, chunk: str) -> FilterOut:
        """Reads the next chunk and gives out all text that is decided.

        Raises RuntimeError after `finish`.
        """
        self._refuse_if_finished()
        at = 0
        while at < len(chunk):
            if self._state is _State.TEXT:
                at = self._pass_text(chunk, at)
            else:
                at += self._read(chunk[at])
        return self._take()

    def finish(self) -> FilterOut:
        """Ends the stream and gives out what was held. Raises RuntimeError the second time."""
        self._refuse_if_finished()
        self._emit(self._let_go())
        self._state = _State.FINISHED
        if self.in_thinking and self._closer_seen:
            self.warnings.append("unbalanced_think")
        return self._take()

    def _refuse_if_finished(self) -> None:
        if self._state is _State.FINISHED:
            raise RuntimeError("this ThinkFilter is finished; make a new one for the next stream")

    def _pass_text(self, chunk: str, at: int) -> int:
        """Reads up to the next `<` and that; returns the position behind it."""
        opening = chunk.find("<", at)
        if opening < 0:
            self._emit(chunk[at:])
            return len(chunk)
        self._emit(chunk[at:opening])
        self._hold("<", _State.NAME)
        return opening + 1

    def _read(self, char: str) -> int:
        """Reads one character of a possible tag; returns how many it took, 0 or 1."""
        if self._state is _State.NAME:
            state = _after_name(self.held, char)
        else:
            state = _after_attributes(self._state, char)
        if state is _State.TEXT:
            self._emit(self._let_go())
            return 0
        self._hold(char, state)
        return 1

    def _hold(self, char: str, state: _State) -> None:
        self._held.append(char)
        self._state = state
        if state is _State.TAG:
            self._apply(self._let_go())
        elif len(self._held) == self._max_buffer:
            self._emit(self._let_go())

    def _let_go(self) -> str:
        held = self.held
        self._held.clear()
        self._state = _State.TEXT
        return held

    def _apply(self, tag: str) -> None:
        is_echo, self._echo_possible = self._echo_possible, False
        if tag.startswith("</"):
            self._closer_seen = True
            if self._level == 0 and "orphan_close" not in self.warnings:
                self.warnings.append("orphan_close")
            self._level = max(0, self._level - 1)
        elif not is_echo and not tag.endswith("/>"):
            self._level += 1

    def _emit(self, text: str) -> None:
        if not text:
            return
        self._echo_possible = self._echo_possible and text.isspace()
        if not self._ready or self._ready[-1].is_reasoning != self.in_thinking:
            self._ready.append(_Run(self.in_thinking))
        self._ready[-1].texts.append(text)

    def _take(self) -> FilterOut:
        ready, self._ready = self._ready, []
        return FilterOut(tuple(Segment("".join(run.texts), run.is_reasoning) for run in ready))
