"""Many-id markers in the real loop: a close of six, as gpt-oss's, a start of two, as Gemma's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from support.scripted import EOS, Script, ask, scripted_engine
from thinkq.client.result import Result
from thinkq.client.settings import load_settings
from thinkq.worker.reasoning import ReasoningTracker

USER = "{%- for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{%- endfor %}"

HARMONY: dict[str, Any] = {
    "specials": (EOS, "<|im_start|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    "words": ("analysis", "assistant", "commentary", "final"),
    "template": USER + "{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{%- endif %}",
}
ANALYSIS = ["<|channel|>", "analysis", "<|message|>"]
FINAL = ["<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>"]

GEMMA: dict[str, Any] = {
    "specials": (EOS, "<|im_start|>", "<|turn>", "<|channel>", "<channel|>"),
    "words": ("thought", "model"),
    "template": USER + "{%- if add_generation_prompt %}{{ '<|turn>model' }}{%- endif %}",
}
THOUGHT = ["<|channel>", "thought"]
CHANNEL_END = ["<channel|>"]

KINDS = [
    pytest.param(HARMONY, ANALYSIS, FINAL, id="close of six ids"),
    pytest.param(GEMMA, THOUGHT, CHANNEL_END, id="start of two ids"),
]


def behind(fed: list[str], marker: list[str]) -> int | None:
    """How many tokens follow the last marker; None without one."""
    size = len(marker)
    ends = [end for end in range(size, len(fed) + 1) if fed[end - size : end] == marker]
    return len(fed) - ends[-1] if ends else None


def thinks(thinking: Sequence[str], end: list[str], answer: Sequence[str] = "XY") -> Script:
    """Writes `thinking` (its last token for ever); after an end marker the answer; then the end."""

    def script(fed: list[str]) -> str:
        since_end = behind(fed, end)
        if since_end is not None:
            return answer[since_end] if since_end < len(answer) else EOS
        return thinking[min(len(fed), len(thinking) - 1)]

    return script


def run(
    script: Script, kind: dict[str, Any], *, transition: str = "", **options: Any
) -> tuple[list[str], Result]:
    """What is written, and the result: the same, whether pipelined or not."""
    settings = load_settings({}, home="/nonexistent", thinking_transition=transition)
    both: list[tuple[list[str], Result]] = []
    for pipelined in (True, False):
        engine = scripted_engine(script, settings=settings, pipelined=pipelined, **kind)
        (result,) = engine.run([ask(**{"max_tokens": 80, **options})])
        both.append((engine.model.written(), result))
    (written, result), (plainly_written, twin) = both
    assert written == plainly_written
    assert (result.thinking, result.answer, result.close_reason, result.usage) == (
        twin.thinking,
        twin.answer,
        twin.close_reason,
        twin.usage,
    )
    usage = result.usage
    assert usage.completion_tokens == len(written)
    assert result.budget.by == "token"
    return written, result


@pytest.mark.parametrize(("kind", "start", "end"), KINDS)
@pytest.mark.parametrize("budget", [0, 1, 2, 3])
def test_a_budget_is_exact(
    kind: dict[str, Any], start: list[str], end: list[str], budget: int
) -> None:
    written, result = run(thinks([*start, *"ABCDEFGH"], end), kind, thinking_token_budget=budget)
    assert written == [*start, *"ABC"[:budget], *end, "X", "Y", EOS]
    assert (result.thinking, result.answer) == ("ABC"[:budget] or None, "XY")
    assert (result.close_reason, result.usage.thinking_tokens) == ("budget", budget)
    assert result.usage.control_tokens == len(start) + len(end) + 1


@pytest.mark.parametrize(("kind", "start", "end"), KINDS)
@pytest.mark.parametrize(
    ("length", "reason"), [(1, "natural"), (2, "natural"), (3, "budget")], ids=["N-1", "N", "N+1"]
)
def test_a_natural_close_at_the_border_is_not_doubled(
    kind: dict[str, Any], start: list[str], end: list[str], length: int, reason: str
) -> None:
    script = thinks([*start, *"ABC"[:length], *end], end)
    written, result = run(script, kind, thinking_token_budget=2)
    assert written == [*start, *"AB"[:length], *end, "X", "Y", EOS]
    assert (result.thinking, result.answer) == ("AB"[:length], "XY")
    assert (result.close_reason, result.usage.thinking_tokens) == (reason, min(length, 2))


@pytest.mark.parametrize("begun", [1, 2, 3, 4, 5])
def test_a_marker_that_the_model_has_begun_is_completed(begun: int) -> None:
    """The budget runs out on the marker's own ids, and the model would have gone astray in it."""
    script = thinks([*ANALYSIS, "A", *FINAL[:begun], "z"], FINAL)
    written, result = run(script, HARMONY, thinking_token_budget=1 + begun)
    assert written == [*ANALYSIS, "A", *FINAL, "X", "Y", EOS]
    assert (result.thinking, result.answer, result.close_reason) == ("A", "XY", "budget")
    assert result.usage.thinking_tokens == 1


