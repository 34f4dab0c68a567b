"""Budgets in the real loop with scripted models: each fault that users hit, under its id."""

from __future__ import annotations

import pytest

from support.scripted import CLOSE, EOS, OPEN, UNOPENED_TEMPLATE, ask, natural, scripted_engine
from thinkq.client.errors import InvalidJob
from thinkq.client.settings import load_settings

FOREVER = natural("ABCDEFGH", "XY")


def test_bu_01_a_thought_that_never_ends_is_closed_at_its_budget_and_the_answer_comes() -> None:
    engine = scripted_engine(FOREVER)
    (result,) = engine.run([ask(thinking_token_budget=3, max_tokens=50)])
    assert engine.model.written() == ["A", "B", "C", CLOSE, "X", "Y", EOS]
    assert (result.thinking, result.answer) == ("ABC", "XY")
    assert (result.close_reason, result.finish_reason) == ("budget", "stop")


def test_bu_02_budget_0_closes_with_the_first_token() -> None:
    engine = scripted_engine(FOREVER)
    (result,) = engine.run([ask(thinking_token_budget=0, max_tokens=50)])
    assert engine.model.written() == [CLOSE, "X", "Y", EOS]
    assert (result.usage.thinking_tokens, result.thinking, result.answer) == (0, None, "XY")
    assert result.close_reason == "budget"


@pytest.mark.parametrize(
    ("length", "reason"), [(1, "natural"), (2, "natural"), (3, "budget")], ids=["N-1", "N", "N+1"]
)
def test_bu_03_a_natural_close_at_the_border_is_not_doubled(length: int, reason: str) -> None:
    engine = scripted_engine(natural([*"ABCDE"[:length], CLOSE], "XY"))
    (result,) = engine.run([ask(thinking_token_budget=2, max_tokens=50)])
    assert engine.model.written() == [*"AB"[:length], CLOSE, "X", "Y", EOS]
    assert (result.close_reason, result.answer) == (reason, "XY")


def test_bu_04_after_a_forced_close_the_marker_cannot_be_sampled_again() -> None:
    engine = scripted_engine(natural("ABC", ["p", CLOSE, "q"]))
    (result,) = engine.run([ask(thinking_token_budget=2, max_tokens=50)])
    assert engine.model.written().count(CLOSE) == 1
    assert result.answer == "pxq"


def test_bu_04_not_even_as_the_first_token_after_it() -> None:
    """The loop samples that token before the host has read the close."""
    engine = scripted_engine(natural("ABC", [CLOSE, "q"]))
    (result,) = engine.run([ask(thinking_token_budget=2, max_tokens=50)])
    assert engine.model.written() == ["A", "B", CLOSE, "x", "q", EOS]
    assert result.answer == "xq"


def test_bu_05_a_spent_budget_cannot_be_opened_again() -> None:
    engine = scripted_engine(natural("ABC", [OPEN, "p", OPEN, "q"]))
    (result,) = engine.run([ask(thinking_token_budget=2, max_tokens=50)])
    assert OPEN not in engine.model.written()
    assert (result.usage.thinking_tokens, result.answer) == (2, "xpxq")


def test_bu_05_a_block_opened_again_is_charged_to_what_is_left() -> None:
    def script(fed: list[str]) -> str:
        if fed.count(CLOSE) < 2:
            wants: list[str] = ["A", CLOSE, "p", OPEN, *"BCDEFG"]
            return wants[len(fed)]
        return "q" if fed[-1] == CLOSE else EOS

    engine = scripted_engine(script)
    (result,) = engine.run([ask(thinking_token_budget=3, max_tokens=50)])
    assert engine.model.written() == ["A", CLOSE, "p", OPEN, "B", "C", CLOSE, "q", EOS]
    assert (result.thinking, result.answer, result.close_reason) == ("ABC", "pq", "budget")


def test_bu_07_a_model_that_opens_the_block_itself_is_held_to_the_budget() -> None:
    engine = scripted_engine(natural([OPEN, *"ABCD"], "XY"), template=UNOPENED_TEMPLATE)
    (result,) = engine.run([ask(thinking_token_budget=2, max_tokens=50)])
    assert engine.model.written() == [OPEN, "A", "B", CLOSE, "X", "Y", EOS]
    assert (result.thinking, result.answer, result.close_reason) == ("AB", "XY", "budget")


@pytest.mark.parametrize(("thinking", "budget"), [("A", 8), ("AB", 3), ("ABC", 3)])
def test_bu_08_the_end_of_sequence_while_thinking_is_a_close(thinking: str, budget: int) -> None:
    engine = scripted_engine(natural([*thinking, EOS], "X"))
    (result,) = engine.run([ask(thinking_token_budget=budget, max_tokens=50)])
    assert engine.model.written() == [*thinking, CLOSE, "X", EOS]
    assert (result.answer, result.close_reason) == ("X", "eos")


def test_bu_08_an_end_of_sequence_behind_the_budget_comes_too_late() -> None:
    engine = scripted_engine(natural([*"ABCD", EOS], "X"))
    (result,) = engine.run([ask(thinking_token_budget=3, max_tokens=50)])
    assert engine.model.written() == ["A", "B", "C", CLOSE, "X", EOS]
    assert result.close_reason == "budget"


