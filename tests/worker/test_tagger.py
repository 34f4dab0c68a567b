"""Token ids to text: whole characters, at once, and the same as the tokenizer's own decoding."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from support.scripted import make_tokenizer
from support.tokenizers import CONTROLS, byte_level, metaspace, qwen35, sentence_piece
from thinkq.client.job import Job, Message
from thinkq.worker.cutter import Cutter
from thinkq.worker.reasoning import ReasoningTracker
from thinkq.worker.tagger import Tagger
from thinkq.worker.tokens import TokenBytes

KINDS: dict[str, Any] = {
    "byte-level": byte_level(),
    "llama": sentence_piece(dummy_prefix=True),
    "gemma": sentence_piece(dummy_prefix=False),
    "metaspace": metaspace(prepend_scheme="never"),
    "metaspace-first": metaspace(prepend_scheme="first"),
}
BYTES = {piece: i for piece, i in KINDS["gemma"].get_vocab().items() if piece.startswith("<0x")}


def job(**options: object) -> Job:
    return Job(messages=[Message(role="user", content="q")], **options)  # type: ignore[arg-type]


class Reader:
    """A row's tracker and tagger on one tokenizer, and what was streamed."""

    def __init__(self, tokenizer: Any, *, thinking: bool = False, **options: object) -> None:
        start, end, eos = (
            tokenizer.convert_tokens_to_ids(text)
            for text in ("<think>", "</think>", tokenizer.eos_token)
        )
        self.tokenizer = tokenizer
        self.tracker = ReasoningTracker(thinking, None, (end,), (start,), eos_ids=(eos,))
        self.streamed: dict[bool, list[str]] = {True: [], False: []}
        self.tagger = Tagger(
            TokenBytes(tokenizer),
            self.tracker,
            job(**options),
            sink=lambda text, side: self.streamed[side].append(text),
        )

    def read(self, *tokens: int | str) -> None:
        """Take in ids, or pieces of the vocabulary."""
        for token in tokens:
            index = self.tokenizer.convert_tokens_to_ids(token) if isinstance(token, str) else token
            self.tracker.observe_token(index)
            self.tagger.push(index)

    def finish(self) -> tuple[str | None, str]:
        """Thinking and answer, once it was checked that both are what was streamed."""
        self.tagger.finish()
        tagger = self.tagger
        assert "".join(self.streamed[True]) == (tagger.thinking or "")
        assert "".join(self.streamed[False]) == tagger.answer
        return tagger.thinking, tagger.answer


def byte_pieces(*groups: str) -> list[int]:
    """Ids of bytes in hex, each a token of its own."""
    return [
        BYTES[f"<0x{group[i : i + 2].upper()}>"]
        for group in groups
        for i in range(0, len(group), 2)
    ]


def test_sp_34_characters_split_over_tokens_arrive_whole() -> None:
    reader = Reader(KINDS["gemma"])
    reader.read(*byte_pieces("f09f", "94a5", "20e4bda0", "e5a5", "bd"))
    assert reader.streamed[False] == ["🔥", " ", "你", "好"]
    assert reader.finish() == (None, "🔥 你好")


TEXTS = [
    "🔥🔥 fire",
    "你好 世界",
    "cafe\u0301",
    "👨\u200d👩\u200d👧\u200d👦",
    "हिन्दी में",
    "🏳️\u200d🌈",
    "日本語テキスト",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte-level", "gemma", "llama"])
def test_emoji_cjk_combining_marks_and_joiners_arrive_whole(kind: str, text: str) -> None:
    """On both sides, with not one U+FFFD on the way."""
    tokenizer = KINDS[kind]
    ids = tokenizer.encode(text, add_special_tokens=False)
    reader = Reader(tokenizer, thinking=True)
    reader.read(*ids, "</think>", *ids)
    thinking, answer = reader.finish()
    assert (thinking, answer) == (text, text)
    assert not any("�" in piece for pieces in reader.streamed.values() for piece in pieces)


SPLIT = [
    ("🔥 你好", "a character over three tokens, and one over two behind a space"),
    ("👨\u200d👩\u200d👧\u200d👦", "joiners over two tokens each"),
    ("🏳️\u200d🌈 👩🏽\u200d🚀", "variation selectors and skin tones"),
    ("𓀀𒀀 q\u0323\u0301", "four bytes in four tokens, two marks on one letter"),
    ("हिन्दी में 日本語", "marks and CJK that are tokens of their own"),
]


@pytest.mark.parametrize(("text", "_"), SPLIT, ids=[each for _, each in SPLIT])
def test_sp_34_with_qwen35s_vocabulary_every_character_arrives_whole(text: str, _: str) -> None:
    """On both sides, and each character as soon as its last token is read."""
    tokenizer, encode = qwen35()
    ids = encode(text)
    reader = Reader(tokenizer, thinking=True)
    for side in (True, False):
        for count, token in enumerate(ids, 1):
            reader.read(token)
            whole = b"".join(TokenBytes(tokenizer)[each] for each in ids[:count])
            shown = "".join(reader.streamed[side])
            assert shown == whole.decode(errors="ignore")
        if side:
            reader.read("</think>")
    assert reader.finish() == (text, text)


def test_a_finished_word_is_not_held_back() -> None:
    """Every token that ends on a whole character shows at once."""
    reader = Reader(KINDS["byte-level"])
    for token in reader.tokenizer.encode("the cat sat", add_special_tokens=False):
        before = len(reader.streamed[False])
        reader.read(token)
        assert len(reader.streamed[False]) == before + 1


def test_a_character_cut_at_the_end_of_a_side_is_one_replacement_character() -> None:
    reader = Reader(KINDS["gemma"], thinking=True)
    reader.read("a", *byte_pieces("f09f94"), "</think>", "b", *byte_pieces("e4bd"))
    assert reader.finish() == ("a�", "b�")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_the_text_is_what_the_tokenizer_decodes(kind: str, data: st.DataObject) -> None:
    """For any ids that are valid UTF-8, without control tokens."""
    tokenizer = KINDS[kind]
    controls = {tokenizer.convert_tokens_to_ids(text) for text in (*CONTROLS, "<unk>")}
    ids = [i for i in range(len(tokenizer)) if i not in controls]
    drawn = data.draw(st.lists(st.sampled_from(ids), max_size=12))
    expected = tokenizer.decode(drawn)
    if "�" in expected or expected.startswith("\n"):
        return
    first = tokenizer.convert_ids_to_tokens(drawn[0]) if drawn else ""
    if kind == "metaspace-first" and first.startswith("▁▁"):
        return
    reader = Reader(tokenizer)
    reader.read(*drawn)
    assert reader.finish() == (None, expected)


def test_ids_beyond_the_tokenizer_have_no_text() -> None:
    """Models pad their vocabulary."""
    assert TokenBytes(KINDS["byte-level"])[99_999] == b""


def test_a_byte_level_piece_outside_of_its_alphabet_stands_for_itself() -> None:
    tokenizer: Any = make_tokenizer(words=("好",))
    index = tokenizer.convert_tokens_to_ids("好")
    assert TokenBytes(tokenizer)[index].decode() == tokenizer.decode([index]) == "好"


def test_pieces_that_only_look_like_bytes_are_text() -> None:
    table = TokenBytes(KINDS["gemma"])
    assert table[KINDS["gemma"].convert_tokens_to_ids("<0xZZ>")] == b"<0xZZ>"


def test_a_tokenizer_that_cannot_be_streamed_is_refused() -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ValueError, match="cannot stream this tokenizer's decoder"):
        TokenBytes(PreTrainedTokenizerFast(tokenizer_object=tokenizer))


