"""Measure the demo model on its evaluation set, greedy: the figures of the model card.

    python -m thinkq.worker.demo.evaluate

Every figure comes from decoding. "Never left" counts jobs whose thinking was still open after 512
tokens.
"""

from __future__ import annotations

import json
import statistics
from typing import Literal

import msgspec

from thinkq.client.result import Result
from thinkq.worker.demo import evaluation, path
from thinkq.worker.engine import Engine

MAX_TOKENS = 512


def measure(
    engine: Engine, level: Literal["easy", "hard"], budget: int | None
) -> dict[str, object]:
    """Shares of one set, and the distribution of its thinking lengths in tokens."""
    pairs = evaluation(level)
    # No reserve: without a budget thinking may take everything, as it does elsewhere.
    limits = {
        "max_tokens": MAX_TOKENS,
        "answer_reserve": 0,
        "thinking_token_budget": budget,
        "loop_guard": False,
    }
    results = engine.run([msgspec.structs.replace(job, **limits) for job, _ in pairs])
    lengths = sorted(result.usage.thinking_tokens for result in results)
    return {
        "set": level,
        "budget": budget,
        "jobs": len(results),
        "right": sum(
            _right(result, answer) for result, (_, answer) in zip(results, pairs, strict=True)
        )
        / len(results),
        "never_left": sum(_never_left(result, budget) for result in results) / len(results),
        "answered": sum(bool(result.answer) for result in results) / len(results),
        "thinking_tokens": {
            "min": lengths[0],
            "quartiles": [round(cut) for cut in statistics.quantiles(lengths, n=4)],
            "p90": round(statistics.quantiles(lengths, n=10)[-1]),
            "max": lengths[-1],
        },
    }


def _right(result: Result, answer: str) -> bool:
    # Without a budget an answer that comes only because thinking was cut off at the end is none of
    # the model's.
    return result.answer.strip() == answer and not _never_left(result, None)


def _never_left(result: Result, budget: int | None) -> bool:
    """Whether the thinking took all of max_tokens."""
    return budget is None and result.usage.thinking_tokens >= MAX_TOKENS - 1


def main() -> None:
    """Print one JSON line for each set and budget."""
    engine = Engine.load(str(path()), max_batch=16)
    for level in ("easy", "hard"):
        for budget in (None, 96):
            print(json.dumps(measure(engine, level, budget)), flush=True)


if __name__ == "__main__":
    main()
