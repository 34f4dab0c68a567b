"""How each model family marks its thinking: one row a family, ids always from the loaded tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

QWEN_TRANSITION = (
    "\n\nConsidering the limited time by the user, I have to give the solution based on the thinking "
    "directly now.\n"
)
"""Published by the Qwen3 team with their thinking budget (Qwen3 technical report, 2025)."""


@dataclass(frozen=True)
class Family:
    """Texts of a family's markers, and what is forced before the end marker when a budget ends it."""

    name: str
    start: str
    end: str
    model_types: tuple[str, ...] = ()
    transition: str = ""


FAMILIES: tuple[Family, ...] = (
    Family("thinkq-demo", "<think>", "</think>", ("thinkq-demo",)),
    Family(
        "qwen3",
        "<think>",
        "</think>",
        ("qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text"),
        QWEN_TRANSITION,
    ),
    Family("think", "<think>", "</think>"),
    Family("longcat", "<longcat_think>", "</longcat_think>", ("longcat_flash",)),
    Family("mistral", "[THINK]", "[/THINK]", ("mistral3", "ministral3")),
    Family("seed-oss", "<seed:think>", "</seed:think>", ("seed_oss",)),
    Family("gemma4", "<|channel>thought", "<channel|>", ("gemma4", "gemma4_text")),
    Family(
        "gpt-oss",
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        ("gpt_oss",),
    ),
)

TEXT_MARKERS = Family("text", "<think>", "</think>")
"""For vocabularies that know no marker: the encoded text of the most common one."""


class Encodes(Protocol):
    """The two calls of a Hugging Face tokenizer that are used here."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text."""
        ...

    def get_added_vocab(self) -> dict[str, int]:
        """Texts of the added tokens and their ids."""
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


def resolve(tokenizer: Encodes, model_type: str | None, transition: str | None = None) -> Markers:
    """The markers of a loaded model: by its type, else by what its vocabulary has.

    `transition` (from settings) replaces the family's own text.
    """
    added = tokenizer.get_added_vocab()
    named = [family for family in FAMILIES if model_type in family.model_types]
    for family in (*named, *(each for each in FAMILIES if not each.model_types), *FAMILIES):
        if _has_tokens(family, added):
            return _encode(tokenizer, family, transition, "token")
    return _encode(tokenizer, TEXT_MARKERS, transition, "text")


def _has_tokens(family: Family, added: dict[str, int]) -> bool:
    """Whether both markers begin and end with added tokens of this vocabulary."""
    return all(
        any(marker.startswith(token) for token in added) and any(token in marker for token in added)
        for marker in (family.start, family.end)
    )


def _encode(
    tokenizer: Encodes, family: Family, transition: str | None, by: Literal["token", "text"]
) -> Markers:
    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False)) if text else ()

    return Markers(
        family=family.name,
        start=family.start,
        end=family.end,
        start_ids=ids(family.start),
        end_ids=ids(family.end),
        transition_ids=ids(family.transition if transition is None else transition),
        by=by,
    )