def test_sp_30_blank_thinking_is_null_and_leading_newlines_of_the_answer_go() -> None:
    reader = Reader(KINDS["gemma"], thinking=True)
    reader.read("\n", "\n", "</think>", "\n", "\n", "a")
    assert reader.finish() == (None, "a")


def test_sp_31_nothing_but_leading_newlines_is_dropped() -> None:
    reader = Reader(KINDS["gemma"], thinking=True)
    reader.read("\n", "a", "\n", "</think>", "\n", "\n", "▁▁", "▁▁", "b", "\n")
    assert reader.finish() == ("\na\n", "    b\n")


def test_include_reasoning_false_keeps_and_sends_no_thinking() -> None:
    reader = Reader(KINDS["gemma"], thinking=True, include_reasoning=False)
    reader.read("a", "</think>", "b")
    assert reader.finish() == (None, "b")


@pytest.mark.parametrize("last", ["</s>", "</think>"])
def test_a_marker_that_is_only_begun_when_the_answer_ends_is_text(last: str) -> None:
    """A start marker of two tokens; its first is ordinary text as well."""
    tokenizer: Any = KINDS["gemma"]
    ids = {text: tokenizer.convert_tokens_to_ids(text) for text in ("a", "b", "</s>", "</think>")}
    tracker = ReasoningTracker(
        False, None, (ids["</think>"],), (ids["a"], ids["b"]), eos_ids=(ids["</s>"],)
    )
    tagger = Tagger(TokenBytes(tokenizer), tracker, job())
    for text in ("b", "a", last):
        tracker.observe_token(ids[text])
        tagger.push(ids[text])
    tagger.finish()
    assert tagger.answer == "ba"


STOPS = st.lists(st.text("ab#", min_size=1, max_size=4), min_size=1, max_size=3)


@given(text=st.text("ab#", max_size=30), stops=STOPS, data=st.data())
def test_cutting_a_text_anywhere_finds_the_same_stop_string(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    """And what is shown before it never has to be taken back."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    edges = [0, *cuts, len(text)]
    cutter = Cutter(stops)
    shown = [cutter.push(text[a:b])[0] for a, b in pairwise(edges)]
    result = "".join(shown) + cutter.flush()
    ends = [(text.find(each) + len(each), text.find(each)) for each in stops if each in text]
    assert result == (text[: min(ends)[1]] if ends else text)
    assert cutter.found == bool(ends)


def test_what_follows_the_string_is_returned() -> None:
    cutter = Cutter(["</call>"])
    assert cutter.push("a</ca") == ("a", "")
    assert cutter.push("ll>b") == ("", "b")
    assert (cutter.found, cutter.push("c")) == (True, ("", "c"))


@pytest.mark.parametrize(
    ("pieces", "expected", "found"),
    [
        (["Blue.", "\nQ", "2", ": and"], "Blue.", True),
        (["Blue.", "\nQ", "uite so"], "Blue.\nQuite so", False),
        (["Blue.", "\nQ", "2"], "Blue.\nQ2", False),
    ],
)
def test_tt_05_a_stop_string_over_several_pieces(
    pieces: list[str], expected: str, found: bool
) -> None:
    cutter = Cutter(["\nQ2:"])
    shown = "".join(cutter.push(piece)[0] for piece in pieces) + cutter.flush()
    assert (shown, cutter.found) == (expected, found)
