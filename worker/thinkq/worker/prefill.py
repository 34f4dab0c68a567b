"""Prompts on their way into the batch: who may come in, and reading their prompts between turns.

Short prompts are read together in one padded pass; a long one is read alone, a piece between any
two turns, so that running rows do not stall. A row is let in only when its cache, grown to its full
length, fits beside the others: memory is never found out by crashing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thinkq.client.errors import JobFailed
from thinkq.worker import lm
from thinkq.worker.row import Row


@dataclass(eq=False)
class Group:
    """Rows whose prompts are being read: `done` ids of each are in the cache."""

    rows: list[Row]
    cache: lm.Cache
    done: int = 0

    @property
    def left(self) -> int:
        """Ids to read still, of the longest. The last id of a prompt is fed by the first turn."""
        return max(len(row.prompt.ids) for row in self.rows) - 1 - self.done


class Room:
    """Bytes of cache that the rows may take together.

    Rows of a batch are padded to the longest, so the batch takes rows times the longest row.
    """

    def __init__(self, cost: lm.KVCost, limit: int) -> None:
        self._cost, self._limit = cost, limit

    def check(self, row: Row) -> None:
        """Raise JobFailed (out_of_memory) for a row that would not fit even alone."""
        needed = self._cost.bytes(row.longest)
        if needed > self._limit:
            raise JobFailed(
                "out_of_memory",
                f"prompt and max_tokens together are {row.longest} tokens, "
                f"whose cache takes {needed / 1e9:.2f} GB of the "
                f"{max(0, self._limit) / 1e9:.2f} GB that are free; "
                "lower max_tokens or raise memory_limit_gb",
            )

    def fits(self, rows: Sequence[Row]) -> bool:
        """Whether these rows can decode together."""
        return len(rows) * self._cost.bytes(max(row.longest for row in rows)) <= self._limit


class Prefill:
    """The rows that wait, in order, and the group whose prompts are being read.

    Args:
        model: An mlx-lm model.
        batches: Whether its rows can share a batch.
        room: What the caches may take.
    """

    def __init__(self, model: Any, *, batches: bool, room: Room) -> None:
        self._model, self._batches, self._room = model, batches, room
        self._waiting: deque[Row] = deque()
        self._group: Group | None = None

    def __len__(self) -> int:
        return len(self._waiting) + (len(self._group.rows) if self._group else 0)

    def add(self, row: Row) -> None:
        """Take in a row. Raises JobFailed if it can never run here."""
        self._room.check(row)
        self._waiting.append(row)

    def take_ended(self) -> list[Row]:
        """Rows that were cancelled before their prompt was read; they leave."""
        ended = [row for row in self._waiting if row.ended is not None]
        if ended:
            self._waiting = deque(row for row in self._waiting if row.ended is None)
        if self._group and all(row.ended is not None for row in self._group.rows):
            ended += self._group.rows
            self._group = None
        return ended

    def step(self, running: Sequence[Row], tokens: int) -> Group | None:
        """Read up to so many tokens; returns a group when its prompts are read."""
        group = self._group = self._group or self._next(running, tokens)
        if group is None:
            return None
        until = group.done + min(tokens, group.left)
        lm.read(
            self._model,
            [row.prompt.ids[:-1][group.done : until] for row in group.rows],
            group.cache,
        )
        group.done = until
        if group.left > 0:
            return None
        self._group = None
        return group

    def _next(self, running: Sequence[Row], tokens: int) -> Group | None:
        """The next rows in order that fit beside those running.

        Their padded prompts fit one step together; the first may be longer than a step.
        """
        rows: list[Row] = []
        while self._waiting:
            candidates = [*rows, self._waiting[0]]
            padded = len(candidates) * max(len(row.prompt.ids) for row in candidates)
            if rows and (padded > tokens or not self._batches):
                break
            if not self._room.fits([*running, *candidates]) and (rows or running):
                break
            rows = candidates
            self._waiting.popleft()
        if not rows:
            return None
        caches = [lm.new_cache(self._model) for _ in rows]
        return Group(rows, lm.as_batch(caches))
