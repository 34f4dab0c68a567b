"""Control tokens that are merely mentioned: kept apart from real ones, from the message to the ids.

Text of a message goes through a chat template, which adds real control tokens around it, and may
itself look for some inside. So before, `guard` puts a stand-in in the place of all text that
reads like a control token; and after, `encode` encodes what the stand-ins stand for as plain
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

# Noncharacters, which Unicode keeps for a program's own use. A stand-in is a number between them.
# The first one has a stand-in of its own, so that text that contains it comes through as well.
_OPEN, _SHUT = "\ufdd0", "\ufdd1"

_BEFORE = "\n"
"""A text that seldom makes one token with what follows it."""


class Literals:
    """Stand-ins for one tokenizer's control tokens.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        markers: Further texts that templates look for, whether they are tokens or not.
    """

    def __init__(self, tokenizer: Any, markers: Iterable[str] = ()) -> None:
        self._tokenizer = tokenizer
        texts = _control_tokens(tokenizer).union(markers)
        self._texts = [*sorted(texts, key=lambda text: (-len(text), text)), _OPEN]
        self._numbers = {text: i for i, text in enumerate(self._texts)}
        self._pattern = re.compile("|".join(map(re.escape, self._texts)))
        self._stand_in = re.compile(f"{_OPEN}([0-9]+){_SHUT}")

    def guard(self, value: Any) -> Any:
        """A text with stand-ins; lists and objects with all the texts in them."""
        if isinstance(value, str):
            return self._pattern.sub(
                lambda match: f"{_OPEN}{self._numbers[match[0]]}{_SHUT}", value
            )
        if isinstance(value, list):
            return [self.guard(each) for each in value]
        if isinstance(value, dict):
            return {self.guard(name): self.guard(each) for name, each in value.items()}
        return value

    def encode(self, text: str) -> list[int]:
        """Ids of a text. Adds no special tokens; a template has written those it wants."""
        ids: list[int] = []
        for piece in self._cut(text):
            ids += self._after(piece) if ids else self._plain(piece)
        return ids

    def _cut(self, text: str) -> Iterator[str]:
        """The text in pieces, in which every control token is a real one."""
        for i, piece in enumerate(self._stand_in.split(text)):
            if i % 2 == 0:
                yield piece
            else:
                # Cut after its first character, a control token's text is no longer one.
                literal = self._texts[int(piece)]
                yield literal[0]
                yield from self._cut(self.guard(literal[1:]))

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False) if text else []
        return ids

    def _after(self, text: str) -> list[int]:
        """Ids of a text that goes on where another ended: some tokenizers put a space before it."""
        before, ids = self._plain(_BEFORE), self._plain(_BEFORE + text)
        return ids[len(before) :] if ids[: len(before)] == before else self._plain(text)


def _control_tokens(tokenizer: Any) -> set[str]:
    """Added tokens, but for those that are pieces of ordinary text as well (spaces, HTML tags)."""
    pieces = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    added = [(token.content, token.special) for token in tokenizer.added_tokens_decoder.values()]
    return {text for text, special in added if len(text) > 1 and (special or text not in pieces)}
