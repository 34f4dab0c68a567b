"""How each model family marks its thinking: a table, and the look-up of its markers in a tokenizer.

The table holds texts. Ids always come from the tokenizer that was loaded with the model:
vocabularies of one family number, split and flag the same marker differently. A row is chosen so:

1. the row that names the model's exact type, if its control tokens are in the vocabulary;
2. the row whose control tokens are in the vocabulary, whatever the type;
3. plain text: the markers of a family that writes them so, else `<think>` and `</think>`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol

QWEN_TRANSITION = (
    "\n\nConsidering the limited time by the user, I have to give the solution based on the "
    "thinking directly now.\n"
)
"""Published by the Qwen3 team with their thinking budget (Qwen3 technical report, 2025)."""

SEED_TRANSITION = (
    "\n<seed:cot_budget_reflect>I have exhausted my token budget, and now I will start answering "
    "the question.</seed:cot_budget_reflect>\n"
)
"""What Seed-OSS is trained to write when its budget is used up (its model card, 2025)."""


@dataclass(frozen=True)
class Family:
    """One row of the table.

    `tokens` are the control tokens that the markers are made of; None: each marker is a token of
    its own; empty: they are plain text. `answer_start` is written before an answer that no thought
    precedes. `transition` is forced before the end marker when a thought is ended from outside.
    """

    name: str
    model_types: tuple[str, ...] = ()
    start: str = "<think>"
    end: str = "</think>"
    tokens: tuple[str, ...] | None = None
    answer_start: str = ""
    transition: str = ""

    def is_known_to(self, vocabulary: Collection[str]) -> bool:
        """Whether a vocabulary has the control tokens of this row; never so for plain text."""
        tokens = (self.start, self.end) if self.tokens is None else self.tokens
        return bool(tokens) and all(token in vocabulary for token in tokens)


THINK = Family("think")
"""For the many models that use the most common markers and no more."""

FAMILIES: tuple[Family, ...] = (
    Family("thinkq-demo", ("thinkq-demo",)),
    Family(
        "qwen3",
        (
            *("qwen3", "qwen3_moe", "qwen3_next", "qwen3_vl", "qwen3_vl_moe"),
            *("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"),
        ),
        transition=QWEN_TRANSITION,
    ),
    Family("deepseek", ("deepseek_v3", "deepseek_v32")),
    Family("glm", ("glm4_moe", "glm4_moe_lite", "glm_moe_dsa")),
    Family("kimi", ("kimi_k2", "kimi_k25", "kimi_linear")),
    Family("nemotron", ("nemotron_h", "nemotron-nas")),
    Family("lfm2", ("lfm2", "lfm2_moe", "lfm2_vl", "lfm2-vl")),
    Family("minimax", ("minimax", "minimax_m2")),
    Family(
        "minimax-m3",
        ("minimax_m3_vl",),
        "<mm:think>",
        "</mm:think>",
    ),
    Family(
        "longcat",
        ("longcat_flash", "longcat_flash_ngram"),
        "<longcat_think>",
        "</longcat_think>",
    ),
    Family("mistral", ("mistral3", "ministral3", "mistral4"), "[THINK]", "[/THINK]"),
    Family(
        "seed-oss",
        ("seed_oss",),
        "<seed:think>",
        "</seed:think>",
        transition=SEED_TRANSITION,
    ),
    Family("solar", ("solar_open",), "<|think:start|>", "<|think:end|>"),
    Family(
        "gemma4",
        ("gemma4", "gemma4_text", "gemma4_unified"),
        "<|channel>thought",
        "<channel|>",
        tokens=("<|channel>", "<channel|>"),
    ),
    Family(
        "gpt-oss",
        ("gpt_oss",),
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        tokens=("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
        answer_start="<|channel|>final<|message|>",
    ),
    Family(
        "kimi-k3",
        ("kimi_k3",),
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        tokens=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
        answer_start="<|open|>response<|sep|>",
    ),
    Family("kimi-vl", ("kimi_vl",), "◁think▷", "◁/think▷", tokens=()),
)
"""Every family that thinkq knows by name."""

_UNNAMED = (THINK, *(family for family in FAMILIES if family.start != THINK.start))
_TEXT = Family("text", tokens=())


class Encodes(Protocol):
    """The calls of a Hugging Face tokenizer that are used here."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """Every token and its id, added tokens included."""
        ...


@dataclass(frozen=True)
class Markers:
    """A family's markers as ids of one tokenizer."""

    family: str
    start: str
    end: str
    start_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    transition_ids: tuple[int, ...]
    by: Literal["token", "text"]
    """Whether the markers are made of control tokens or of pieces of ordinary text."""
    answer_start_ids: tuple[int, ...] = ()
    """What stands before an answer that no thought precedes; empty where nothing does."""


def resolve(tokenizer: Encodes, model_type: str | None, transition: str | None = None) -> Markers:
    """The markers of a loaded model. `transition`, from settings, replaces the family's own."""
    vocabulary = tokenizer.get_vocab()
    family = choose(vocabulary, model_type)

    def ids(text: str) -> tuple[int, ...]:
        if text in vocabulary:
            return (vocabulary[text],)
        return tuple(tokenizer.encode(text, add_special_tokens=False)) if text else ()

    return Markers(
        family=family.name,
        start=family.start,
        end=family.end,
        start_ids=ids(family.start),
        end_ids=ids(family.end),
        transition_ids=ids(family.transition if transition is None else transition),
        by="token" if family.is_known_to(vocabulary) else "text",
        answer_start_ids=ids(family.answer_start),
    )


def choose(vocabulary: Collection[str], model_type: str | None) -> Family:
    """The row of the table that a model with these tokens goes by."""
    named = [family for family in FAMILIES if model_type in family.model_types]
    for family in (*named, *_UNNAMED):
        if family.is_known_to(vocabulary):
            return family
    return next((family for family in named if family.tokens == ()), _TEXT)
