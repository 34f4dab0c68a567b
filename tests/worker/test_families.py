"""Model families: a row is found in a vocabulary that has its tokens, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import mlx_lm.models
import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import MODEL_REMAPPING
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast

from support.scripted import EOS, make_tokenizer
from thinkq.worker import demo
from thinkq.worker.families import FAMILIES, QWEN_TRANSITION, SEED_TRANSITION, Markers, resolve

PAGE = (Path(__file__).parents[2] / "docs" / "families.md").read_text(encoding="utf-8")

THINK = ("<think>", "</think>")
CHATML = ("<|im_end|>", "<|im_start|>")
QWEN = (*CHATML, "<tool_call>", "</tool_call>", *THINK)
HARMONY = ("<|return|>", "<|call|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", EOS)
GEMMA = ("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", EOS)
SEED = (
    *("<seed:think>", "</seed:think>", EOS),
    *("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
)
XTML = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", EOS)
WORDS = ("analysis", "assistant", "commentary", "final", "response", "thought", "think")

# family, a model type of it, control tokens of its vocabulary, start, end: as single tokens.
ROWS: list[tuple[str, str, Sequence[str], str, str]] = [
    ("thinkq-demo", "thinkq-demo", QWEN, "<think>", "</think>"),
    ("qwen3", "qwen3", QWEN, "<think>", "</think>"),
    ("qwen3", "qwen3_5_moe", QWEN, "<think>", "</think>"),
    ("deepseek", "deepseek_v3", (*THINK, EOS), "<think>", "</think>"),
    (
        "glm",
        "glm4_moe",
        (*THINK, "<tool_call>", "<|user|>", EOS),
        "<think>",
        "</think>",
    ),
    (
        "kimi",
        "kimi_k2",
        (*THINK, "<|tool_calls_section_begin|>", "<|tool_call_begin|>", EOS),
        "<think>",
        "</think>",
    ),
    ("nemotron", "nemotron_h", QWEN, "<think>", "</think>"),
    ("lfm2", "lfm2_moe", (*THINK, "<|tool_call_start|>", EOS), "<think>", "</think>"),
    ("minimax", "minimax_m2", (*THINK, "<minimax:tool_call>", EOS), "<think>", "</think>"),
    (
        "minimax-m3",
        "minimax_m3_vl",
        ("<mm:think>", "</mm:think>", "]<]minimax[>[", "<tool_call>", EOS),
        "<mm:think>",
        "</mm:think>",
    ),
    (
        "longcat",
        "longcat_flash",
        ("<longcat_think>", "</longcat_think>", EOS),
        "<longcat_think>",
        "</longcat_think>",
    ),
    ("mistral", "ministral3", ("[INST]", "[THINK]", "[/THINK]", EOS), "[THINK]", "[/THINK]"),
    ("seed-oss", "seed_oss", SEED, "<seed:think>", "</seed:think>"),
    (
        "solar",
        "solar_open",
        ("<|think:start|>", "<|think:end|>", EOS),
        "<|think:start|>",
        "<|think:end|>",
    ),
    ("gemma4", "gemma4", GEMMA, "<|channel> thought", "<channel|>"),
    (
        "gpt-oss",
        "gpt_oss",
        HARMONY,
        "<|channel|> analysis <|message|>",
        "<|end|> <|start|> assistant <|channel|> final <|message|>",
    ),
    ("kimi-k3", "kimi_k3", XTML, "<|open|> think <|sep|>", "<|close|> think <|sep|>"),
]


def ids(tokenizer: PreTrainedTokenizerFast, tokens: str) -> tuple[int, ...]:
    """Ids of tokens that are written with spaces between them."""
    found = tokenizer.convert_tokens_to_ids(tokens.split())
    assert isinstance(found, list)
    return tuple(found)


def docs_rows() -> list[list[str]]:
    """The table of docs/families.md, without its code marks."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [
        [cell.replace("\\|", "|").strip(" `") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines[1:]
    ]


def text_of(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[int]) -> str:
    text = tokenizer.decode(list(tokens))
    assert isinstance(text, str)
    return text


def check(markers: Markers, tokenizer: PreTrainedTokenizerFast, start: str, end: str) -> None:
    assert markers.by == "token"
    assert markers.start_ids == ids(tokenizer, start)
    assert markers.end_ids == ids(tokenizer, end)
    assert text_of(tokenizer, markers.start_ids) == markers.start
    assert text_of(tokenizer, markers.end_ids) == markers.end