@pytest.mark.parametrize("begun", [1, 2, 3, 4, 5])
def test_a_marker_that_comes_to_nothing_is_thinking(begun: int) -> None:
    """Its ids are charged and its text is kept, to the byte."""
    script = thinks([*ANALYSIS, "A", *FINAL[:begun], "z", "B", *FINAL], FINAL)
    _, result = run(script, HARMONY, thinking_token_budget=20)
    assert result.thinking == "A" + "".join(FINAL[:begun]) + "zB"
    assert result.usage.thinking_tokens == 3 + begun
    assert (result.answer, result.close_reason) == ("XY", "natural")


def test_a_marker_may_begin_within_one_that_comes_to_nothing() -> None:
    script = thinks([*ANALYSIS, "A", "<|end|>", *FINAL], FINAL)
    _, result = run(script, HARMONY, thinking_token_budget=20)
    assert (result.thinking, result.answer, result.close_reason) == ("A<|end|>", "XY", "natural")


@pytest.mark.parametrize("begun", [0, 1, 2, 3, 4, 5])
def test_the_end_of_sequence_within_a_marker_completes_it(begun: int) -> None:
    script = thinks([*ANALYSIS, "A", *FINAL[:begun], EOS], FINAL)
    written, result = run(script, HARMONY, thinking_token_budget=20)
    assert written == [*ANALYSIS, "A", *FINAL, "X", "Y", EOS]
    assert (result.thinking, result.answer, result.close_reason) == ("A", "XY", "eos")


@pytest.mark.parametrize(("kind", "start", "end"), KINDS)
def test_the_transition_comes_before_the_marker(
    kind: dict[str, Any], start: list[str], end: list[str]
) -> None:
    script = thinks([*start, *"ABCDEFGH"], end)
    written, result = run(script, kind, transition="now", thinking_token_budget=2)
    assert written == [*start, "A", "B", *"now", *end, "X", "Y", EOS]
    assert (result.thinking, result.answer, result.close_reason) == ("AB", "XY", "budget")
    assert result.usage.thinking_tokens == 2


@pytest.mark.parametrize(("kind", "start", "end"), KINDS)
@pytest.mark.parametrize("forced", [0, 1, 2])
def test_a_scheduled_transition_yields_to_the_models_own_marker(
    kind: dict[str, Any], start: list[str], end: list[str], forced: int
) -> None:
    """At its first token or within it: the rest of it is left out, and there is one marker."""
    script = thinks([*start, "A", "B", *"???"[:forced], *end], end)
    written, result = run(script, kind, transition="now", thinking_token_budget=2)
    assert written == [*start, "A", "B", *"now"[:forced], *end, "X", "Y", EOS]
    assert (result.thinking, result.answer) == ("AB", "XY")
    assert (result.close_reason, result.usage.thinking_tokens) == ("natural", 2)


def test_a_transition_is_left_out_where_the_marker_has_begun() -> None:
    script = thinks([*ANALYSIS, "A", *FINAL[:2], "z"], FINAL)
    written, result = run(script, HARMONY, transition="now", thinking_token_budget=3)
    assert written == [*ANALYSIS, "A", *FINAL, "X", "Y", EOS]
    assert (result.thinking, result.close_reason) == ("A", "budget")


@pytest.mark.parametrize(("kind", "start", "end"), KINDS)
@pytest.mark.parametrize("budget", [2, 20])
def test_the_end_of_sequence_cannot_end_a_blank_answer(
    kind: dict[str, Any], start: list[str], end: list[str], budget: int
) -> None:
    """Neither behind the model's own marker nor behind a forced one."""
    script = thinks([*start, *"ABC", *end], end, answer=[EOS])
    written, result = run(script, kind, thinking_token_budget=budget)
    assert (written[-2:], result.answer) == (["x", EOS], "x")


@pytest.mark.parametrize(("kind", "start", "end"), KINDS)
def test_a_block_opened_again_is_charged_to_what_is_left(
    kind: dict[str, Any], start: list[str], end: list[str]
) -> None:
    def script(fed: list[str]) -> str:
        first: list[str] = [*start, "A", *end, "p"]
        second: list[str] = [*start, *"BCDEFGHIJK"]
        if len(fed) < len(first):
            return first[len(fed)]
        inside = fed[len(first) :]
        if behind(inside, end) is None:
            return second[len(inside)]
        return "q" if behind(inside, end) == 0 else EOS

    written, result = run(script, kind, thinking_token_budget=3)
    assert written == [*start, "A", *end, "p", *start, "B", "C", *end, "q", EOS]
    assert (result.thinking, result.answer, result.close_reason) == ("ABC", "pq", "budget")


