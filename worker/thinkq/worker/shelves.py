"""Jobs that wait for another model than the loaded one.

A worker that meets such a job in a queue puts it aside: on a list for each queue and model, which
is an RQ queue by name, so that `rq info` counts it. When the model's turn comes, the jobs are taken
from there in their order. All workers share the shelves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from rq import Queue
from rq.job import Job as RQJob

from thinkq.client import keys, places
from thinkq.client.batches import text
from thinkq.worker.books import Books

MOST_AT_ONCE: Final = 200
"""Jobs put aside between two looks at all shelves, which are a second apart."""


class Shelves:
    """The shelves of all queues. Methods raise redis.RedisError when Redis fails."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._connection = books.connection
        self._models: dict[str, list[str]] = {queue.name: [] for queue in books.queues}
        self._room = MOST_AT_ONCE

    @property
    def full(self) -> bool:
        """Whether no more jobs may be put aside before the next look."""
        return self._room <= 0

    def look(self) -> None:
        """See what is on the shelves, and take empty ones out of RQ's list of queues."""
        self._room = MOST_AT_ONCE
        listed = places.queues(self._connection)
        for queue in self._books.queues:
            start = f"{queue.key}:"
            models = [key.removeprefix(start) for key in listed if key.startswith(start)]
            self._models[queue.name] = [
                model for model in models if not self._discarded(queue, model)
            ]

    def put(self, queue: Queue, job_id: str, model: str) -> None:
        """Put a job that was popped from the queue aside."""
        with self._connection.pipeline() as pipe:
            pipe.sadd(Queue.redis_queues_keys, _key(queue, model))
            pipe.rpush(_key(queue, model), job_id)
            pipe.lrem(queue.intermediate_queue_key, 1, job_id)
            pipe.execute()
        self._room -= 1
        if model not in self._models[queue.name]:
            self._models[queue.name].append(model)

    def pop(self, queue: Queue, models: Collection[str]) -> str | None:
        """The next job of these models; as with the queue, it is in the intermediate queue then."""
        for model in self._models[queue.name]:
            if model in models:
                moved = self._connection.lmove(
                    _key(queue, model), queue.intermediate_queue_key, "LEFT", "RIGHT"
                )
                if moved:
                    return text(moved)
        return None

    def waiting(self, queue: Queue, besides: Collection[str]) -> bool:
        """Whether jobs of the queue waited for other models at the last look, or since."""
        return any(model not in besides for model in self._models[queue.name])

    def next_model(self, besides: Collection[str]) -> str | None:
        """The model whose turn comes: that of the job which has waited longest, by priority."""
        for queue in self._books.queues:
            if heads := sorted(self._heads(queue, besides)):
                return heads[0][1]
        return None

    def _heads(self, queue: Queue, besides: Collection[str]) -> Iterator[tuple[str, str]]:
        """When the first job of each shelf was queued (ISO 8601), and the shelf's model."""
        for model in self._models[queue.name]:
            if model in besides:
                continue
            first = self._connection.lindex(_key(queue, model), 0)
            if first:
                queued = self._connection.hget(RQJob.key_for(text(first)), "enqueued_at")
                yield text(queued), model

    def _discarded(self, queue: Queue, model: str) -> bool:
        """Whether the shelf was empty and is gone."""
        key = _key(queue, model)
        with self._connection.pipeline() as pipe:
            pipe.watch(key)  # type: ignore[no-untyped-call]
            if self._connection.exists(key):
                return False
            pipe.multi()
            pipe.srem(Queue.redis_queues_keys, key)
            pipe.execute(raise_on_error=False)
        return True


def _key(queue: Queue, model: str) -> str:
    return str(Queue.redis_queue_namespace_prefix + keys.shelf(queue.name, model))
