"""The think filter, case by case. What holds for any text is in tests/properties."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
import pytest

from thinkq.worker.think_filter import FilterOut, Segment, ThinkFilter

HERE = Path(__file__).parent
DOCS_PAGE = HERE.parents[1] / "docs" / "think-filter.md"


class Stage(msgspec.Struct):
    """What must be out after that many pushes."""

    number: int
    thinking: str
    content: str


class Case(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A fault that users of other projects met; `source` is their report."""

    id: str
    source: str
    proves: str
    starts_in_thinking: bool
    chunks: list[str]
    thinking: str
    content: str
    warnings: list[str]
    after_push: Stage | None = None


LINES = (HERE / "think_filter_cases.jsonl").read_text("utf-8").splitlines()
CASES = [
    pytest.param(case, id=case.id)
    for line in LINES
    for case in [msgspec.json.decode(line, type=Case)]
]


def sides(outs: Sequence[FilterOut]) -> tuple[str, str]:
    """Thinking and content of several outputs."""
    return "".join(out.thinking for out in outs), "".join(out.content for out in outs)


def split(
    *chunks: str, starts_in_thinking: bool = False, max_buffer: int = 1024
) -> tuple[str, str]:
    """Thinking and content of a whole stream."""
    think_filter = ThinkFilter(starts_in_thinking, max_buffer)
    outs = [think_filter.push(chunk) for chunk in chunks]
    return sides([*outs, think_filter.finish()])


def cuttings(text: str) -> Iterator[list[str]]:
    """Whole, one character at a time, and cut in two at every place."""
    yield [text]
    yield list(text)
    yield from ([text[:at], text[at:]] for at in range(len(text) + 1))


@pytest.mark.parametrize("case", CASES)
def test_a_reported_fault_is_split_as_recorded(case: Case) -> None:
    think_filter = ThinkFilter(case.starts_in_thinking)
    outs = [think_filter.push(chunk) for chunk in case.chunks]
    if case.after_push:
        stage = case.after_push
        assert sides(outs[: stage.number]) == (stage.thinking, stage.content)
    assert sides([*outs, think_filter.finish()]) == (case.thinking, case.content)
    assert think_filter.warnings == case.warnings


def segments(chunks: Sequence[str], starts_in_thinking: bool) -> tuple[Segment, ...]:
    """All segments of a stream, neighbours of one side joined."""
    think_filter = ThinkFilter(starts_in_thinking)
    outs = [*map(think_filter.push, chunks), think_filter.finish()]
    runs = groupby((each for out in outs for each in out.segments), lambda each: each.is_reasoning)
    return tuple(Segment("".join(each.text for each in run), side) for side, run in runs)


@pytest.mark.parametrize("case", CASES)
def test_a_reported_fault_is_split_alike_wherever_it_is_cut(case: Case) -> None:
    """Cut in two at every place, and by the character: the same segments as in one push."""
    text = "".join(case.chunks)
    whole = segments([text], case.starts_in_thinking)
    assert sides([FilterOut(whole)]) == (case.thinking, case.content)
    for chunks in cuttings(text):
        assert segments(chunks, case.starts_in_thinking) == whole, chunks


@pytest.mark.parametrize(
    "dead",
    [
        "< ",
        "<b",
        "<tx",
        "</ ",
        "</x",
        "<think2",
        "<thinki>",
        "<thinking-",
        "<think\u00a0",
        "<thin\u212a",
    ],
)
def test_a_tag_that_is_ruled_out_is_text_on_that_push(dead: str) -> None:
    think_filter = ThinkFilter()
    assert think_filter.push("a" + dead[:-1]).content == "a"
    assert think_filter.push(dead[-1]).content == dead


def test_the_character_that_rules_a_tag_out_may_begin_the_next() -> None:
    assert split("<thi<think>a</</think>b") == ("a</", "<thib")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think a='>'>x</think>y", ("x", "y")),
        ('<think a = ">" b="\'>">x</think>y', ("x", "y")),
        ("<think\n\ta>x</think\f>y", ("x", "y")),
        ("<think a=b'>x</think>y", ("x", "y")),
        ("<think/a>x</think b='>'>y", ("x", "y")),
        ("<think a=b/>y", ("", "y")),
        ("<think a='/'>x</think/>y", ("x", "y")),
        ("<think it's>x</think>y", ("x", "y")),
        ("I <think so", ("", "I <think so")),
    ],
)
def test_attributes_end_at_the_first_closing_bracket_outside_of_quotes(
    text: str, expected: tuple[str, str]
) -> None:
    assert split(text) == expected


