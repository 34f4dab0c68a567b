"""Tiny models with random weights, one for each kind of cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models import gemma3_text, gpt_oss, qwen3, qwen3_5

VOCABULARY = 262


def _qwen3() -> Any:
    return qwen3.Model(
        qwen3.ModelArgs(
            model_type="qwen3",
            hidden_size=64,
            num_hidden_layers=2,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            rms_norm_eps=1e-6,
            vocab_size=VOCABULARY,
            max_position_embeddings=4096,
            rope_theta=10_000.0,
            tie_word_embeddings=False,
        )
    )


def _qwen3_5() -> Any:
    text = {
        "model_type": "qwen3_5_text",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.25,
        },
    }
    return qwen3_5.Model(
        qwen3_5.ModelArgs.from_dict({"model_type": "qwen3_5", "text_config": text})
    )


def _gemma3() -> Any:
    return gemma3_text.Model(
        gemma3_text.ModelArgs(
            model_type="gemma3_text",
            hidden_size=64,
            num_hidden_layers=4,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            vocab_size=VOCABULARY,
            sliding_window=24,
            sliding_window_pattern=2,
            max_position_embeddings=4096,
        )
    )


def _gpt_oss() -> Any:
    return gpt_oss.Model(
        gpt_oss.ModelArgs(
            model_type="gpt_oss",
            hidden_size=64,
            num_hidden_layers=4,
            intermediate_size=64,
            num_local_experts=4,
            num_experts_per_tok=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            vocab_size=VOCABULARY,
            sliding_window=24,
            rope_theta=10_000,
        )
    )


TINY: dict[str, Callable[[], Any]] = {
    "qwen3": _qwen3,
    "qwen3_5": _qwen3_5,
    "gemma3": _gemma3,
    "gpt_oss": _gpt_oss,
}


def tiny_model(kind: str) -> Any:
    """A model of this kind, the same weights each time."""
    mx.random.seed(1)
    model = TINY[kind]()
    mx.eval(model.parameters())
    return model
