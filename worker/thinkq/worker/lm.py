"""Everything thinkq uses of mlx-lm, in one place: loading, caches, and facts about a model.

Relied upon (mlx-lm 0.32, checked by tests/worker/test_lm.py): `load` returns model,
TokenizerWrapper and config; `make_prompt_cache` gives one cache a layer; a cache's `merge` makes a
batch of single rows; batch caches have `filter(indices)` and `extend(other)`; `model(ids,
cache=...)` returns logits (rows, ids, vocabulary).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import load as mlx_load

from thinkq.client.errors import JobFailed
from thinkq.worker import demo, hub
from thinkq.worker.task import Note, no_note

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
        stated: Any = (
            self.config.get("vocab_size")
            or text_config.get("vocab_size")
            or getattr(args, "vocab_size", 0)
        )
        return max(int(stated), len(self.hf_tokenizer))

    @property
    def hf_tokenizer(self) -> Any:
        """The Hugging Face tokenizer inside mlx-lm's wrapper."""
        return self.tokenizer._tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a sequence."""
        return frozenset(self.tokenizer.eos_token_ids)


def load(name: str, note: Note = no_note) -> LoadedModel:
    """Load `demo`, a path, or a model of the hub. Raises JobFailed (unknown_model)."""
    try:
        path = demo.path() if name == "demo" else hub.fetch(name, note)
        loaded = mlx_load(str(path), return_config=True)
        model, tokenizer, config = loaded  # type: ignore[misc]  # three, as return_config asks
    except Exception as error:  # mlx-lm and the hub raise whatever their own libraries do
        reason = str(error).partition("\n")[0][:300]
        raise JobFailed(
            "unknown_model",
            f"the model {name!r} cannot be loaded ({reason}); "
            "give a hub name or a path that mlx-lm can load",
        ) from error
    return LoadedModel(model, tokenizer, name, config, _generation_config(path))


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


def as_batch(caches: Sequence[Cache]) -> Cache:
    """A batch of these rows. One row stays as it is: its kernels are faster than a batch's."""
    if len(caches) == 1:
        return caches[0]
    return [layers[0].merge(list(layers)) for layers in zip(*caches, strict=True)]


def batched(cache: Cache) -> Cache:
    """The cache of a single row as a batch of one, to which others can be joined."""
    return [layer.merge([layer]) for layer in cache]


def join(batch: Cache, other: Cache) -> None:
    """Append the rows of another batch, in place."""
    for layer, more in zip(batch, other, strict=True):
        layer.extend(more)


def keep(batch: Cache, rows: Sequence[int]) -> None:
    """Keep only these rows, in place."""
    for layer in batch:
        layer.filter(list(rows))


def forward(model: Any, ids: mx.array, cache: Cache) -> mx.array:
    """Logits after the last id of each row, (rows, vocabulary), from ids (rows, length)."""
    logits: mx.array = model(ids, cache=cache)
    return logits[:, -1, :]


def read(model: Any, prompts: Sequence[Sequence[int]], cache: Cache) -> None:
    """Put ids into the cache, a list for each row, and wait until they are in.

    Lists are padded on the right to one length.
    """
    longest = max(map(len, prompts))
    padding = [longest - len(ids) for ids in prompts]
    if any(padding):
        for layer in cache:
            layer.prepare(lengths=[len(ids) for ids in prompts], right_padding=padding)
    if longest:
        # The logits are never computed: nothing asks for them.
        model(
            mx.array([[*ids, *[0] * pad] for ids, pad in zip(prompts, padding, strict=True)]),
            cache=cache,
        )
    if any(padding):
        for layer in cache:
            layer.finalize()
    mx.eval([layer.state for layer in cache])


@dataclass(frozen=True)
class KVCost:
    """Bytes that one row's cache takes, as a function of its tokens.

    `fixed` bytes whatever its length, and for each kind of layer bytes a token up to so many
    tokens.
    """

    fixed: int
    layers: tuple[tuple[int, float], ...]

    def bytes(self, tokens: int) -> int:
        """For a row of so many tokens; caches grow in steps of 256."""
        steps = -(-tokens // 256) * 256
        return self.fixed + sum(int(each * min(steps, most)) for each, most in self.layers)


def kv_cost(model: Any) -> KVCost:
    """Measured on a cache that holds one token."""
    cache = new_cache(model)
    read(model, [[0]], cache)
    fixed, layers = 0, []
    for layer in _flat(cache):
        keys = getattr(layer, "keys", None)
        if isinstance(keys, mx.array) and keys.ndim == 4:
            each = layer.nbytes // keys.shape[2]
            layers.append((each, getattr(layer, "max_size", None) or float("inf")))
        else:
            fixed += layer.nbytes
    return KVCost(fixed, tuple(layers))


def _flat(cache: Sequence[Any]) -> list[Any]:
    return [
        each
        for layer in cache
        for each in (_flat(layer.caches) if hasattr(layer, "caches") else [layer])
    ]


def memory_limit() -> int:
    """Bytes that the device should hold at most.

    Metal's own recommendation, else three quarters of memory.
    """
    info = mx.device_info()
    if recommended := info.get("max_recommended_working_set_size"):
        return int(recommended)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
