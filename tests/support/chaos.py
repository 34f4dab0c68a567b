"""A storm: workers and a Redis that are killed at random while they work, and started again.

Everything random comes from one seeded generator. Kills wait for progress that can be seen in
Redis, not for time; what the machine does in between is its own, so a seed repeats the plan of a
storm and not each of its moments.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import redis

from support import wait_until
from support.crash_points import CRASH_POINTS
from support.processes import environment
from support.queues import have_results, job, submit, variables
from thinkq.client import keys
from thinkq.client.connection import connect
from thinkq.client.job import Job
from thinkq.client.settings import load_settings
from thinkq.daemon.redis_server import RedisServer

BATCH: Final = "b0"
LIVES: Final = 8
"""Lives of workers before all is left in peace."""

LATE_POINTS: Final = ("Books.enter", "recover", "replay", "bury")
"""Points that a worker comes to but once, at its start."""

_SETTINGS: Final = {"max_batch": 4, "heartbeat_s": 0.2, "lease_s": 1.0}


def some_jobs(rng: random.Random) -> list[Job]:
    """Sixty jobs over all priorities: short and long ones, four refused, and one that kills."""
    prompts = ["refuse"] * 4 + ["die"] + [str(rng.randint(1, 25)) for _ in range(47)]
    prompts += [str(rng.randint(80, 150)) for _ in range(60 - len(prompts))]
    rng.shuffle(prompts)
    return [job(text, priority=rng.choice(list(keys.QUEUES))) for text in prompts]


class Storm:
    """One storm over 60 jobs. With two hosts, each has a worker and a data directory."""

    def __init__(self, directory: Path, seed: int, hosts: int) -> None:
        self.rng = random.Random(seed)
        self.kills: Counter[str] = Counter()
        """What died how often: by itself is at a crash point, or by the job that kills."""
        self._redis_settings = load_settings({}, home=str(directory / "redis"))
        self._server = RedisServer(self._redis_settings)
        self._homes = [directory / f"host{n}" for n in range(hosts)]
        self._workers: dict[Path, subprocess.Popen[bytes]] = {}
        self.ids: list[str] = []

    @contextmanager
    def over_jobs(self) -> Iterator[redis.Redis]:
        """Queue the jobs, kill what can be killed, and wait until all is over."""
        self._start_redis()
        try:
            with connect(self._redis_settings) as self.connection:
                self.ids = submit(self.connection, BATCH, *some_jobs(self.rng))
                self.connection.sadd(keys.CANCELLED, *self.rng.sample(self.ids, 3))
                for _ in range(LIVES):
                    self._one_life(self.rng.choice(self._homes))
                self._in_peace()
                yield self.connection
        finally:
            for home in self._homes:
                self._end(home)
            self._server.kill()

    def spooled(self) -> list[Path]:
        """The files in all spools."""
        return [file for home in self._homes for file in (home / "spool").glob("*")]

    # --- the storm ---

    def _one_life(self, home: Path) -> None:
        """Start a worker that may be doomed, and kill it, Redis, or both after some progress."""
        self._end(home)
        worker = self._start_worker(home, *self._doom())
        victims = self.rng.choice(("worker", "worker", "redis", "redis, worker", "nobody"))
        target = self._progress() + self.rng.randint(1, 25)
        self._wait(lambda: worker.poll() is not None or self._progress() >= target)
        if "redis" in victims:
            self._server.kill()
            self.kills["Redis"] += 1
        if "worker" in victims:
            self._end(home)
        if "redis" in victims:
            self._start_redis()

    def _doom(self) -> tuple[str, ...]:
        if self.rng.random() < 0.3:
            return ()
        point = self.rng.choice(list(CRASH_POINTS))
        how = self.rng.choice(("--die-after", "--die-during"))
        nth = 1 if point in LATE_POINTS else self.rng.randint(1, 12)
        return how, point, "--nth", str(nth)

    def _in_peace(self) -> None:
        """Workers that nobody kills but the job that does, until nothing is left."""
        all_over = have_results(self.connection, self.ids)
        while not all_over():
            for home in self._homes:
                self._end(home)
                self._start_worker(home)
            self._wait(lambda: any(self._ended().values()) or all_over())
        for worker in self._workers.values():
            worker.terminate()
            worker.communicate(timeout=10)

    def _ended(self) -> dict[Path, bool]:
        return {home: worker.poll() is not None for home, worker in self._workers.items()}

    # --- its parts ---

    def _start_redis(self) -> None:
        wait_until(self._server.start)
        wait_until(self._server.ready)

    def _start_worker(self, home: Path, *doom: str) -> subprocess.Popen[bytes]:
        home.mkdir(exist_ok=True)
        settings = load_settings(
            {}, home=str(home), redis_url=self._redis_settings.effective_redis_url, **_SETTINGS
        )
        with open(home / "log", "ab") as log:
            log.write(f"--- {' '.join(doom) or 'in peace'}\n".encode())
            log.flush()
            self._workers[home] = subprocess.Popen(
                [sys.executable, "-m", "support.fake_worker", "--step", "0.001", *doom],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment(**variables(settings)),
            )
        return self._workers[home]

    def _end(self, home: Path) -> None:
        if worker := self._workers.pop(home, None):
            self.kills["worker, by itself" if worker.poll() is not None else "worker"] += 1
            worker.kill()
            worker.communicate()

    def _progress(self) -> int:
        """What can be seen of the work: results, and pieces of the text of all jobs."""
        with self.connection.pipeline(transaction=False) as pipeline:
            for job_id in self.ids:
                pipeline.xlen(keys.stream(job_id))
            return sum(pipeline.execute())

    def _wait(self, predicate: Callable[[], object]) -> None:
        wait_until(predicate, timeout=60)
