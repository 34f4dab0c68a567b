"""Batch files of many lines: how long `thinkq submit` takes, in how much memory.

    python benchmarks/batchfile.py [--lines 50000] [--characters 200] [--json]

Writes a file of jobs whose prompts have so many characters, submits it to a Redis of its own and
asks for the status. Prints seconds, and the peak of resident memory of each command.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from thinkq.client.connection import ping, probe
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.redis_server import RedisServer

WORDS = ("seven", "boxes", "hold", "twelve", "apples", "each", "how", "many", "are", "left")


@dataclass(frozen=True)
class Measure:
    """One command: its name, seconds of wall clock and of CPU, and most megabytes in memory."""

    name: str
    seconds: float
    cpu_seconds: float
    peak_mb: float


def write_jobs(path: Path, lines: int, characters: int) -> None:
    """A file of jobs, each a prompt of its own."""
    numbers = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        for line in range(1, lines + 1):
            text = f"{line}:"
            while len(text) < characters:
                text += f" {numbers.choice(WORDS)} {numbers.randrange(1000)}"
            messages = [{"role": "user", "content": text}]
            file.write(json.dumps({"custom_id": f"job-{line}", "messages": messages}) + "\n")


@contextmanager
def redis_in(home: str) -> Iterator[Settings]:
    """The embedded server with its own settings, append-only file and all."""
    settings = load_settings({}, home=home)
    server = RedisServer(settings)
    server.start()
    try:
        with probe(settings) as connection:
            while not ping(connection):
                time.sleep(0.01)
        yield settings
    finally:
        server.kill()


def measured(name: str, settings: Settings, *arguments: str) -> Measure:
    """Run a command of thinkq to its end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "thinkq.client", *arguments],
        env=os.environ | {"THINKQ_HOME": settings.home},
        stdout=subprocess.DEVNULL,
    )
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise SystemExit(process.returncode)
    return Measure(
        name,
        round(time.perf_counter() - began, 2),
        round(usage.ru_utime + usage.ru_stime, 2),
        round(usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3), 1),
    )


def measure(lines: int, characters: int) -> Iterator[Measure]:
    """Submit, the same again, and the status."""
    with tempfile.TemporaryDirectory() as folder, redis_in(folder) as settings:
        jobs = Path(folder, "jobs.jsonl")
        write_jobs(jobs, lines, characters)
        yield measured("submit", settings, "submit", str(jobs))
        yield measured("submit again", settings, "submit", str(jobs))
        yield measured("status", settings, "status")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Batch files of many lines.")
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--characters", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for line in map(asdict, measure(arguments.lines, arguments.characters)):
        print(
            json.dumps(line) if arguments.json else "  ".join(f"{k} {v}" for k, v in line.items())
        )


if __name__ == "__main__":
    main()
