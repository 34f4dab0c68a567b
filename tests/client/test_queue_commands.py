"""The commands on what is queued: cancel, retry, rm, ps, status, and submit once more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis

from support.simulated_worker import SimulatedWorker, some_jobs
from thinkq.client import keys
from thinkq.client.cli import main
from thinkq.client.queue import JobQueue
from thinkq.client.workers import FRESH_S, WorkerStatus

Capture = pytest.CaptureFixture[str]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    redis_url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> Command:
    """Run a command; its exit code, stdout and stderr."""
    monkeypatch.setenv("THINKQ_REDIS_URL", redis_url)
    monkeypatch.setenv("THINKQ_HOME", str(tmp_path))

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(arguments), *capsys.readouterr()

    return run


def write_line(connection: redis.Redis, name: str, age: float, **fields: Any) -> None:
    """A worker's line, written so many seconds ago."""
    line = WorkerStatus(pid=7, model="demo", updated=time.time() - age, **fields)
    connection.hset(keys.WORKERS, name, msgspec.json.encode(line))


def test_cancel_retry_and_rm_say_in_a_line_what_they_did(
    connection: redis.Redis, worker: SimulatedWorker, command: Command
) -> None:
    JobQueue(connection).submit("bline", some_jobs("line", 3))
    code, out, err = command("rm", "bline")
    assert (code, out) == (1, "")
    assert "3 jobs that have not ended" in err
    assert command("cancel", "bline-2") == (0, "", "bline-2: 1 cancelled\n")
    assert command("cancel", "bline") == (0, "", "bline: 2 cancelled, 1 had ended already\n")
    assert command("retry", "bline") == (0, "", "bline: 3 jobs queued again\n")
    assert command("rm", "--cancel", "bline") == (
        0,
        "",
        "bline: 3 cancelled\nbline: removed\n",
    )
    for name in ("retry", "rm", "cancel"):
        code, _, err = command(name, "bline")
        assert code == 2
        assert "there is no batch" in err


def test_retry_says_what_it_could_not_run(
    connection: redis.Redis, worker: SimulatedWorker, command: Command
) -> None:
    JobQueue(connection).submit("bgone", some_jobs("gone", 2))
    command("cancel", "bgone")
    connection.delete("rq:job:bgone-1")
    code, _, err = command("retry", "bgone")
    assert code == 0
    assert "1 jobs queued again" in err
    assert "1 jobs without an answer are no longer in Redis" in err


def test_rm_of_all_old_batches_leaves_the_young_and_the_unfinished(
    connection: redis.Redis, worker: SimulatedWorker, command: Command
) -> None:
    for batch in ("bold", "byoung", "bopen"):
        JobQueue(connection).submit(batch, some_jobs(batch, 1))
    for batch in ("bold", "byoung"):
        command("cancel", batch)
    for batch in ("bold", "bopen"):
        connection.hset(keys.batch(batch), "created", str(time.time() - 8 * 86_400))
    assert command("rm", "--older-than", "1w") == (0, "", "bold: removed\n")
    assert command("rm", "--older-than", "soon")[0] == 2
    assert command("rm")[0] == 2
    assert connection.exists(keys.batch("byoung"), keys.batch("bopen")) == 2


def test_ps_shows_workers_and_what_they_run(
    connection: redis.Redis, worker: SimulatedWorker, command: Command
) -> None:
    JobQueue(connection).submit("bps", some_jobs("ps", 2))
    taken = worker.take()
    assert taken
    connection.zadd("rq:wip:thinkq:normal", {"bps-1:e1": "inf"})
    started = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - 75))
    connection.hset("rq:job:bps-1", mapping={"started_at": started, "worker_name": "thinkq-a-1"})
    connection.hset(keys.ATTEMPTS, "bps-1", 2)
    write_line(connection, "thinkq-a-1", 0, state="busy", rows=1, max_batch=16, tokens_per_s=88.5)
    try:
        code, out, _ = command("ps")
        (job,) = (shown := msgspec.json.decode(command("ps", "--json")[1]))["jobs"]
    finally:
        connection.delete("rq:wip:thinkq:normal", keys.WORKERS)
        connection.hdel(keys.ATTEMPTS, "bps-1")
    assert code == 0
    first, head, row = out.splitlines()
    assert first == "worker 7: busy, demo, 1/16 rows, 88.5 tokens/s"
    assert head.split() == ["JOB", "CUSTOM", "ID", "PRIORITY", "ATTEMPT", "RUNNING"]
    assert row.split()[:5] == ["bps-1", "c1", "normal", "2", "1"]
    assert job["running_s"] == pytest.approx(75, abs=10)
    assert job["worker"] == shown["workers"][0]["name"] == "thinkq-a-1"


