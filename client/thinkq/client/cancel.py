"""Cancel jobs: those that wait end at once, those that run are told to stop.

A job that waits gets its result here, by the same script as every other result, before its id
leaves the queue. So whenever this process dies, each job either has its result or is still queued;
a worker that takes a job with a result only closes RQ's books on it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import redis
from rq.job import Job as RQJob

from thinkq.client import batches, keys
from thinkq.client.commit import Commit, Committer
from thinkq.client.errors import NotFound
from thinkq.client.losses import without_result
from thinkq.client.removal import drop_ended
from thinkq.client.result import Result, cancelled_result
from thinkq.client.settings import Settings
from thinkq.client.stored import StoredJob, stored_jobs


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs that were to be cancelled."""

    cancelled: int = 0
    """Jobs that waited; they have ended."""
    stopping: int = 0
    """Jobs that run; their worker ends them within a second, with the text that is there."""
    ended: int = 0
    """Jobs that had ended before."""
    lost: int = 0
    """Jobs that Redis no longer has."""


def cancel(connection: redis.Redis, settings: Settings, id: str) -> Cancellation:
    """Cancel a job, or all jobs of a batch. A result that is there stays.

    Raises NotFound.
    """
    if batches.exists(connection, id):
        return _cancel(connection, settings, id, batches.listed_ids(connection, id))
    if not connection.exists(keys.result(id), RQJob.key_for(id)):
        raise NotFound(
            f"there is no batch and no job {id[:60]!r}; `thinkq status` lists all batches"
        )
    return _cancel(connection, settings, keys.batch_of(id), [id])


def _cancel(
    connection: redis.Redis, settings: Settings, batch: str, ids: Iterable[str]
) -> Cancellation:
    committer = Committer(connection, settings)
    tally: Counter[Commit] = Counter()
    for chunk in batches.chunked(ids):
        tally.update(_cancel_chunk(connection, committer, chunk))
    drop_ended(connection, batch)
    return Cancellation(
        cancelled=tally[Commit.COMMITTED],
        stopping=tally[Commit.RUNNING],
        ended=tally[Commit.KNOWN],
        lost=tally[Commit.LOST],
    )


def _cancel_chunk(
    connection: redis.Redis, committer: Committer, ids: Sequence[str]
) -> Counter[Commit]:
    unanswered = without_result(connection, ids)
    tally = Counter({Commit.KNOWN: len(ids) - len(unanswered), Commit.LOST: len(unanswered)})
    by_queue: defaultdict[str, list[Result]] = defaultdict(list)
    for job in stored_jobs(connection, unanswered):
        by_queue[job.queue].append(_result(job))
    for queue, results in by_queue.items():
        tally.update(committer.withdraw(queue, results))
        tally[Commit.LOST] -= len(results)
    return tally


def _result(job: StoredJob) -> Result:
    label = job.label()
    result = cancelled_result(job.job_id, label.custom_id, label.metadata)
    # Readers leave out what is of an older attempt than the newest that they have seen.
    result.attempt = max(1, job.attempts)
    return result
