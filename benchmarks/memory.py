"""Memory over many jobs: is it flat once the engine is warm?

    python benchmarks/memory.py [--jobs 2000] [--json]

Decodes jobs of the demo model's easy and hard sets with budgets through one engine. Prints, each
200 jobs, what MLX holds (active, and its cache of free buffers) and the process's resident size.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import msgspec

from thinkq.client.job import Job
from thinkq.client.settings import load_settings
from thinkq.worker.demo import evaluation
from thinkq.worker.engine import Engine

ROWS = 16
STEP = 200


def jobs() -> Iterator[Job]:
    """Easy and hard jobs in turns, some with a budget."""
    pairs = zip(cycle(evaluation("easy")), cycle(evaluation("hard")), strict=False)
    for i, ((easy, _), (hard, _)) in enumerate(pairs):
        yield easy
        yield msgspec.structs.replace(hard, thinking_token_budget=i % 200)


def resident_mb() -> float:
    """Megabytes of the process in memory now; its peak where the system does not say."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def measure(count: int) -> list[dict[str, Any]]:
    """A line for each STEP jobs that have ended."""
    engine = Engine.load("demo", max_batch=ROWS, settings=load_settings({}))
    lines, ended = [], 0
    queue = islice(jobs(), count)
    while ended < count:
        while engine.free > 0 and (job := next(queue, None)) is not None:
            engine.add(job, job_id="memory")
        for _ in engine.turn():
            ended += 1
            if ended % STEP == 0:
                lines.append(
                    {
                        "jobs": ended,
                        "active_mb": round(mx.get_active_memory() / 1e6, 1),
                        "cache_mb": round(mx.get_cache_memory() / 1e6, 1),
                        "resident_mb": round(resident_mb(), 1),
                    }
                )
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Memory over many jobs.")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for line in measure(arguments.jobs):
        print(
            json.dumps(line) if arguments.json else "  ".join(f"{k} {v}" for k, v in line.items())
        )


if __name__ == "__main__":
    main()
