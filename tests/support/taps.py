"""Wire taps: what a row commits, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from thinkq.client.job import Job
from thinkq.worker.engine import Engine
from thinkq.worker.row import Row


def tap(row: Row) -> list[int]:
    """A list that fills with the ids that the row commits."""
    ids: list[int] = []
    observe = row.tracker.observe_token

    def tapped(token: int, sampled: int | None = None) -> bool:
        ids.append(token)
        return observe(token, sampled)

    row.tracker.observe_token = tapped  # type: ignore[method-assign]
    return ids


def run_tapped(engine: Engine, jobs: Sequence[Job]) -> list[tuple[list[int], list[int]]]:
    """Run jobs, letting each in as a row gets free.

    Returns for each job its prompt's ids and those it committed.
    """
    taps: list[tuple[list[int], list[int]]] = []
    for i, job in enumerate(jobs):
        while engine.free < 1:
            engine.turn()
        row = engine.add(job, job_id=str(i))
        taps.append((row.prompt.ids, tap(row)))
    while engine.busy:
        engine.turn()
    return taps
