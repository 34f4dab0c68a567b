"""The docs name what the code has, and the example runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from support.simulated_worker import SimulatedWorker, answered, some_jobs
from thinkq.client import keys
from thinkq.client.batches import counts
from thinkq.client.job import Job
from thinkq.client.queue import JobQueue
from thinkq.client.result import Budget, Result, Timing, Usage
from thinkq.client.settings import Settings
from thinkq.client.workers import WorkerStatus

ROOT = Path(__file__).parents[2]
JOBS = (ROOT / "docs" / "jobs.md").read_text()
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()


@pytest.mark.parametrize("field", Job.__struct_fields__)
def test_every_field_of_a_job_is_in_the_docs(field: str) -> None:
    assert f"| `{field}`" in JOBS or f"` `{field}` " in JOBS


def test_every_key_is_in_the_docs() -> None:
    functions = (keys.result, keys.stream)
    named = [function("<job>") for function in functions]
    named += [key("<batch>") for key in (keys.batch, keys.batch_jobs, keys.batch_events)]
    named += [keys.BATCHES, keys.CANCELLED, keys.WORKERS, keys.ATTEMPTS]
    for name in named:
        assert f"| `{name}` |" in PROTOCOL
    for queue in keys.QUEUES.values():
        assert f"`rq:queue:{queue}`" in PROTOCOL
    assert f"`{keys.TASK}`" in PROTOCOL


def test_every_field_of_results_and_status_lines_is_in_the_docs() -> None:
    for struct in (Result, Budget, Usage, Timing, WorkerStatus):
        for field in struct.__struct_fields__:
            assert f"`{field}`" in PROTOCOL
    result = Result(job_id="b1-1", status="done", finish_reason="length", warnings=["empty_answer"])
    for field in counts(result):
        assert f"`{field.partition(':')[0]}" in PROTOCOL


def test_the_example_follows_a_job_with_redis_py_alone(
    connection: redis.Redis, worker: SimulatedWorker, settings: Settings
) -> None:
    JobQueue(connection).submit("bexample", some_jobs("example", 1))
    taken = worker.take()
    assert taken
    worker.event("bexample-1", type="start")
    worker.event("bexample-1", type="delta", is_reasoning="0", text="zom")
    worker.event("bexample-1", type="restart", attempt="2")
    worker.event("bexample-1", type="delta", is_reasoning="0", text="bie")
    worker.event("bexample-1", type="delta", is_reasoning="1", text="hm", attempt="2")
    worker.event("bexample-1", type="delta", is_reasoning="0", text="42", attempt="2")
    worker.commit(answered(*taken, attempt=2))
    example = subscribe("bexample-1", settings.effective_redis_url)
    assert example.returncode == 0, example.stderr
    assert example.stdout == "zom42"
    assert "begins anew" in example.stderr
    assert example.stderr.endswith("hm\n[done, stop]\n")


@pytest.mark.parametrize(
    ("url", "told"), [(None, "there is no job bnone-1"), ("unix:///nowhere/redis.sock", "--redis")]
)
def test_the_example_ends_in_one_line_where_there_is_nothing_to_follow(
    settings: Settings, url: str | None, told: str
) -> None:
    example = subscribe("bnone-1", url or settings.effective_redis_url)
    assert example.returncode == 1
    assert told in example.stderr
    assert len(example.stderr.splitlines()) == 1


def subscribe(job_id: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run the example to its end."""
    return subprocess.run(
        [sys.executable, "-I", "examples/subscribe.py", job_id, "--redis", url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
