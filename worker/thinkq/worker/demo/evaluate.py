"""Measure the demo model on its evaluation set, greedy: the figures of the model card.

    python -m thinkq.worker.demo.evaluate

Every figure comes from decoding. "Never left" counts jobs whose thinking was still open after 512
tokens.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from typing import Literal

import msgspec

from thinkq.client.result import Result
from thinkq.worker.demo import evaluation, path
from thinkq.worker.engine import Engine

MAX_TOKENS = 512

# Elsewhere thinking may take everything; nothing watches for loops.
FREE = {"max_tokens": MAX_TOKENS, "answer_reserve": 0, "loop_guard": False}
SETUPS = {"free": FREE, "budget 96": FREE | {"thinking_token_budget": 96}, "defaults": {}}
"""Options of all jobs; `defaults` is what a user gets who sets nothing."""


def measure(engine: Engine, level: Literal["easy", "hard"], setup: str) -> dict[str, object]:
    """Shares of one set under one setup, and the distribution of its thinking lengths in tokens."""
    pairs = evaluation(level)
    results = engine.run([msgspec.structs.replace(job, **SETUPS[setup]) for job, _ in pairs])
    never_left = [setup == "free" and _took_everything(result) for result in results]
    right = [
        result.answer.strip() == answer and not lost
        for result, (_, answer), lost in zip(results, pairs, never_left, strict=True)
    ]
    lengths = sorted(result.usage.thinking_tokens for result in results)
    return {
        "set": level,
        "setup": setup,
        "jobs": len(results),
        "right": sum(right) / len(results),
        "never_left": sum(never_left) / len(results),
        "answered": sum(bool(result.answer.strip()) for result in results) / len(results),
        "closes": Counter(result.close_reason for result in results),
        "thinking_tokens": {
            "min": lengths[0],
            "quartiles": [round(cut) for cut in statistics.quantiles(lengths, n=4)],
            "p90": round(statistics.quantiles(lengths, n=10)[-1]),
            "max": lengths[-1],
        },
    }


def _took_everything(result: Result) -> bool:
    # The marker that is forced at the very end, and what comes of it, is none of the model's.
    return result.usage.thinking_tokens >= MAX_TOKENS - 1


def main() -> None:
    """Print one JSON line for each set and setup."""
    engine = Engine.load(str(path()), max_batch=16)
    for level in ("easy", "hard"):
        for setup in SETUPS:
            print(json.dumps(measure(engine, level, setup)), flush=True)


if __name__ == "__main__":
    main()
