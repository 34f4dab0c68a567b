"""Train the demo model from nothing: tokenizer, weights, and the evaluation set, into `model/`.

    python -m thinkq.worker.demo.train --out model

Everything follows from SEED and the step number, so a run that was stopped goes on from its
checkpoint as if it had not been. On Linux preload OpenBLAS (LD_PRELOAD=.../libopenblas.so.0): MLX's
CPU wheel carries a reference BLAS that is several times slower.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import qwen3
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from thinkq.worker.demo import tasks

SEED = 20
STEPS = 3600
TOKENS_PER_BATCH = 4608
LENGTHS = (48, 64, 96, 128, 192, 256, 384, 512)
"""Samples are padded to the next of these, and each batch holds samples of one length."""
PEAK_RATE, WARM_UP = 2e-3, 100
EVALUATION = {"easy": 200, "hard": 100}

START, END, THINK, CLOSE = "<|im_start|>", "<|im_end|>", "<think>", "</think>"
SPECIALS = ("<|endoftext|>", START, END, THINK, CLOSE)

CONFIG = {
    "thinkq_family": "thinkq-demo",
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 192,
    "num_hidden_layers": 4,
    "intermediate_size": 512,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": 576,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}

CHAT_TEMPLATE = """\
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content and loop.last %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content + '<|im_end|>\\n' }}
    {%- elif message.role in ('system', 'user') %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- else %}
        {{- raise_exception('The demo model knows no role ' + message.role + '.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- else %}
        {{- '<think>\\n' }}
    {%- endif %}
{%- endif %}
"""

# Single digits; words with the separator before them and, before a digit, the space after them.
PIECES = Regex(r"\p{N}|,? ?\p{L}+(?: (?=\p{N}))?| ?[^\s\p{L}\p{N}]+(?: (?=\p{N}))?|\s+")


def render(sample: tasks.Sample) -> tuple[str, str, str]:
    """Prompt, thinking and answer of a conversation, as the template writes them."""
    system = f"{START}system\n{sample.system}{END}\n" if sample.system else ""
    prompt = f"{system}{START}user\n{sample.question}{END}\n{START}assistant\n{THINK}\n"
    if sample.thinking is None:
        return f"{prompt}\n{CLOSE}\n\n", "", sample.answer + END
    return prompt, sample.thinking, sample.answer + END


def build_tokenizer(vocab_size: int) -> Tokenizer:
    """A byte-level BPE that takes any text, trained on the tasks' own words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(SEED)
    corpus = []
    for _ in range(20_000):
        sample = tasks.training_sample(rng)
        corpus += [sample.question, sample.thinking or "", sample.answer, sample.system or ""]
        corpus += ["user", "assistant", "system"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIALS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, sample: tasks.Sample) -> tuple[list[int], list[int]]:
    """Token ids of a conversation, and for each id whether its prediction counts (1) or not (0).

    Only what the model itself writes counts. Where the thinking is cut, the close does not count
    either: the model learns to answer after a close, never to close at random.
    """
    prompt, thinking, answer = render(sample)
    ids = tokenizer.encode(prompt).ids
    counts = [0] * len(ids)
    if thinking:
        thought = tokenizer.encode(thinking).ids
        close = tokenizer.encode(CLOSE).ids
        cut = sample.cut is not None
        if sample.cut is not None:
            thought = thought[: int(len(thought) * sample.cut)]
        ids += thought + close
        counts += [int(not cut)] * (len(thought) + len(close))
        gap = tokenizer.encode("\n\n").ids
        ids += gap
        counts += [1] * len(gap)
    end = tokenizer.encode(answer).ids
    return ids + end, counts + [1] * len(end)


class Stream:
    """Batches of equal length, a function of the seed and the step alone."""

    def __init__(self, tokenizer: Tokenizer, exclude: frozenset[str]) -> None:
        self.tokenizer, self.exclude = tokenizer, exclude

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Token ids and weights, both (rows, length), for one step."""
        rng = random.Random(f"{SEED}:{step}")
        # A batch of long samples holds fewer of them, so it comes up more often in proportion.
        length = self._draw(rng)[0]
        while rng.random() > length / LENGTHS[-1]:
            length = self._draw(rng)[0]
        rows: list[tuple[list[int], list[int]]] = []
        while len(rows) < TOKENS_PER_BATCH // length:
            size, tokens, counts = self._draw(rng)
            if size == length:
                rows.append((tokens, counts))
        ids = np.zeros((len(rows), length), np.int32)
        weights = np.zeros((len(rows), length), np.float32)
        for i, (tokens, counts) in enumerate(rows):
            ids[i, : len(tokens)] = tokens
            weights[i, : len(counts)] = counts
        return ids, weights

    def _draw(self, rng: random.Random) -> tuple[int, list[int], list[int]]:
        while True:
            tokens, counts = encode(self.tokenizer, tasks.training_sample(rng, self.exclude))
            for length in LENGTHS:
                if len(tokens) <= length:
                    return length, tokens, counts


def evaluation_lines() -> list[dict[str, str]]:
    """The fixed evaluation set: distinct questions from a seed of its own, never trained on."""
    rng = random.Random("evaluation")
    lines: list[dict[str, str]] = []
    seen: set[str] = set()
    for level, count in EVALUATION.items():
        draw = tasks.easy_problem if level == "easy" else tasks.hard_problem
        while count:
            problem = draw(rng)
            # Training leaves these out; of a kind with few questions it must not lose a tenth.
            if problem.question in seen or (problem.size < 2 and problem.kind != "letters"):
                continue
            seen.add(problem.question)
            lines.append(
                {
                    "level": level,
                    "kind": problem.kind,
                    "question": problem.question,
                    "answer": problem.answer,
                }
            )
            count -= 1
    return lines


def loss_fn(model: nn.Module, ids: mx.array, weights: mx.array) -> mx.array:
    """Mean cross-entropy over the tokens that count."""
    losses = nn.losses.cross_entropy(model(ids[:, :-1]), ids[:, 1:], reduction="none")
    return (losses * weights[:, 1:]).sum() / weights[:, 1:].sum()


def train(out: Path, steps: int) -> None:
    """Write the tokenizer and the evaluation set, then train; a checkpoint every 200 steps."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(int(CONFIG["vocab_size"]))  # type: ignore[call-overload]
    lines = evaluation_lines()
    save_static(out, tokenizer, lines)
    stream = Stream(tokenizer, frozenset(line["question"] for line in lines))

    mx.random.seed(SEED)
    model = qwen3.Model(qwen3.ModelArgs.from_dict(CONFIG))
    mx.eval(model.parameters())
    schedule = optim.join_schedules(
        [
            optim.linear_schedule(0.0, PEAK_RATE, WARM_UP),
            optim.cosine_decay(PEAK_RATE, steps - WARM_UP, 2e-5),
        ],
        [WARM_UP],
    )
    optimizer = optim.AdamW(schedule, betas=[0.9, 0.98], weight_decay=0.05)
    optimizer.init(model.trainable_parameters())
    step, checkpoint = 0, out / "checkpoint.safetensors"
    state: dict[str, mx.array]
    if checkpoint.exists():
        state = mx.load(str(checkpoint))  # type: ignore[assignment]  # a .safetensors is a dict
        model.update(tree_unflatten([(k[2:], v) for k, v in state.items() if k.startswith("m.")]))
        optimizer.state = tree_unflatten(
            [(k[2:], v) for k, v in state.items() if k.startswith("o.")]
        )
        step = int(optimizer.state["step"].item())
        print(f"going on from step {step}")
    gradient = nn.value_and_grad(model, loss_fn)
    began, seen, running = time.monotonic(), 0, 0.0
    while step < steps:
        ids, weights = stream.batch(step)
        loss, grads = gradient(model, mx.array(ids), mx.array(weights))
        grads, _ = optim.clip_grad_norm(grads, 1.0)
        optimizer.update(model, grads)
        mx.eval(loss, model.parameters(), optimizer.state)
        step, seen = step + 1, seen + int(weights.sum())
        running = loss.item() if running == 0.0 else 0.97 * running + 0.03 * loss.item()
        if step % 25 == 0:
            print(f"step {step} loss {running:.4f} {time.monotonic() - began:.0f} s", flush=True)
        if step % 200 == 0 or step == steps:
            parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
            state = {f"m.{k}": v for k, v in parameters.items()}
            state |= {f"o.{k}": v for k, v in dict(tree_flatten(optimizer.state)).items()}
            mx.save_safetensors(str(checkpoint.with_stem("checkpoint.new")), state)
            checkpoint.with_stem("checkpoint.new").replace(checkpoint)
            mx.save_safetensors(str(out / "model.safetensors"), parameters, {"format": "mlx"})


def save_static(out: Path, tokenizer: Tokenizer, lines: list[dict[str, str]]) -> None:
    """Everything beside the weights: config, tokenizer, chat template, evaluation set."""
    (out / "config.json").write_text(
        json.dumps(
            CONFIG | {"eos_token_id": tokenizer.token_to_id(END), "torch_dtype": "float32"},
            indent=2,
        )
        + "\n",
        encoding="utf-8",
    )
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": END,
                "pad_token": SPECIALS[0],
                "model_max_length": CONFIG["max_position_embeddings"],
                "clean_up_tokenization_spaces": False,
                "chat_template": CHAT_TEMPLATE,
            },
            indent=2,
        )
        + "\n",
        encoding="utf-8",
    )
    (out / "evaluation.jsonl").write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "model")
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    train(arguments.out, arguments.steps)
