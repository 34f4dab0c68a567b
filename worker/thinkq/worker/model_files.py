"""What a model's files say about it, without loading it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from thinkq.worker import families, lm

Enforcement = Literal["token", "text", "none"]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A model as it lies on the disk."""

    weights_bytes: int = 0
    """Size of the weights, which is about what they take in memory."""
    architecture: str | None = None
    """`model_type` of its config.json."""
    quantization: str | None = None
    """Such as `4-bit` or `mxfp4`; of weights that are not quantised their type, as `bfloat16`."""
    supported: bool = False
    """Whether mlx-lm has code for it."""
    family: str | None = None
    """How it marks its thinking: a row of the table of families."""
    budget: Enforcement = "none"
    """How a thinking budget is enforced: by control tokens, by text, or not at all."""
    problem: str | None = None
    """Why it cannot be used as it is, and what to do."""


def read_facts(directory: Path) -> ModelFacts:
    """The facts about the model in a directory. Never raises for what is missing or broken."""
    config = _read_json(directory / "config.json")
    if not isinstance(config, dict) or not config.get("model_type"):
        return ModelFacts(problem="no config.json with a model_type: this is no model of mlx-lm")
    weights = list(directory.glob("model*.safetensors"))
    tokens = _tokens(directory)
    family = families.choose(tokens, config.get("thinkq_family") or config["model_type"])
    by: Enforcement = "token" if family.is_known_to(tokens) else "text"
    supported = lm.supports(config)
    return ModelFacts(
        weights_bytes=sum(_size(file) for file in weights),
        architecture=str(config["model_type"]),
        quantization=_quantization(config),
        supported=supported,
        family=family.name if tokens else None,
        budget=by if tokens else "none",
        problem=_problem(directory, weights, tokens, supported),
    )


def _problem(
    directory: Path, weights: Collection[Path], tokens: Collection[str], supported: bool
) -> str | None:
    """The first thing that keeps the model from being used."""
    if not supported:
        return "mlx-lm has no code for this architecture"
    missing = _named_shards(directory) - {file.name for file in weights if file.exists()}
    if not weights or missing:
        return "weights are missing; the first job that names it downloads them"
    if not tokens:
        return "no tokenizer.json; how it thinks is known only once it is loaded"
    if not _has_template(directory):
        return "no chat template; use the chat or instruct version of the model"
    return None


def _named_shards(directory: Path) -> set[str]:
    """The files that the index of a model in several files names; a download may lack some."""
    index = _read_json(directory / "model.safetensors.index.json")
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    return set(map(str, weight_map.values())) if isinstance(weight_map, dict) else set()


def _has_template(directory: Path) -> bool:
    if any((directory / name).exists() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    config = _read_json(directory / "tokenizer_config.json")
    names = ("chat_template", "chat_template_type")
    return isinstance(config, dict) and any(config.get(name) for name in names)


class _AddedToken(msgspec.Struct):
    content: str


class _Tokenizer(msgspec.Struct):
    added_tokens: list[_AddedToken] = []
    model: dict[str, Any] = {}


_tokenizer_decoder = msgspec.json.Decoder(_Tokenizer)


def _tokens(directory: Path) -> frozenset[str]:
    """Every token of the tokenizer; empty if there is none that can be read."""
    try:
        tokenizer = _tokenizer_decoder.decode((directory / "tokenizer.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return frozenset()
    vocabulary = tokenizer.model.get("vocab", {})
    # Unigram tokenizers list their tokens with scores.
    own = vocabulary if isinstance(vocabulary, dict) else (str(entry[0]) for entry in vocabulary)
    return frozenset(own) | {token.content for token in tokenizer.added_tokens}


def _quantization(config: Mapping[str, Any]) -> str | None:
    stated = config.get("quantization") or config.get("quantization_config") or {}
    if isinstance(stated, dict) and stated:
        mode = stated.get("mode") or stated.get("quant_method")
        bits = stated.get("bits")
        return f"{bits}-bit" if bits and mode in (None, "affine") else str(mode or "quantised")
    text = config.get("text_config")
    kinds = [config, text if isinstance(text, dict) else {}]
    names = [each.get(name) for each in kinds for name in ("torch_dtype", "dtype")]
    return next((str(name) for name in names if name), None)


def _read_json(path: Path) -> Any:
    """The file's content; None if it is not there or is no JSON."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def _size(file: Path) -> int:
    # A link of the cache may lead nowhere.
    return file.stat().st_size if file.exists() else 0
