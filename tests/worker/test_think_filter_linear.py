"""SP-38 (elizaOS/eliza#22703): the think filter takes linear time and holds next to nothing."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from typing import SupportsIndex

import pytest

from thinkq.worker.think_filter import ThinkFilter

ADVERSARIES = ["a<b ", "<", "<think ", "<think a='", "<think>a</think>"]
"""Repeated, each would cost a filter dearly that looks again at what it holds or has given out."""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a<b " * (1 << 15), id="SP-38 with 128 KiB"),
        pytest.param("a<b " * (1 << 18), id="SP-38 with 1 MiB", marks=pytest.mark.fuzz),
        pytest.param("<" * 50_000, id="nothing but brackets"),
    ],
)
def test_text_without_tags_is_unchanged_and_only_its_last_bracket_is_ever_held(text: str) -> None:
    think_filter, given, length = ThinkFilter(), [], 0
    for count, char in enumerate(text, start=1):
        out = think_filter.push(char).content
        given.append(out)
        length += len(out)
        assert count - length == (char == "<")
    given.append(think_filter.finish().content)
    assert "".join(given) == text


def test_200000_brackets_in_one_push_are_unchanged() -> None:
    """SP-38, its second run."""
    think_filter = ThinkFilter()
    out = think_filter.push("<" * 200_000)
    assert out.content + think_filter.finish().content == "<" * 200_000
    assert len(out.segments) == 1


def seconds(chunks: Iterable[str]) -> float:
    """CPU time of one stream. Outputs are dropped: collecting them is not timed."""
    think_filter, start = ThinkFilter(), time.process_time()
    for chunk in chunks:
        think_filter.push(chunk)
    return time.process_time() - start


def check_linear(short: Sequence[str], long: Sequence[str]) -> None:
    """Taken in turns, the best of five each: a machine that is busy for a while slows both."""
    times = [(seconds(short), seconds(long)) for _ in range(5)]
    assert min(each[1] for each in times) <= 2.5 * min(each[0] for each in times)


@pytest.mark.parametrize("text", ADVERSARIES)
def test_twice_the_text_by_the_character_takes_at_most_2_5_times_as_long(text: str) -> None:
    once = text * ((1 << 14) // len(text))
    check_linear(once, once * 2)


def stream(text: str, characters: int) -> Iterator[str]:
    """A text repeated up to this length, in chunks of about 1 KiB, none of which is kept."""
    chunk = text * (1024 // len(text))
    return (chunk for _ in range(characters // len(chunk)))


@pytest.mark.fuzz
@pytest.mark.parametrize("text", ADVERSARIES)
def test_10_mib_take_at_most_2_5_times_as_long_as_5(text: str) -> None:
    short, long = (seconds(stream(text, mib << 20)) for mib in (5, 10))
    assert long <= 2.5 * short


@pytest.mark.parametrize("text", ADVERSARIES)
def test_memory_is_bounded_whatever_was_read(text: str) -> None:
    """After the first quarter of a text the filter needs no more memory than it did."""
    think_filter, peaks = ThinkFilter(), []
    tracemalloc.start()
    try:
        for _ in range(4):
            tracemalloc.reset_peak()
            for chunk in stream(text, 1 << 18):
                think_filter.push(chunk)
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    # A quarter is four times this; threads of other tests may use a little meanwhile.
    assert max(peaks) <= peaks[0] + (1 << 16)


class Counted(str):
    """Text that counts the characters read from it, whether indexed, sliced or searched."""

    read = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        part = super().__getitem__(key)
        self.read += len(part)
        return part

    def find(
        self, sub: str, start: SupportsIndex | None = 0, end: SupportsIndex | None = None, /
    ) -> int:
        at = super().find(sub, start, end)
        last = len(self) if at < 0 else at
        self.read += last + 1 - int(start or 0)
        return at


@pytest.mark.parametrize("text", ADVERSARIES)
def test_one_push_reads_no_character_more_than_three_times(text: str) -> None:
    """Searched past, read as a possible part of a tag, given out."""
    counted = Counted(text * 1_000)
    ThinkFilter().push(counted)
    assert len(counted) <= counted.read <= 3 * len(counted) + 1
