"""The queue: how fast jobs get in, what they take in Redis, how long the commands take.

    python benchmarks/queueing.py [--jobs 100000] [--turns 5] [--json]

Uses an embedded server of its own with the product's configuration, append-only file included.
Enqueueing is measured in turns against RQ's own `enqueue_many`, the same jobs in the same process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import redis
from rq import Queue

from thinkq.client import keys
from thinkq.client.batches import chunked
from thinkq.client.cancel import cancel
from thinkq.client.commit import NO_LEASE, Committer
from thinkq.client.connection import connect
from thinkq.client.job import Job, Message
from thinkq.client.queue import CHUNK_JOBS, JobQueue
from thinkq.client.result import Result, Usage
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.redis_server import RedisServer

RESULTS = 5_000
COMMANDS = 5


@contextmanager
def server() -> Iterator[Settings]:
    """A server of our own in a new data directory."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        settings = load_settings({}, home=home)
        embedded = RedisServer(settings)
        embedded.start()
        try:
            while not embedded.ready():
                time.sleep(0.05)
            yield settings
        finally:
            embedded.kill()


def small_jobs(number: int) -> dict[int, Job]:
    """Jobs by line, each with a question of one line."""
    return {
        line: Job(
            messages=[Message(role="user", content=f"What is {line} + {7 * line}?")],
            custom_id=f"sum-{line}",
            thinking_token_budget=256,
        )
        for line in range(1, number + 1)
    }


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def enqueue_with_rq(connection: redis.Redis, jobs: dict[int, Job]) -> None:
    """What a user of plain RQ would write: the same jobs, its defaults, as many to a call."""
    queue = Queue("plain", connection=connection)
    for chunk in chunked(jobs.values(), CHUNK_JOBS):
        queue.enqueue_many(
            [
                Queue.prepare_data("plain.generate", args=(msgspec.to_builtins(job),))
                for job in chunk
            ]
        )


def enqueue(connection: redis.Redis, number: int, turns: int) -> dict[str, float]:
    """Jobs a second of both, medians, and the median ratio of the turns."""
    jobs = small_jobs(number // turns)
    ours, plain = [], []
    for turn in range(turns):
        ours.append(len(jobs) / seconds(lambda n=turn: JobQueue(connection).submit(f"b{n}", jobs)))
        plain.append(len(jobs) / seconds(lambda: enqueue_with_rq(connection, jobs)))
        connection.flushall()
    return {
        "thinkq_jobs_per_s": round(statistics.median(ours)),
        "rq_jobs_per_s": round(statistics.median(plain)),
        "ratio": round(statistics.median(a / b for a, b in zip(ours, plain, strict=True)), 2),
        "ratio_min": round(min(a / b for a, b in zip(ours, plain, strict=True)), 2),
        "ratio_max": round(max(a / b for a, b in zip(ours, plain, strict=True)), 2),
    }


def used(connection: redis.Redis) -> int:
    """Bytes that the server holds, without the buffers of connections and of its file."""
    info = connection.info("memory")
    return int(info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"])


def memory(connection: redis.Redis, settings: Settings, number: int) -> dict[str, int]:
    """Bytes of a queued job, and of what its end adds: result, stream and event."""
    empty = used(connection)
    JobQueue(connection).submit("b1", small_jobs(number))
    queued = used(connection)
    committer = Committer(connection, settings)
    for line in range(1, RESULTS + 1):
        committer.commit(keys.QUEUES["normal"], NO_LEASE, small_result(f"b1-{line}"))
    return {
        "queued_bytes": (queued - empty) // number,
        "result_bytes": (used(connection) - queued) // RESULTS,
    }


def small_result(job_id: str) -> Result:
    """An answer of a few characters after a short thought."""
    return Result(
        job_id=job_id,
        custom_id=job_id,
        status="done",
        finish_reason="stop",
        thinking="1+7=8, write 8\n" * 10,
        answer="8",
        close_reason="natural",
        usage=Usage(prompt_tokens=20, thinking_tokens=100, answer_tokens=2, completion_tokens=102),
        model="demo",
    )


def commands(settings: Settings) -> dict[str, float]:
    """Wall time of `thinkq status` and of importing its libraries, medians of turns."""
    environ = {"THINKQ_HOME": settings.home, "PYTHONPATH": ":".join(sys.path)}
    imports = ["-c", "import redis, rq, msgspec, click"]
    times: dict[str, list[float]] = {"status": [], "imports": []}
    for _ in range(COMMANDS):
        for name, arguments in (
            ("status", ["-m", "thinkq.client", "status"]),
            ("imports", imports),
        ):
            command = [sys.executable, *arguments]
            times[name].append(
                seconds(lambda c=command: subprocess.run(c, env=environ, check=True, stdout=-3))
            )
    return {f"{name}_s": round(statistics.median(taken), 2) for name, taken in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, float] = {"jobs": options.jobs}
    with server() as settings, connect(settings) as connection:
        figures |= enqueue(connection, options.jobs, options.turns)
    with server() as settings, connect(settings) as connection:
        figures |= memory(connection, settings, options.jobs)
        figures |= commands(settings)
        queue = JobQueue(connection)
        figures["cancel_s"] = round(seconds(lambda: cancel(connection, settings, "b1")), 1)
        figures["rm_s"] = round(seconds(lambda: queue.remove("b1")), 1)
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:20} {figure:>12,}")


if __name__ == "__main__":
    main()
