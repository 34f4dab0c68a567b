"""The bytes behind each token id, so that text can be decoded without ever re-decoding a prefix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes, as used by every byte-level BPE."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


_ALPHABET = _byte_level_alphabet()


def _byte_level(piece: str) -> bytes:
    try:
        return bytes(_ALPHABET[char] for char in piece)
    except KeyError:
        return piece.encode()  # a piece that stands for itself, as in the tokenizer's own decoder


_BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")


def _sentence_piece(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace("▁", " ").encode()


class TokenBytes:
    """`table[id]` is the bytes of a token; added tokens stand for their own text.

    `dummy_prefix` is what the tokenizer puts before every text when it encodes, and takes away
    from the beginning when it decodes: a space, or nothing.

    Args:
        tokenizer: A fast Hugging Face tokenizer (one with a Rust backend).

    Raises ValueError if the decoder is neither byte-level nor of SentencePiece's kind.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._piece: Callable[[int], str | None] = tokenizer.convert_ids_to_tokens
        self._added: dict[int, bytes] = {
            index: text.encode() for text, index in tokenizer.get_added_vocab().items()
        }
        self._decode, self.dummy_prefix = _decoder_of(tokenizer)
        self._known: dict[int, bytes] = {}

    def __getitem__(self, token: int) -> bytes:
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._look_up(token)
        return known

    def _look_up(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token]
        piece = self._piece(token)
        return b"" if piece is None else self._decode(piece)


def _decoder_of(tokenizer: Any) -> tuple[Callable[[str], bytes], str]:
    """How pieces become bytes, and the dummy prefix."""
    state = json.loads(tokenizer.backend_tokenizer.decoder.__getstate__())
    parts = {each["type"]: each for each in (state, *state.get("decoders", ()))}
    if "ByteLevel" in parts:
        return _byte_level, ""
    if not parts.keys() & {"Metaspace", "ByteFallback", "Replace"}:
        raise ValueError(
            f"thinkq cannot stream this tokenizer's decoder ({', '.join(sorted(parts))})"
        )
    strips = parts.get("Strip", {}).get("start", 0) > 0
    prepends = parts.get("Metaspace", {}).get("prepend_scheme", "never") != "never"
    return _sentence_piece, " " if strips or prepends else ""
