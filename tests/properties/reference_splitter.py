"""The think filter again, slow and obvious: whole text, regular expressions, no state.

Written for the tests and from the rules alone. It looks at every stretch from a `<` on and asks
two questions of it: is it a tag, and may it still become one?
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

_FLAGS = re.ASCII | re.IGNORECASE
_QUOTED = re.compile(r"""=[ \t\n\r\f]*(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z))""")
_OPEN = re.compile(r"</?think(?:ing)?(?:[ \t\n\r\f/][^<>]*)?", _FLAGS)
_NAMES = ("<think", "<thinking", "</think", "</thinking")


@dataclass(frozen=True)
class Split:
    """`spans` are all pieces of the text in order, tags among them; together they are the text."""

    spans: list[str]
    segments: list[tuple[str, bool]]
    warnings: set[str]


def is_tag(stretch: str) -> bool:
    """Whether a stretch is one whole tag."""
    bare = _QUOTED.sub("_", stretch)
    return bare.endswith(">") and _OPEN.fullmatch(bare[:-1]) is not None


def may_become_tag(stretch: str) -> bool:
    """Whether more text could make a tag of a stretch that is none yet."""
    is_short = stretch.isascii() and any(name.startswith(stretch.lower()) for name in _NAMES)
    return is_short or _OPEN.fullmatch(_QUOTED.sub("_", stretch)) is not None


def split(text: str, starts_in_thinking: bool, max_buffer: int) -> Split:
    """What the filter must make of the whole text."""
    level, blank_so_far, closers = int(starts_in_thinking), True, 0
    pieces: list[tuple[str, bool]] = []
    warnings: set[str] = set()
    spans = _spans(text, max_buffer)
    for span in spans:
        if not is_tag(span):
            pieces.append((span, level > 0))
        elif span.startswith("</"):
            closers += 1
            if level == 0:
                warnings.add("orphan_close")
            level = max(0, level - 1)
        elif span.endswith("/>") or (starts_in_thinking and blank_so_far):
            pass
        else:
            level += 1
        blank_so_far = blank_so_far and span.isspace()
    if level > 0 and closers:
        warnings.add("unbalanced_think")
    return Split(spans, merge(pieces), warnings)


def merge(pieces: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Neighbours of one side joined."""
    runs = groupby(pieces, key=lambda piece: piece[1])
    return [("".join(text for text, _ in run), side) for side, run in runs]


def _spans(text: str, max_buffer: int) -> list[str]:
    spans, at = [], 0
    while at < len(text):
        end = _end_of_stretch(text, at, max_buffer) if text[at] == "<" else at + 1
        spans.append(text[at:end])
        at = end
    return spans


def _end_of_stretch(text: str, at: int, max_buffer: int) -> int:
    """Where the tag that begins here ends, or where it is ruled out, or too long."""
    longest = min(len(text), at + max_buffer)
    for end in range(at + 1, longest + 1):
        if is_tag(text[at:end]):
            return end
        if not may_become_tag(text[at:end]):
            return end - 1
    return longest
