"""The bytes behind each token id, so that text can be decoded without ever re-decoding a prefix."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes, as used by every byte-level BPE."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


_ALPHABET = _byte_level_alphabet()


def _byte_level(piece: str) -> bytes:
    return bytes(_ALPHABET[char] for char in piece)


def _sentence_piece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()


class TokenBytes:
    """`table[id]` is the bytes of a token; added tokens stand for their own text.

    Args:
        tokenizer: A fast Hugging Face tokenizer (one with a Rust backend).

    Raises ValueError for a tokenizer whose decoder is neither byte-level nor of SentencePiece's kind.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._piece = tokenizer.convert_ids_to_tokens
        self._added = {index: text.encode() for text, index in tokenizer.get_added_vocab().items()}
        self._decode = _decoder_of(tokenizer)
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


def _decoder_of(tokenizer: Any) -> Callable[[str], bytes]:
    state = json.loads(tokenizer.backend_tokenizer.decoder.__getstate__())
    kinds = {state["type"], *(each["type"] for each in state.get("decoders", ()))}
    if "ByteLevel" in kinds:
        return _byte_level
    if kinds & {"Metaspace", "ByteFallback", "Replace"}:
        return _sentence_piece
    raise ValueError(f"the tokenizer's decoder ({', '.join(sorted(kinds))}) is not one that thinkq can stream")
