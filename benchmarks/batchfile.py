"""How fast a large batch file is queued, and how much memory that takes.

    python benchmarks/batchfile.py --lines 50000 [--prompt 200]

A Redis of its own with the product's configuration; each measure in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from thinkq.client.connection import ping, probe
from thinkq.client.settings import load_settings
from thinkq.daemon.redis_server import RedisServer


def write(path: Path, lines: int, prompt: int) -> None:
    """A file of jobs whose prompts have so many characters."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(lines):
            text = f"{number} " + "What is the sum of the first numbers? "
            content = (text * (prompt // len(text) + 1))[:prompt]
            job = {"custom_id": f"job-{number}", "messages": [{"role": "user", "content": content}]}
            file.write(json.dumps(job) + "\n")


def command(home: str, *arguments: str) -> dict[str, float]:
    """Wall time and peak memory of a command of thinkq."""
    environ = os.environ | {"THINKQ_HOME": home}
    before = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "thinkq.client", *arguments], env=environ, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"thinkq {arguments[0]} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "seconds": round(time.perf_counter() - before, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss * unit / 1e6, 1),
    }


def measure(lines: int, prompt: int) -> dict[str, Any]:
    """All measures."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "jobs.jsonl"
        write(path, lines, prompt)
        settings = load_settings({}, home=home)
        server = RedisServer(settings)
        server.start()
        try:
            with probe(settings) as connection:
                while not ping(connection):
                    time.sleep(0.01)
            return {
                "lines": lines,
                "file_mb": round(path.stat().st_size / 1e6, 1),
                "submit": command(home, "submit", str(path)),
                "submit again": command(home, "submit", str(path)),
                "status": command(home, "status"),
            }
        finally:
            server.kill()


def main() -> None:
    """Print the measures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--prompt", type=int, default=200, help="characters of each prompt")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.lines, arguments.prompt), indent=2))


if __name__ == "__main__":
    main()
