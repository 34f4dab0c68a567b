"""Models without think tokens: the filter splits their text, and the budget holds all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.scripted import (
    EOS,
    TEMPLATE,
    UNOPENED_TEMPLATE,
    Script,
    ask,
    scripted_engine,
)
from thinkq.client.result import Result
from thinkq.client.settings import load_settings
from thinkq.worker.engine import Engine

SPECIALS = (EOS, "<|im_start|>")
MARKER = "</think>"
WORDS = ("</", "think", ">Ċ", "so.</think>")
"""A vocabulary whose pieces cross the borders of a tag; Ċ is a byte-level newline."""


def thinks(thinking: Sequence[str], answer: Sequence[str]) -> Script:
    """Thinks as scripted (the last token for ever), and answers once its thought is closed."""

    def script(fed: list[str]) -> str:
        text = "".join(fed)
        if MARKER not in text:
            return thinking[min(len(fed), len(thinking) - 1)]
        step = next(i for i in range(len(fed) + 1) if MARKER in "".join(fed[:i]))
        at = len(fed) - step
        return answer[at] if at < len(answer) else EOS

    return script


def engine_of(
    *scripts: Script, template: str = TEMPLATE, transition: str = "", pipelined: bool = True
) -> Engine:
    settings = load_settings({}, home="/nonexistent", thinking_transition=transition, max_tokens=60)
    engine = scripted_engine(
        *scripts,
        template=template,
        specials=SPECIALS,
        words=WORDS,
        settings=settings,
        pipelined=pipelined,
    )
    # A model may choose pieces that the pre-tokenizer would cut.
    for word in WORDS:
        engine.model._ids[word.replace("Ċ", "\n")] = engine.tokenizer.convert_tokens_to_ids(word)
    return engine


def run(*scripts: Script, template: str = TEMPLATE, **options: Any) -> tuple[Result, str]:
    """The result of the first script, and what the model wrote."""
    engine = engine_of(*scripts, template=template)
    streamed: dict[bool, list[str]] = {True: [], False: []}
    engine.add(ask(**options), job_id="j", sink=lambda text, side: streamed[side].append(text))
    (row,) = [row for _ in range(200) for row in engine.turn()]
    result = row.result
    assert result is not None
    assert ("".join(streamed[True]) or None, "".join(streamed[False])) == (
        result.thinking,
        result.answer,
    )
    usage = result.usage
    assert usage.completion_tokens == (
        usage.thinking_tokens + usage.answer_tokens + usage.control_tokens
    )
    return result, "".join(engine.model.written())


def test_bu_10_a_model_without_think_ids_is_held_to_its_budget_by_text() -> None:
    result, written = run(thinks("ABCDEFGH", "XY"), thinking_token_budget=3, max_tokens=50)
    assert written == f"ABC{MARKER}XY{EOS}"
    assert (result.thinking, result.answer, result.close_reason) == ("ABC", "XY", "budget")
    budget = result.budget
    assert (budget.requested, budget.enforced, budget.by) == (3, 3, "text")
    assert result.usage.thinking_tokens == 3


def test_budget_0_closes_with_the_first_token() -> None:
    result, written = run(thinks("ABC", "XY"), thinking_token_budget=0, max_tokens=50)
    assert written == f"{MARKER}XY{EOS}"
    assert (result.thinking, result.answer, result.usage.thinking_tokens) == (None, "XY", 0)


@pytest.mark.parametrize(
    ("close", "thinking", "control"),
    [([*MARKER], "ab", 9), (["</", "think", ">\n"], "ab", 4), (["so.</think>"], "abso.", 2)],
)
def test_a_natural_close_is_found_however_it_is_tokenised(
    close: list[str], thinking: str, control: int
) -> None:
    """The tokens of the tag, and the end of sequence, are control; the others are not."""
    result, _ = run(thinks([*"ab", *close], "XY"))
    assert (result.thinking, result.answer, result.close_reason) == (thinking, "XY", "natural")
    usage = result.usage
    assert (usage.thinking_tokens, usage.answer_tokens, usage.control_tokens) == (2, 2, control)


def test_the_end_of_sequence_right_after_a_close_cannot_end_a_blank_answer() -> None:
    result, _ = run(thinks([*"ab", *MARKER], [EOS]))
    assert (result.answer, result.finish_reason) == ("x", "stop")


def test_the_end_of_sequence_while_thinking_is_a_close() -> None:
    result, written = run(thinks(["a", "b", EOS], "XY"))
    assert written == f"ab{MARKER}XY{EOS}"
    assert (result.thinking, result.answer, result.close_reason) == ("ab", "XY", "eos")


@pytest.mark.parametrize("begun", ["<", "</", "</thi"])
def test_a_marker_that_the_model_has_begun_is_completed(begun: str) -> None:
    """By the budget, and by an end of sequence."""
    for thinking, budget in (([*"ab", *begun, "z"], 2 + len(begun)), ([*"ab", *begun, EOS], 40)):
        result, written = run(thinks(thinking, "XY"), thinking_token_budget=budget, max_tokens=60)
        assert written == f"ab{MARKER}XY{EOS}"
        assert (result.thinking, result.answer) == ("ab", "XY")
        assert result.usage.thinking_tokens == 2


@pytest.mark.parametrize("thought", ["a<think>b", 'a</think b="c', "a<thin", "a</thinki"])
def test_nothing_in_the_text_can_hold_up_a_forced_close(thought: str) -> None:
    """Nested openers, quotes, other beginnings: the marker is forced, and the answer comes."""
    script = thinks([*thought, "z"], "XY")
    result, written = run(script, thinking_token_budget=len(thought), max_tokens=60)
    assert written == f"{thought}{MARKER}XY{EOS}"
    assert (result.answer, result.close_reason) == ("XY", "budget")
    assert result.thinking == thought.replace("<think>", "")
    assert result.usage.thinking_tokens == len(thought)


def test_a_model_that_opens_the_block_itself_is_held_to_the_budget() -> None:
    script = thinks([*"<think>ABCDEF"], "XY")
    result, written = run(
        script, template=UNOPENED_TEMPLATE, thinking_token_budget=2, max_tokens=60
    )
    assert written == f"<think>AB{MARKER}XY{EOS}"
    assert (result.thinking, result.answer, result.usage.thinking_tokens) == ("AB", "XY", 2)


def test_a_block_that_is_opened_again_after_a_forced_close_is_closed_at_once() -> None:
    result, written = run(
        thinks("ABC", [*"p<think>", "</", "think", ">", "q"]),
        thinking_token_budget=2,
        max_tokens=60,
    )
    assert written == f"AB{MARKER}p<think>{MARKER}q{EOS}"
    assert (result.thinking, result.answer, result.usage.thinking_tokens) == ("AB", "pq", 2)


def test_so_is_one_after_an_end_of_sequence_though_there_is_budget_left() -> None:
    script = thinks(["A", EOS], [*"p<think>", *"zzz", "q"])
    result, written = run(script)
    assert written == f"A{MARKER}p<think>{MARKER}q{EOS}"
    assert (result.thinking, result.answer, result.close_reason) == ("A", "pq", "eos")


def test_a_transition_is_forced_before_the_marker_once() -> None:
    script = thinks("ABC", [*"p<think>", *"zzz", "q"])
    engine = engine_of(script, transition="now")
    (result,) = engine.run([ask(thinking_token_budget=2, max_tokens=60)])
    assert "".join(engine.model.written()) == f"ABnow{MARKER}p<think>{MARKER}q{EOS}"
    assert (result.thinking, result.answer) == ("AB", "pq")


def test_text_that_looked_like_a_tag_for_a_while_is_thinking() -> None:
    result, _ = run(thinks([*"a<b</x", *MARKER], "XY"))
    assert (result.thinking, result.usage.thinking_tokens) == ("a<b</x", 6)


def test_an_answer_without_any_thinking_is_an_answer() -> None:
    result, _ = run(thinks([*"a<b", EOS], ""), template=UNOPENED_TEMPLATE)
    assert (result.thinking, result.answer, result.close_reason) == (None, "a<b", "none")


def test_the_warnings_of_the_filter_are_those_of_the_result() -> None:
    script = thinks([*"a", *MARKER], [*MARKER, *"b"])
    result, _ = run(script)
    assert (result.answer, result.warnings) == ("b", ["orphan_close"])


def test_an_answer_that_a_nested_tag_hides_is_warned_of() -> None:
    """SP-19: the filter cannot tell a mention from a tag; the budget still brings an answer."""
    result, _ = run(thinks([*"<think>a<think>b", *MARKER], "hidden" * 20), max_tokens=40)
    assert (result.thinking, result.answer) == ("abhid", "hiddenhidd")
    assert (result.warnings, result.close_reason) == (["unbalanced_think"], "budget")


def test_sp_22_a_thought_that_is_cut_off_is_thinking_to_its_last_piece() -> None:
    """Cancelled in the middle: what was held back goes to its own side."""
    engine = engine_of(thinks([*"still <"], ""))
    streamed: list[tuple[str, bool]] = []
    row = engine.add(ask(), job_id="j", sink=lambda text, side: streamed.append((text, side)))
    while row.tracker.pending == 0:
        engine.turn()
    engine.cancel(row)
    assert engine.turn() == [row]
    assert row.result is not None
    assert (row.result.thinking, row.result.answer) == ("still <", "")
    assert all(side for _, side in streamed)


WANTS = st.lists(st.sampled_from([*"ab<>/", "</", "think", "so.</think>", EOS]), min_size=1)


@settings(max_examples=40, deadline=None)
@given(WANTS, st.sampled_from(["", "now"]), st.sampled_from([TEMPLATE, UNOPENED_TEMPLATE]))
def test_pipelined_and_plain_write_the_same(
    wants: list[str], transition: str, template: str
) -> None:
    """For a script that pays no heed to a close; and the answer is blank only if it was cut off."""

    def script(fed: list[str]) -> str:
        return wants[len(fed) % len(wants)]

    outcomes = []
    for pipelined in (True, False):
        engine = engine_of(script, template=template, transition=transition, pipelined=pipelined)
        (result,) = engine.run([ask(max_tokens=40)])
        outcomes.append((engine.model.written(), result.thinking, result.answer, result.usage))
        assert result.answer.strip() or result.finish_reason == "length"
        assert result.usage.thinking_tokens <= (result.budget.enforced or 0)
    assert outcomes[0] == outcomes[1]
