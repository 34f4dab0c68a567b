"""What holds for the think filter whatever the text and wherever it is cut."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties.reference_splitter import is_tag, may_become_tag, merge, split
from thinkq.worker.think_filter import ThinkFilter

PIECES = [
    *("<think>", "</think>", "<thinking>", "</thinking>", "<think/>", "</THINK >", "<Think a='>'>"),
    *("<", "</", "<t", "<thin", "<think", "</thinking", "<think ", "<think2>", "<thin\u212a>"),
    *(">", "/", "/>", "=", '"', "'", '="', "= '", "=a", " ", "\f", "\v", "\u00a0"),
    *("a", "ing", "\u0130", "\U0001f525"),
]
"""Tags, halves of tags, look-alikes and everything that moves the filter from state to state."""

texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=30).map("".join)
buffers = st.integers(1, 24) | st.just(1024)


def cut(text: str, positions: Iterable[int]) -> list[str]:
    """The text in chunks, empty ones too, cut at any positions."""
    borders = [0, *sorted(position % (len(text) + 1) for position in positions), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


def run(think_filter: ThinkFilter, chunks: list[str]) -> list[tuple[str, bool]]:
    """All segments of a stream, neighbours joined, after a check of each single output."""
    segments: list[tuple[str, bool]] = []
    for out in [*map(think_filter.push, chunks), think_filter.finish()]:
        assert all(segment.text for segment in out.segments)
        assert merge(list(out.segments)) == list(out.segments)
        segments += out.segments
    return merge(segments)


def check_against_reference(text: str, chunks: list[str], starts: bool, max_buffer: int) -> None:
    expected = split(text, starts, max_buffer)
    think_filter = ThinkFilter(starts, max_buffer)
    assert run(think_filter, chunks) == expected.segments
    assert set(think_filter.warnings) == expected.warnings
    assert len(think_filter.warnings) == len(expected.warnings)


@given(texts, st.lists(st.integers(0), max_size=12), st.booleans(), buffers)
def test_any_text_cut_anywhere_is_split_as_the_slow_reference_splits_the_whole(
    text: str, positions: list[int], starts: bool, max_buffer: int
) -> None:
    check_against_reference(text, cut(text, positions), starts, max_buffer)


@given(texts, st.lists(st.integers(0), max_size=12), st.booleans(), buffers)
def test_cutting_changes_neither_segments_nor_warnings(
    text: str, positions: list[int], starts: bool, max_buffer: int
) -> None:
    """Stands without the reference: one push, any chunks, and one character a time agree."""
    filters = [ThinkFilter(starts, max_buffer) for _ in range(3)]
    cuttings = ([text], cut(text, positions), list(text))
    results = [run(each, chunks) for each, chunks in zip(filters, cuttings, strict=True)]
    assert results[0] == results[1] == results[2]
    assert filters[0].warnings == filters[1].warnings == filters[2].warnings


@given(texts, st.booleans(), buffers)
def test_output_is_the_input_without_its_tags_in_order(
    text: str, starts: bool, max_buffer: int
) -> None:
    """Nothing is lost, doubled or moved: output and removed tags are the input."""
    spans = split(text, starts, max_buffer).spans
    assert "".join(spans) == text
    kept = "".join(span for span in spans if not is_tag(span))
    assert "".join(part for part, _ in run(ThinkFilter(starts, max_buffer), [text])) == kept


@given(texts, st.booleans(), buffers)
def test_only_what_may_still_become_a_tag_is_held_and_never_max_buffer_of_it(
    text: str, starts: bool, max_buffer: int
) -> None:
    """The latency rule: what `finish` still gives out after any beginning is all that was held."""
    for end in range(len(text) + 1):
        think_filter = ThinkFilter(starts, max_buffer)
        think_filter.push(text[:end])
        held = "".join(segment.text for segment in think_filter.finish().segments)
        assert len(held) < max_buffer
        assert not held or may_become_tag(held)


def fuzz(seed: int, documents: int) -> None:
    rng = random.Random(seed)
    for _ in range(documents):
        text = "".join(rng.choices(PIECES, k=rng.randrange(30)))
        chunks = cut(text, rng.choices(range(len(text) + 1), k=rng.randrange(8)))
        check_against_reference(text, chunks, rng.random() < 0.5, rng.choice((4, 9, 16, 1024)))


def test_3000_random_documents_are_split_as_the_reference_splits_them() -> None:
    fuzz(seed=1, documents=3_000)


@pytest.mark.fuzz
def test_100000_random_documents_are_split_as_the_reference_splits_them() -> None:
    fuzz(seed=2, documents=100_000)