@pytest.mark.parametrize("begun", [1, 2])
def test_a_start_marker_that_comes_to_nothing_is_answer(begun: int) -> None:
    script = thinks([*ANALYSIS, "A", *FINAL], FINAL, answer=["p", *ANALYSIS[:begun], "q"])
    _, result = run(script, HARMONY)
    assert result.answer == "p" + "".join(ANALYSIS[:begun]) + "q"
    assert (result.thinking, result.usage.answer_tokens) == ("A", 2 + begun)


def kinds_of(tracker: ReasoningTracker, tokens: Sequence[int]) -> list[str]:
    """What each token counts as when it is observed, and that the counts agree in the end."""
    kinds: list[str] = []
    for token in tokens:
        tracker.observe_token(token)
        kinds.append(tracker.kind)
    counted = tracker.thinking_tokens + tracker.answer_tokens + tracker.control_tokens
    assert counted == len(tokens)
    return kinds


def test_what_stands_before_an_answer_without_a_thought_is_control() -> None:
    """gpt-oss may go straight to its final channel; start marker and this one begin alike."""
    tracker = ReasoningTracker(False, 5, (4, 5, 6, 1, 7, 3), (1, 2, 3), answer_start_ids=(1, 7, 3))
    assert kinds_of(tracker, [1, 7]) == ["answer", "answer"]
    assert tracker.pending == 2
    tracker.observe_token(3)
    assert (tracker.kind, tracker.pending, tracker.in_thinking) == ("control", 0, False)
    tracker.observe_token(9)
    assert (tracker.answer_tokens, tracker.control_tokens) == (1, 3)
    assert tracker.close_reason == "none"


def test_an_answer_start_that_comes_to_nothing_is_answer() -> None:
    tracker = ReasoningTracker(False, 5, (4, 5), (1, 2, 3), answer_start_ids=(1, 7, 3))
    assert kinds_of(tracker, [1, 7, 9, 1, 2, 9]) == ["answer"] * 6
    assert (tracker.pending, tracker.answer_tokens) == (0, 6)


def test_an_answer_start_in_a_thought_is_thinking() -> None:
    tracker = ReasoningTracker(True, 5, (4, 5), (1, 2, 3), answer_start_ids=(1, 7, 3))
    assert kinds_of(tracker, [1, 7, 3]) == ["thinking"] * 3


@pytest.mark.parametrize(("kind", "start", "end"), KINDS)
@pytest.mark.parametrize("thinking", ["ABC", ["A", EOS]], ids=["spent", "closed from outside"])
def test_bu_05_a_closed_thought_cannot_be_opened_again(
    kind: dict[str, Any], start: list[str], end: list[str], thinking: Sequence[str]
) -> None:
    """The marker is barred behind its first id; alone that may be an ordinary token."""
    script = thinks([*start, *thinking], end, answer=["p", *start, "q", start[0]])
    written, result = run(script, kind, thinking_token_budget=2)
    assert behind(written[len(start) :], start) is None
    assert result.usage.thinking_tokens == len("AB" if thinking == "ABC" else "A")
    assert written[-len(start) - 4 :] == ["p", start[0], "x", *start[2:], "q", start[0], EOS]


def test_the_second_id_of_a_marker_is_barred_nowhere_else() -> None:
    script = thinks([*THOUGHT, *"AB"], CHANNEL_END, answer=["thought", "p", "thought"])
    written, result = run(script, GEMMA, thinking_token_budget=1)
    assert written == [*THOUGHT, "A", *CHANNEL_END, "thought", "p", "thought", EOS]
    assert result.answer == "thoughtpthought"


@pytest.mark.parametrize(("kind", "start", "end"), KINDS)
@examples(max_examples=40)
@given(data=st.data())
def test_any_script_keeps_every_promise(
    kind: dict[str, Any], start: list[str], end: list[str], data: st.DataObject
) -> None:
    """Whatever is written, whole and broken markers included: the budget holds, an answer comes."""
    pieces = st.sampled_from(
        [start, end, *([token] for token in sorted({*start, *end, "a", "b", EOS}))]
    )
    wants = [
        token for piece in data.draw(st.lists(pieces, min_size=1, max_size=9)) for token in piece
    ]
    _, result = run(
        lambda fed: wants[len(fed) % len(wants)],
        kind,
        transition=data.draw(st.sampled_from(["", "now"])),
        thinking_token_budget=data.draw(st.integers(0, 9)),
        max_tokens=60,
    )
    assert result.budget.enforced is not None
    assert result.usage.thinking_tokens <= result.budget.enforced
    assert result.answer.strip() or result.finish_reason == "length"
    assert EOS not in result.answer + (result.thinking or "")
