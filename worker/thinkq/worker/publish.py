"""The way of a job's text from the decode thread into its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal

import redis

from thinkq.client import keys
from thinkq.client.events import Event

COALESCE_CHARS: Final = 512
"""Text of this length is published without waiting for more."""


class Deltas:
    """What one job's model writes. The decode thread adds to it, the main thread takes from it.

    It keeps the whole text: after an outage of Redis nobody knows which entries arrived, so the
    stream is begun anew.
    """

    def __init__(
        self,
        job_id: str,
        *,
        attempt: int,
        opening: Literal["start", "restart"],
        coalesce_s: float,
        wake: Callable[[], None],
    ) -> None:
        self.stream = keys.stream(job_id)
        self._attempt = attempt
        self._opening: Literal["start", "restart"] | None = opening
        self._coalesce_s = coalesce_s
        self._wake = wake
        self._pieces: list[tuple[str, bool]] = []
        self._taken = 0
        self._chars = 0
        self._taken_chars = 0
        self._taken_at = 0.0
        self._closed = False

    def add(self, text: str, is_reasoning: bool) -> None:
        """Add a piece of text (in the decode thread; takes no lock but to wake the main thread)."""
        self._pieces.append((text, is_reasoning))
        self._chars += len(text)
        if len(self._pieces) == 1 or self._full:
            self._wake()

    def close(self) -> None:
        """No text will follow: what waits is due at once."""
        self._closed = True

    def due(self, now: float) -> bool:
        """Whether there is something to publish, and no reason to wait for more of it."""
        if self._opening:
            return True
        if self._taken == len(self._pieces):
            return False
        first = self._taken == 0
        return first or self._full or self._closed or now - self._taken_at >= self._coalesce_s

    def take(self, now: float) -> Iterator[Event]:
        """The entries to publish: runs of thinking or answer as one delta each."""
        if self._opening:
            yield Event(type=self._opening, attempt=self._attempt)
            self._opening = None
        waiting = self._pieces[self._taken :]
        self._taken += len(waiting)
        self._taken_at = now
        for is_reasoning, run in groupby(waiting, key=itemgetter(1)):
            text = "".join(piece for piece, _ in run)
            self._taken_chars += len(text)
            yield Event(type="delta", text=text, is_reasoning=is_reasoning, attempt=self._attempt)

    def rewind(self) -> None:
        """Publish everything again, after a `restart`."""
        self._opening = "restart"
        self._taken = self._taken_chars = 0

    @property
    def _full(self) -> bool:
        return self._chars - self._taken_chars >= COALESCE_CHARS


def publish(connection: redis.Redis, streams: Iterable[Deltas], now: float) -> None:
    """Publish what is due, in one transaction. After an error, `rewind` the streams."""
    due = [deltas for deltas in streams if deltas.due(now)]
    if not due:
        return
    with connection.pipeline() as pipeline:
        for deltas in due:
            add_entries(pipeline, deltas.stream, deltas.take(now))
        pipeline.execute()


def add_entries(pipeline: redis.client.Pipeline, stream: str, events: Iterable[Event]) -> None:
    """Add the commands that append these events to a stream."""
    for event in events:
        opening = event.type in ("start", "restart")
        if opening:
            # A job that runs once more may have an old stream that was about to expire.
            pipeline.persist(stream)
        entry: dict[Any, Any] = {**event.fields()}  # redis-py's types are invariant.
        # Text goes on with a stream and never begins one: it was removed, or is somebody else's.
        pipeline.xadd(stream, entry, nomkstream=not opening)
