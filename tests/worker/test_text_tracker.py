"""The tracker and the tagger of the text path, driven by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.scripted import EOS, make_tokenizer
from support.tokenizers import sentence_piece
from thinkq.client.job import Job, Message
from thinkq.worker.families import resolve
from thinkq.worker.text_path import TextTagger, TextTracker
from thinkq.worker.think_filter import FilterOut, ThinkFilter
from thinkq.worker.tokens import TokenBytes

SPECIALS = (EOS, "<|im_start|>")
MARKER = "</think>"
WORDS = ("</", "think", ">Ċ", "so.</think>")


def tracker_of(
    tokenizer: Any, budget: int | None, starts_in_thinking: bool = True, **changes: Any
) -> TextTracker:
    """A tracker in the middle of a thought, or before an answer."""
    return TextTracker(
        starts_in_thinking,
        budget,
        replace(resolve(tokenizer, None), **changes),
        eos_ids=(tokenizer.eos_token_id,),
        table=TokenBytes(tokenizer),
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
    )


def test_a_beginning_that_takes_more_tokens_to_complete_than_a_new_marker_is_let_be() -> None:
    tokenizer: Any = make_tokenizer(specials=SPECIALS, words=("</think>",))
    end = tokenizer.convert_tokens_to_ids("</think>")
    tracker = tracker_of(tokenizer, 2, end_ids=(end,))
    for token in tokenizer.encode("a<"):
        tracker.observe_token(token)
    assert tracker.should_force_think_end()
    assert tracker.forced_token_id() == end
    tracker.observe_token(end)
    assert "".join(segment.text for segment in tracker.take()) == "a<"
    assert not tracker.in_thinking


def test_a_beginning_with_half_a_character_behind_it_is_no_marker() -> None:
    """Completed as one it would read `</�think>`: the whole marker is forced, nothing is lost."""
    tokenizer: Any = make_tokenizer(specials=SPECIALS)
    tracker = tracker_of(tokenizer, 4)
    for token in tokenizer.encode("a</🔥", add_special_tokens=False)[:4]:
        tracker.observe_token(token)
    while tracker.should_force_think_end():
        tracker.observe_token(tracker.forced_token_id(), 0)
    assert "".join(segment.text for segment in tracker.take()) == "a</�"
    assert (tracker.thinking_tokens, tracker.control_tokens) == (4, len(MARKER))


def test_only_the_beginning_of_the_text_has_a_dummy_prefix() -> None:
    """SentencePiece's first space is no text; the one after a tag is."""
    tokenizer: Any = sentence_piece(dummy_prefix=True)
    tracker = tracker_of(tokenizer, None)
    job = Job(messages=[Message(role="user", content="q")])
    tagger = TextTagger(TokenBytes(tokenizer), tracker, job)
    for piece in ("▁hi", *(f"<0x{ord(char):02X}>" for char in MARKER), "▁hi"):
        token = tokenizer.convert_tokens_to_ids(piece)
        tracker.observe_token(token)
        tagger.push(token)
    tagger.finish()
    assert (tagger.thinking, tagger.answer) == ("hi", " hi")


PIECES = st.sampled_from([*"ab<>/", *WORDS, "<think>", "</thi", " x='", "�"])


@settings(max_examples=80)
@given(st.lists(PIECES, max_size=25), st.booleans())
def test_without_a_budget_it_is_split_as_the_filter_splits_the_whole(
    pieces: list[str], starts_in_thinking: bool
) -> None:
    """However the text falls into tokens, and characters into bytes."""
    tokenizer: Any = make_tokenizer(specials=SPECIALS, words=WORDS)
    tracker = tracker_of(tokenizer, None, starts_in_thinking)
    for piece in pieces:
        for token in tokenizer.encode(piece):
            tracker.observe_token(token)
    tracker.finish()
    found, whole = tracker.take(), ThinkFilter(starts_in_thinking)
    expected = FilterOut((*whole.push("".join(pieces)).segments, *whole.finish().segments))
    assert FilterOut(tuple(found)).content == expected.content
    assert FilterOut(tuple(found)).thinking == expected.thinking
    assert tracker.warnings == whole.warnings


@settings(max_examples=80)
@given(st.lists(PIECES, max_size=25), st.integers(0, 8))
def test_any_text_keeps_to_the_budget_and_the_counts(pieces: list[str], budget: int) -> None:
    """Driven by hand: what is forced is committed, and everything that was counted adds up."""
    tokenizer: Any = make_tokenizer(specials=SPECIALS, words=WORDS)
    tracker = tracker_of(tokenizer, budget)
    ids = [token for piece in pieces for token in tokenizer.encode(piece)]
    committed = 0
    for sampled in ids:
        forced = tracker.should_force_think_end()
        token = tracker.forced_token_id() if forced else sampled
        tracker.observe_token(token, sampled)
        committed += 1
        assert tracker.thinking_tokens <= budget
    while tracker.should_force_think_end():
        tracker.observe_token(tracker.forced_token_id(), ids[0] if ids else 0)
        committed += 1
    tracker.finish()
    counts = (tracker.thinking_tokens, tracker.answer_tokens, tracker.control_tokens)
    assert sum(counts) == committed
    assert min(counts) >= 0