@pytest.mark.parametrize(
    ("name", "model_type", "tokens", "start", "end"), ROWS, ids=[row[1] for row in ROWS]
)
def test_a_row_is_found_by_its_model_type(
    name: str, model_type: str, tokens: Sequence[str], start: str, end: str
) -> None:
    tokenizer = make_tokenizer(None, tokens, WORDS)
    markers = resolve(tokenizer, model_type)
    assert markers.family == name
    check(markers, tokenizer, start, end)


@pytest.mark.parametrize(
    ("name", "model_type", "tokens", "start", "end"), ROWS, ids=[row[1] for row in ROWS]
)
def test_an_unknown_model_type_falls_to_the_same_markers_by_its_vocabulary(
    name: str, model_type: str, tokens: Sequence[str], start: str, end: str
) -> None:
    """`<think>` is common to many and names no family."""
    tokenizer = make_tokenizer(None, tokens, WORDS)
    for unknown in ("a_new_model", None, model_type + "_2", "my_" + model_type):
        markers = resolve(tokenizer, unknown)
        plain = start == "<think>"
        assert markers.family == ("think" if plain else name)
        check(markers, tokenizer, start, end)


@pytest.mark.parametrize(
    ("model_type", "tokens", "answer_start"),
    [
        ("gpt_oss", HARMONY, "<|channel|> final <|message|>"),
        ("kimi_k3", XTML, "<|open|> response <|sep|>"),
        ("qwen3", QWEN, ""),
    ],
)
def test_what_stands_before_an_answer_without_a_thought(
    model_type: str, tokens: Sequence[str], answer_start: str
) -> None:
    tokenizer = make_tokenizer(None, tokens, WORDS)
    assert resolve(tokenizer, model_type).answer_start_ids == ids(tokenizer, answer_start)


def test_every_row_of_the_table_is_tested() -> None:
    plain = {family.name for family in FAMILIES if family.tokens == ()}
    assert {row[0] for row in ROWS} | plain == {family.name for family in FAMILIES}
    assert plain == {"kimi-vl"}


def test_the_docs_show_the_table_as_it_is() -> None:
    table = [
        [family.name, ", ".join(family.model_types), family.start, family.end]
        for family in FAMILIES
    ]
    assert [[cell.replace("`", "") for cell in row] for row in docs_rows()] == table


def test_no_model_type_is_named_twice_or_unknown_to_the_world() -> None:
    """A misspelt type would never be met: each is one that mlx-lm or transformers can load."""
    named = [each for family in FAMILIES for each in family.model_types]
    modules = {path.stem for path in Path(mlx_lm.models.__path__[0]).glob("*.py")}
    assert len(named) == len(set(named))
    assert set(named) - modules - set(MODEL_REMAPPING) - set(CONFIG_MAPPING.keys()) == {
        "thinkq-demo"
    }


@pytest.mark.parametrize("row", ROWS, ids=[row[1] for row in ROWS])
def test_where_mlx_lm_infers_markers_we_resolve_the_same_ids(
    row: tuple[str, str, Sequence[str], str, str],
) -> None:
    tokenizer = make_tokenizer(None, row[2], WORDS)
    theirs = TokenizerWrapper(tokenizer)
    ours = resolve(tokenizer, None)
    if theirs.has_thinking:
        assert ours.start_ids == tuple(theirs.think_start_tokens)
        assert ours.end_ids == tuple(theirs.think_end_tokens)
    else:
        assert row[0] in {"minimax-m3", "mistral", "seed-oss", "gpt-oss"}, (
            "mlx-lm is behind only here"
        )


def test_the_model_type_wins_over_a_vocabulary_that_knows_more_markers() -> None:
    tokenizer = make_tokenizer(None, (*QWEN, *HARMONY[:-1], "[THINK]", "[/THINK]"), WORDS)
    assert resolve(tokenizer, "gpt_oss").family == "gpt-oss"
    assert resolve(tokenizer, "mistral3").family == "mistral"
    assert resolve(tokenizer, "llama").family == "think"


def test_a_model_type_whose_markers_are_not_in_the_vocabulary_is_not_believed() -> None:
    """A fine-tune may keep the architecture and bring another vocabulary."""
    tokenizer = make_tokenizer(None, ("<longcat_think>", "</longcat_think>", EOS))
    assert resolve(tokenizer, "qwen3").family == "longcat"
    assert resolve(make_tokenizer(None, (EOS, "<think>")), "qwen3").by == "text"