@pytest.mark.parametrize("blanks", [[], ["\n"], ["\n", " ", "\n"]])
def test_bu_08_the_end_of_sequence_cannot_end_a_blank_answer(blanks: list[str]) -> None:
    engine = scripted_engine(natural([*"AB", CLOSE], [*blanks, EOS]))
    (result,) = engine.run([ask(max_tokens=50)])
    assert result.answer.strip() == "x"
    assert result.finish_reason == "stop"


def test_a_one_token_answer_may_end_at_once() -> None:
    """The rule against blank answers bars nothing once there is a word."""
    engine = scripted_engine(natural([*"AB", CLOSE], ["\n", "7", EOS]))
    (result,) = engine.run([ask(max_tokens=50)])
    assert engine.model.written() == ["A", "B", CLOSE, "\n", "7", EOS]
    assert result.answer == "7"


@pytest.mark.parametrize("max_tokens", [5, 6, 7, 8, 20])
def test_bu_09_a_stated_budget_that_leaves_no_answer_is_refused(max_tokens: int) -> None:
    with pytest.raises(InvalidJob, match="leaves fewer than 16 tokens"):
        ask(thinking_token_budget=5, max_tokens=max_tokens)


def test_bu_09_with_only_one_stated_the_budget_is_lowered_and_the_result_says_so() -> None:
    engine = scripted_engine(
        FOREVER, settings=load_settings({}, home="/nonexistent", max_tokens=40)
    )
    both, budget_only, limit_only = engine.run(
        [
            ask(thinking_token_budget=5, max_tokens=21),
            ask(thinking_token_budget=100),
            ask(max_tokens=8),
        ]
    )
    assert (both.budget.requested, both.budget.enforced) == (5, 5)
    assert (budget_only.budget.requested, budget_only.budget.enforced) == (100, 29)
    assert (limit_only.budget.requested, limit_only.budget.enforced) == (None, 5)
    assert all(result.answer == "XY" for result in (both, budget_only, limit_only))


def test_bu_12_the_model_is_fed_the_forced_close() -> None:
    """Its input after the budget is the marker, and its cache is as long as the transcript."""
    engine = scripted_engine(FOREVER)
    (result,) = engine.run([ask(thinking_token_budget=2, max_tokens=50)])
    assert engine.model.written()[:4] == ["A", "B", CLOSE, "X"]
    prompt, *_ = (ids for ids in engine.model.fed if len(ids) > 1)
    assert len(prompt) == result.usage.prompt_tokens + result.usage.completion_tokens


def test_bu_15_usage_adds_up() -> None:
    (result,) = scripted_engine(FOREVER).run([ask(thinking_token_budget=3, max_tokens=50)])
    usage = result.usage
    assert (usage.thinking_tokens, usage.answer_tokens, usage.control_tokens) == (3, 2, 2)
    assert usage.completion_tokens == 7


def test_bu_18_the_rendered_tail_decides_the_start_state() -> None:
    script = natural(["5", "6", EOS], [*"56", EOS])
    (unopened,) = scripted_engine(script, template=UNOPENED_TEMPLATE).run([ask()])
    closed, opened = scripted_engine(script).run(
        [ask(enable_thinking=False), ask(enable_thinking=True)]
    )
    assert [(r.thinking, r.answer) for r in (unopened, closed, opened)] == [
        (None, "56"),
        (None, "56"),
        ("56", "56"),
    ]
    assert opened.close_reason == "eos"


def test_sp_27_real_marker_ids_split_although_thinking_was_off() -> None:
    script = natural([OPEN, *"ok", CLOSE], ["\n", "\n", *"OK"])
    (result,) = scripted_engine(script).run([ask(enable_thinking=False)])
    assert (result.thinking, result.answer) == ("ok", "OK")
    assert result.warnings == ["thought_while_disabled"]


def test_sp_26_literal_tags_in_an_answer_are_text() -> None:
    text = "Write <think> first, </think> last."
    script = natural([*text, EOS], [])
    pieces: list[tuple[str, bool]] = []
    engine = scripted_engine(script)
    engine.add(
        ask(enable_thinking=False), job_id="j", sink=lambda text, side: pieces.append((text, side))
    )
    ended = [row for _ in range(200) for row in engine.turn()]
    assert ended[0].result is not None
    assert ended[0].result.answer == text
    assert "".join(text for text, _ in pieces) == text
    assert not any(side for _, side in pieces)


def test_sp_29_literal_tags_in_thinking_do_not_split() -> None:
    thought = "Candidates: <think>, </think>, <plan>. Pick three."
    (result,) = scripted_engine(natural([*thought, CLOSE], "\n\n1. think")).run([ask()])
    assert (result.thinking, result.answer) == (thought, "1. think")


def test_forced_close_cuts_a_character_and_nothing_else() -> None:
    """Bytes of a character that the budget cuts become one U+FFFD in the thinking."""
    bytes_of_fire = ["ð", "Ł", "Ķ", "¥"]  # 🔥 in the byte-level alphabet
    script = natural(["A", *bytes_of_fire], "XY")
    engine = scripted_engine(script)
    tokens = [engine.tokenizer.convert_tokens_to_ids(piece) for piece in bytes_of_fire]
    model = engine.model
    plain = model._token
    model._token = lambda text: (
        dict(zip(bytes_of_fire, tokens, strict=True)).get(text) or plain(text)
    )
    (result,) = engine.run([ask(thinking_token_budget=3, max_tokens=50)])
    assert (result.thinking, result.answer) == ("A�", "XY")