def test_a_bracket_in_attributes_is_text_and_the_closer_behind_it_counts() -> None:
    """Otherwise the closer would be part of a tag, and the answer part of the thinking."""
    assert split("I <think so</think>Yes", starts_in_thinking=True) == ("I <think so", "Yes")


def test_segments_come_in_order_and_neighbours_of_one_side_are_one() -> None:
    out = ThinkFilter().push("a<b<think>c</think><think>d</think>e<think>f")
    assert out.segments == (
        Segment("a<b", False),
        Segment("cd", True),
        Segment("e", False),
        Segment("f", True),
    )


def test_a_push_that_decides_nothing_gives_no_segments() -> None:
    think_filter = ThinkFilter()
    assert think_filter.push("").segments == ()
    assert think_filter.push("<think>").segments == ()
    assert think_filter.finish().segments == ()


def test_in_thinking_follows_whole_tags_only() -> None:
    think_filter = ThinkFilter()
    states = []
    for chunk in ["<think", ">", "a</thin", "k>"]:
        think_filter.push(chunk)
        states.append(think_filter.in_thinking)
    assert states == [False, True, True, False]
    assert ThinkFilter(starts_in_thinking=True).in_thinking


def test_a_tag_of_max_buffer_characters_is_a_tag_and_a_longer_one_is_text() -> None:
    tag = "<think a='>>'>"
    for chunks in cuttings(tag + "x"):
        assert split(*chunks, max_buffer=len(tag)) == ("x", "")
        assert split(*chunks, max_buffer=len(tag) - 1) == ("", tag + "x")


def test_a_tag_that_fills_the_buffer_is_given_out_to_the_current_side_at_once() -> None:
    think_filter = ThinkFilter(starts_in_thinking=True, max_buffer=16)
    assert think_filter.push("<think " + "a" * 8).segments == ()
    assert think_filter.push("a").segments == (Segment("<think " + "a" * 9, True),)
    assert sides([think_filter.push("a></think>b")]) == ("a>", "b")


def test_what_is_held_at_the_end_belongs_to_the_current_side() -> None:
    assert split("a</thi", starts_in_thinking=True) == ("a</thi", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think>b", ("a", "b")),
        (" \n<THINKING>a</think>b", (" \na", "b")),
        ("x<think>a</think>b</think>c", ("xab", "c")),
        ("<think><think>a</think>b</think>c", ("ab", "c")),
        ("<think/><think>a</think>b</think>c", ("ab", "c")),
        ("</think><think>a</think>b", ("a", "b")),
        ("<thi <think>a</think>b</think>c", ("<thi ab", "c")),
    ],
)
def test_only_the_first_thing_in_a_stream_that_starts_in_thinking_is_an_echo(
    text: str, expected: tuple[str, str]
) -> None:
    for chunks in cuttings(text):
        assert split(*chunks, starts_in_thinking=True) == expected


def test_the_first_opener_of_a_stream_that_starts_in_the_answer_is_no_echo() -> None:
    assert split("\n<think>a") == ("a", "\n")


@pytest.mark.parametrize(
    ("text", "starts_in_thinking", "warnings"),
    [
        ("<think>a</think>b", False, []),
        ("a</think>b</think>c", False, ["orphan_close"]),
        ("<think>cut off", False, []),
        ("cut off", True, []),
        ("<think>a<think>b</think>c", False, ["unbalanced_think"]),
        ("</think>a<think>b", False, ["orphan_close", "unbalanced_think"]),
    ],
)
def test_warnings_name_what_looked_wrong_each_once(
    text: str, starts_in_thinking: bool, warnings: list[str]
) -> None:
    think_filter = ThinkFilter(starts_in_thinking)
    think_filter.push(text)
    think_filter.finish()
    assert think_filter.warnings == warnings


def test_a_finished_filter_refuses_more() -> None:
    think_filter = ThinkFilter()
    think_filter.finish()
    with pytest.raises(RuntimeError, match="make a new one"):
        think_filter.push("")
    with pytest.raises(RuntimeError, match="make a new one"):
        think_filter.finish()


def test_a_max_buffer_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 character, not 0"):
        ThinkFilter(max_buffer=0)


def test_the_filter_loads_nothing_but_the_standard_library() -> None:
    """So that it can be used, or copied, without MLX, Redis or the rest of thinkq."""
    script = (
        "import sys; before = set(sys.modules); import thinkq.worker.think_filter\n"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(roots - sys.stdlib_module_names))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["thinkq"]


def test_the_examples_of_the_docs_page_run_as_printed() -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```", DOCS_PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    example = doctest.DocTestParser().get_doctest("".join(blocks), {}, DOCS_PAGE.name, None, 0)
    results = doctest.DocTestRunner().run(example)
    assert results.attempted >= 9
    assert results.failed == 0
