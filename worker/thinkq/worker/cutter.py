"""Finds strings in a text that comes in pieces, without holding anything back that is decided."""

from __future__ import annotations

from collections.abc import Sequence


class Cutter:
    """Cuts a text at the first of several strings.

    What may still become one of them is held back. Where they overlap, the one that is complete
    first counts, so that it does not matter how the text was cut into pieces. Without strings
    nothing is found.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._longest = max(map(len, self._strings), default=0)
        self._held = ""
        self.found = False

    def push(self, piece: str) -> tuple[str, str]:
        """The text that is certainly before any of the strings, and what follows the one found.

        Once `found` is set, all that is pushed follows it.
        """
        if self.found:
            return "", piece
        if not self._strings:
            return piece, ""
        text, self._held = self._held + piece, ""
        places = [(at + len(each), at) for each in self._strings if (at := text.find(each)) >= 0]
        if places:
            end, at = min(places)
            self.found = True
            return text[:at], text[end:]
        safe = len(text) - self._could_begin(text)
        self._held = text[safe:]
        return text[:safe], ""

    def flush(self) -> str:
        """What was held back and never became one of the strings."""
        held, self._held = self._held, ""
        return held

    def _could_begin(self, text: str) -> int:
        """How many characters at the end of the text may begin one of the strings."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            if any(each.startswith(text[-size:]) for each in self._strings):
                return size
        return 0
