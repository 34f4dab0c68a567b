"""Everything thinkq uses of mlx-lm, in one place: loading, caches, and facts about a model.

Relied upon (mlx-lm 0.32, checked by tests/worker/test_lm.py): `load` returns model, TokenizerWrapper and
config; `make_prompt_cache` gives one cache a layer; a cache's `merge` makes a batch of single rows; batch
caches have `filter(indices)` and `extend(other)`; `model(ids, cache=...)` returns logits (rows, ids, vocabulary).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import load as mlx_load

from thinkq.client.errors import JobFailed
from thinkq.worker import demo

Cache = list[Any]
"""One cache object a layer."""


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, and what their files say about them."""

    model: Any
    tokenizer: Any
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    generation_config: dict[str, Any] = field(default_factory=dict)

    @property
    def model_type(self) -> str | None:
        """The family name that the config states, else its architecture."""
        args = getattr(self.model, "args", None)
        stated = self.config.get("thinkq_family") or self.config.get("model_type")
        return stated or getattr(args, "model_type", None)

    @property
    def context(self) -> int:
        """Positions that the model has, prompt and output together."""
        args = getattr(self.model, "args", None)
        text_config = self.config.get("text_config") or getattr(args, "text_config", None) or {}
        for source in (self.config, text_config, vars(args) if args else {}):
            if positions := source.get("max_position_embeddings"):
                return int(positions)
        return 1 << 20

    @property
    def vocabulary(self) -> int:
        """How many ids the model knows; often more than the tokenizer."""
        args = getattr(self.model, "args", None)
        text_config = self.config.get("text_config") or getattr(args, "text_config", None) or {}
        stated = self.config.get("vocab_size") or text_config.get("vocab_size") or getattr(args, "vocab_size", 0)
        return max(int(stated), len(self.hf_tokenizer))

    @property
    def hf_tokenizer(self) -> Any:
        """The Hugging Face tokenizer inside mlx-lm's wrapper."""
        return self.tokenizer._tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a sequence."""
        return frozenset(self.tokenizer.eos_token_ids)


def load(name: str) -> LoadedModel:
    """Load `demo`, a path, or a model of the hub. Raises JobFailed (unknown_model)."""
    path = str(demo.path()) if name == "demo" else name
    try:
        model, tokenizer, config = mlx_load(path, return_config=True)
    except Exception as error:  # mlx-lm and the hub raise whatever their own libraries do
        reason = str(error).partition("\n")[0][:300]
        raise JobFailed(
            "unknown_model", f"the model {name!r} cannot be loaded ({reason}); give a hub name or a path that mlx-lm can load"
        ) from error
    return LoadedModel(model, tokenizer, name, config, _generation_config(Path(path)))


def in_hand(model: Any, tokenizer: Any) -> LoadedModel:
    """A model and tokenizer that are loaded already; a bare Hugging Face tokenizer is wrapped."""
    if not isinstance(tokenizer, TokenizerWrapper):
        tokenizer = TokenizerWrapper(tokenizer)
    name = getattr(getattr(model, "args", None), "model_type", None) or type(model).__name__
    return LoadedModel(model, tokenizer, name)


def _generation_config(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((path / "generation_config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config


def new_cache(model: Any) -> Cache:
    """An empty cache for one row."""
    return list(make_prompt_cache(model))


def can_batch(cache: Cache) -> bool:
    """Whether rows of this model can share a batch."""
    return all(hasattr(layer, "merge") for layer in cache)


def as_batch(cache: Cache) -> Cache:
    """A batch of one row, to which others can be joined."""
    return [layer.merge([layer]) for layer in cache]


def join(batch: Cache, other: Cache) -> None:
    """Append the rows of another batch, in place."""
    for layer, more in zip(batch, other, strict=True):
        layer.extend(more)


def keep(batch: Cache, rows: Sequence[int]) -> None:
    """Keep only these rows, in place."""
    for layer in batch:
        layer.filter(list(rows))


def state(cache: Cache) -> list[Any]:
    """The arrays of a cache, for mx.eval."""
    return [layer.state for layer in cache]


def forward(model: Any, ids: mx.array, cache: Cache) -> mx.array:
    """Logits after the last id of each row, (rows, vocabulary), from ids (rows, length)."""
    logits: mx.array = model(ids, cache=cache)
    return logits[:, -1, :]