def test_ps_without_a_worker_says_how_to_start_one(
    connection: redis.Redis, worker: SimulatedWorker, command: Command
) -> None:
    assert command("ps") == (0, "", "no worker runs; start one with `thinkq daemon start`\n")


def test_a_worker_that_was_not_heard_of_shows_no_speed_and_is_forgotten_in_the_end(
    connection: redis.Redis, worker: SimulatedWorker, command: Command
) -> None:
    write_line(connection, "thinkq-a-2", 12, state="busy", rows=16, tokens_per_s=500.0)
    write_line(connection, "thinkq-a-3", FRESH_S + 1, state="busy", tokens_per_s=500.0)
    _, out, _ = command("status")
    assert "worker 7: not heard of for 1" in out
    assert "500" not in out
    assert msgspec.json.decode(command("status", "--json")[1])["tokens_per_s"] == 0
    assert connection.hkeys(keys.WORKERS) == [b"thinkq-a-2"]
    connection.delete(keys.WORKERS)


def test_the_state_of_a_batch_is_what_its_jobs_do(
    connection: redis.Redis, worker: SimulatedWorker, command: Command
) -> None:
    def state() -> str:
        return str(msgspec.json.decode(command("status", "bstate", "--json")[1])["state"])

    queue = JobQueue(connection)
    queue.submit("bstate", some_jobs("state", 1))
    assert state() == "queued"
    connection.zadd("rq:wip:thinkq:normal", {"bstate-1:e1": "inf"})
    assert state() == "running"
    connection.delete("rq:wip:thinkq:normal")
    worker.work()
    assert state() == "finished"
    connection.hset(keys.batch("bstate"), "state", "submitting")
    assert state() == "submitting"


def test_status_shows_lost_jobs_and_a_server_that_refuses_writes(
    connection: redis.Redis, worker: SimulatedWorker, command: Command
) -> None:
    JobQueue(connection).submit("bshow", some_jobs("show", 2))
    connection.lrem("rq:queue:thinkq:normal", 1, "bshow-1")
    connection.config_set("maxmemory", 1)
    try:
        code, out, err = command("status", "bshow")
    finally:
        connection.config_set("maxmemory", 0)
    assert code == 0
    assert "1 queued, " in out
    assert "1 lost" in out
    assert "Redis is full" in err


def test_qw_22_a_second_submission_says_what_it_did(
    connection: redis.Redis, worker: SimulatedWorker, command: Command, tmp_path: Any
) -> None:
    """QW-22: the id alone on stdout; on stderr, that nothing was queued."""
    file = tmp_path / "x.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "again?"}], "model": "m"}\n')
    code, first, err = command("submit", str(file))
    assert (code, err) == (0, "")
    code, second, err = command("submit", str(file))
    assert (code, second) == (0, first)
    assert "was there already; nothing was queued" in err
    connection.delete("rq:queue:thinkq:normal")
    _, third, err = command("submit", str(file))
    assert third == first
    assert err == ""


def test_qw_12_submit_warns_of_a_redis_that_drops_jobs(
    connection: redis.Redis, worker: SimulatedWorker, command: Command, tmp_path: Any
) -> None:
    """QW-12: the worker refuses; whoever submits should hear of it before."""
    file = tmp_path / "y.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "warn me"}], "model": "m"}\n')
    connection.config_set("maxmemory-policy", "allkeys-lru")
    try:
        code, _, err = command("submit", str(file))
    finally:
        connection.config_set("maxmemory-policy", "noeviction")
    assert code == 0
    assert "warning: this Redis drops keys" in err
