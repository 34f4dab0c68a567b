"""Files of jobs, and the rows that came of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_jobs(path: Path, topic: str, number: int = 3, **fields: Any) -> None:
    """A file of jobs that only this topic has, c1, c2 and so on."""
    lines = [
        {"messages": [{"role": "user", "content": f"{topic} {n}"}], "custom_id": f"c{n}"} | fields
        for n in range(1, number + 1)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a result file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def lines_of(path: Path) -> list[int]:
    """The input lines of these rows."""
    return [row["line"] for row in rows(path)]


def results_of(jobs: Path) -> Path:
    """Where `thinkq run` writes the rows of a file."""
    return jobs.with_name(f"{jobs.name}.results.jsonl")
