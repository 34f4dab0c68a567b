"""The shipped demo model: a reasoning model of 1.7 million parameters that runs anywhere.

It thinks about small problems, answers them, and on problems beyond its training it often fails to
stop thinking: everything that thinkq does about that can be seen and tested without a download.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from thinkq.client.job import Job, Message


def path() -> Path:
    """The directory with its weights, config and tokenizer, as mlx-lm loads it."""
    return Path(__file__).parent / "model"


def evaluation(level: Literal["easy", "hard"]) -> list[tuple[Job, str]]:
    """The fixed evaluation set: jobs with the right answer.

    `easy` is drawn as in training, `hard` lies beyond it. None of these questions was trained on.
    """
    lines = (path() / "evaluation.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["level"] == level]
    return [
        (Job(messages=[Message(role="user", content=row["question"])]), row["answer"])
        for row in rows
    ]
