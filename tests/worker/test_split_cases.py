"""The split in the real loop: faults that users hit, under their ids; stream and store agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.scripted import CLOSE, EOS, OPEN, ask, natural, scripted_engine
from thinkq.client.result import Result
from thinkq.worker.engine import Engine


def stream_and_store(engine: Engine, **options: Any) -> Result:
    """The result of script 0, once it was checked that the stream said the same."""
    streamed: dict[bool, list[str]] = {True: [], False: []}
    engine.add(ask(**options), job_id="j", sink=lambda text, side: streamed[side].append(text))
    ended = [row.result for _ in range(300) for row in engine.turn()]
    assert len(ended) == 1
    result = ended[0]
    assert result is not None
    assert "".join(streamed[True]) == (result.thinking or "")
    assert "".join(streamed[False]) == result.answer
    return result


def write(thinking: Sequence[str], answer: Sequence[str], **options: Any) -> Result:
    """A job whose model thinks and answers as given."""
    return stream_and_store(scripted_engine(natural([*thinking, CLOSE], answer)), **options)


def test_sp_26_literal_tags_in_an_answer_are_text() -> None:
    text = "Write <think> first, </think> last."
    engine = scripted_engine(natural([*text, EOS], []))
    result = stream_and_store(engine, enable_thinking=False)
    assert (result.thinking, result.answer) == (None, text)
    assert result.warnings == []


def test_sp_27_real_marker_ids_split_although_thinking_was_off() -> None:
    engine = scripted_engine(natural([OPEN, *"user wants ok", CLOSE], ["\n", "\n", *"OK"]))
    result = stream_and_store(engine, enable_thinking=False)
    assert (result.thinking, result.answer) == ("user wants ok", "OK")
    assert result.warnings == ["thought_while_disabled"]


def test_sp_28_tags_in_backticks_are_text() -> None:
    text = "Wrap it in `<think>` and `</think>` tags."
    assert write("hm", text).answer == text


def test_sp_29_literal_tags_in_thinking_do_not_split() -> None:
    thought = "Candidates: <think>, </think>, <plan>. Pick three."
    result = write(thought, "\n\n1. think")
    assert (result.thinking, result.answer) == (thought, "1. think")


def test_sp_22_a_thought_without_a_close_is_all_thinking() -> None:
    """Cancelled while thinking: the text so far is kept on its own side."""
    engine = scripted_engine(natural("still weighing", ""))
    row = engine.add(ask(), job_id="j")
    while row.tagger.thinking != "still":
        engine.turn()
    engine.cancel(row)
    engine.turn()
    assert row.result is not None
    assert (row.result.thinking, row.result.answer) == ("still", "")
    assert (row.result.status, row.result.close_reason) == ("cancelled", "none")


def test_sp_24_a_stray_close_is_not_shown() -> None:
    written = [*"hm", CLOSE, CLOSE, "\n", *"Here"]
    engine = scripted_engine(lambda fed: written[len(fed)] if len(fed) < len(written) else EOS)
    assert stream_and_store(engine).answer == "Here"


def test_sp_30_an_empty_block_is_no_thinking() -> None:
    result = write("\n\n", "\n\nHi")
    assert (result.thinking, result.answer) == (None, "Hi")


def test_sp_31_only_leading_newlines_of_the_answer_are_dropped() -> None:
    result = write("x", "\n\n    return 1\n")
    assert (result.thinking, result.answer) == ("x", "    return 1\n")


def test_sp_36_an_empty_answer_is_visible_and_not_filled_with_the_thinking() -> None:
    engine = scripted_engine(natural([*"8*7 = 56 so", CLOSE], "\n" * 50))
    result = stream_and_store(engine, max_tokens=30)
    assert (result.thinking, result.answer) == ("8*7 = 56 so", "")
    assert (result.finish_reason, result.status) == ("length", "done")
    assert result.warnings == ["empty_answer"]
    assert result.empty


def test_an_answer_of_blanks_is_as_empty() -> None:
    result = write("x", " " * 50, max_tokens=20)
    assert (result.answer.strip(), result.warnings) == ("", ["empty_answer"])


@pytest.mark.parametrize(
    ("answer", "expected", "reason"),
    [("Blue.\nQ2: and", "Blue.", "stop"), ("Blue.\nQuite so", "Blue.\nQuite so", "stop")],
)
def test_tt_05_a_stop_string_is_found_over_tokens_and_never_shows(
    answer: str, expected: str, reason: str
) -> None:
    result = write("x", answer, stop=["\nQ2:"])
    assert (result.answer, result.finish_reason) == (expected, reason)


def test_tt_05_what_may_become_a_stop_string_is_let_go_at_the_end() -> None:
    result = write("x", "Blue.\nQ2", stop=["\nQ2:"], max_tokens=18, thinking_token_budget=2)
    assert (result.answer, result.finish_reason) == ("Blue.\nQ2", "stop")


def test_tt_06_stop_strings_sleep_while_the_model_thinks() -> None:
    result = write("use ### as a rule", "Done ###more", stop=["###"])
    assert (result.thinking, result.answer) == ("use ### as a rule", "Done ")
    assert result.finish_reason == "stop"


def test_every_end_of_sequence_of_a_model_ends_the_answer() -> None:
    """Models have several; each of them does."""
    for token in (EOS, "<|im_start|>"):
        engine = scripted_engine(natural([*"x", CLOSE], ["a", token, "b"]))
        engine = _with_two_ends(engine)
        result = stream_and_store(engine)
        assert (result.answer, result.finish_reason) == ("a", "stop")


def _with_two_ends(engine: Engine) -> Engine:
    engine.tokenizer.eos_token_ids = engine.tokenizer.convert_tokens_to_ids([EOS, "<|im_start|>"])
    return Engine(engine.model, engine.tokenizer, settings=engine.settings)


def test_include_reasoning_false_decodes_the_thinking_and_forgets_it() -> None:
    result = write("secret", "Y", include_reasoning=False)
    assert (result.thinking, result.answer, result.usage.thinking_tokens) == (None, "Y", 6)


WANTS = st.lists(
    st.sampled_from([*"ab\n#", "<tool_call>", "</tool_call>", OPEN, CLOSE, EOS]), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(wants=WANTS, stop=st.sampled_from([None, "#", "a\n", "b#"]), tools=st.booleans())
def test_whatever_is_written_the_stream_is_the_store(
    wants: list[str], stop: str | None, tools: bool
) -> None:
    """With calls that never parse, no text of the answer is lost up to the stop string."""
    engine = scripted_engine(lambda fed: wants[len(fed) % len(wants)])
    options = {"tools": [{"type": "function", "function": {"name": "f"}}]} if tools else {}
    result = stream_and_store(engine, max_tokens=30, stop=stop, **options)
    assert result.tool_calls is None
    assert stop is None or stop not in result.answer
    assert not any(control in result.answer for control in (OPEN, CLOSE, EOS))
    if stop is None:
        assert result.answer == _answer_of(engine.model.written())


def _answer_of(written: list[str]) -> str:
    """The split read off the tokens: what is outside of blocks, without leading newlines."""
    answer, inside = "", True
    for token in written:
        if token in (CLOSE, EOS):
            inside = False
        elif token == OPEN and not inside:
            inside = True
        elif not inside:
            answer += token
    return answer.lstrip("\n")