@pytest.mark.parametrize(
    "tokens",
    [
        ("<", ">", "think", "<|", "|>"),
        ("<think", "</think", "<thinking>", "</thinking>"),
        ("<|channel|>", "<|message|>"),
        ("<|channel>", "<|think|>"),
        ("[THINK]",),
    ],
)
def test_parts_of_markers_make_no_family(tokens: Sequence[str]) -> None:
    markers = resolve(make_tokenizer(None, (EOS, *tokens), WORDS), "llama")
    assert (markers.family, markers.by) == ("text", "text")


def test_without_markers_in_the_vocabulary_they_are_spelled_as_text() -> None:
    tokenizer = make_tokenizer(None, (EOS,))
    markers = resolve(tokenizer, "llama")
    assert (markers.family, markers.by, markers.transition_ids) == ("text", "text", ())
    assert text_of(tokenizer, markers.start_ids) == "<think>"
    assert text_of(tokenizer, markers.end_ids) == "</think>"
    assert len(markers.end_ids) == len("</think>")


def test_kimi_vl_writes_its_markers_as_text() -> None:
    tokenizer = make_tokenizer(None, (EOS,))
    markers = resolve(tokenizer, "kimi_vl")
    assert (markers.family, markers.by) == ("kimi-vl", "text")
    assert text_of(tokenizer, markers.start_ids) == "◁think▷"
    assert text_of(tokenizer, markers.end_ids) == "◁/think▷"


def test_marker_tokens_need_not_be_flagged_as_special() -> None:
    """Qwen3's are not: such a token is text to `skip_special_tokens`, and a marker all the same."""
    tokenizer = make_tokenizer(None, (EOS,))
    tokenizer.add_tokens([AddedToken(text, special=False) for text in THINK])
    markers = resolve(tokenizer, "qwen3")
    assert (markers.family, markers.by) == ("qwen3", "token")
    assert markers.end_ids == (tokenizer.convert_tokens_to_ids("</think>"),)


def test_a_marker_in_the_base_vocabulary_is_one_id_even_if_text_never_encodes_to_it() -> None:
    base = make_tokenizer(None, (EOS,), THINK)
    assert len(base.encode("</think>", add_special_tokens=False)) > 1
    markers = resolve(base, "qwen3")
    assert markers.by == "token"
    assert markers.end_ids == (base.convert_tokens_to_ids("</think>"),)


def test_ids_come_from_the_tokenizer_at_hand() -> None:
    one, other = make_tokenizer(None, QWEN), make_tokenizer(None, (*THINK, "<tool_call>", EOS))
    first, second = resolve(one, "qwen3"), resolve(other, "qwen3")
    assert first.end_ids != second.end_ids
    assert text_of(one, first.end_ids) == text_of(other, second.end_ids) == "</think>"


def test_transitions_are_the_familys_own_unless_the_settings_say_otherwise() -> None:
    qwen, seed = make_tokenizer(None, QWEN), make_tokenizer(None, SEED)
    assert text_of(qwen, resolve(qwen, "qwen3").transition_ids) == QWEN_TRANSITION
    assert text_of(seed, resolve(seed, "seed_oss").transition_ids) == SEED_TRANSITION
    assert text_of(qwen, resolve(qwen, "qwen3", "Time is up.").transition_ids) == "Time is up."
    assert resolve(qwen, "qwen3", "").transition_ids == ()
    for model_type in ("thinkq-demo", "deepseek_v3", "llama"):
        assert resolve(qwen, model_type).transition_ids == ()


def test_a_marker_may_end_in_a_piece_of_a_sentencepiece_vocabulary() -> None:
    """Gemma's kind: spaces become `▁`, bytes are the last resort, `thought` is one piece."""
    pieces = [*"thoug▁", "thought", "▁thought", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[],
            byte_fallback=True,
            ignore_merges=True,
        )
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in GEMMA])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS)
    check(resolve(tokenizer, "gemma4"), tokenizer, "<|channel> thought", "<channel|>")


def test_the_demo_models_own_tokenizer_is_a_row_without_a_transition() -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(demo.path()))
    markers = resolve(tokenizer, "thinkq-demo")
    assert (markers.family, markers.by, markers.transition_ids) == ("thinkq-demo", "token", ())
    assert len(markers.start_ids) == len(markers.end_ids) == 1
