"""Worker processes that are killed, hang, or are told to stop, on a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import redis
from rq.command import send_shutdown_command

from support import wait_until
from support.crash_points import DEATHS
from support.fake_engine import FakeEngine
from support.queues import (
    done_entries,
    events,
    have_results,
    job,
    leases,
    left_over,
    opened,
    queue,
    result,
    streamed,
    submit,
    tick_until,
    worker_process,
)
from thinkq.client import batches, keys
from thinkq.client.settings import Settings
from thinkq.client.workers import workers
from thinkq.daemon.redis_server import RedisServer
from thinkq.worker.books import Books


def test_qw_03_jobs_of_a_killed_worker_run_again_at_once_and_once(
    settings: Settings, connection: redis.Redis
) -> None:
    """kill -9 in mid-batch: the next worker answers every job exactly once, within seconds."""
    settings = msgspec.structs.replace(settings, max_batch=4)
    ids = submit(connection, "b1", *(job(60) for _ in range(6)))
    with worker_process(settings, "--step", "0.01") as first:
        wait_until(lambda: all("t2 " in _thinking(connection, job_id) for job_id in ids[:3]))
        first.kill()
        first.wait()
    assert len(leases(connection)) == 3
    with worker_process(settings, "--step", "0.001"):
        killed = time.monotonic()
        wait_until(lambda: connection.xlen(keys.stream(ids[0])) and _restarted(connection, ids[0]))
        assert time.monotonic() - killed < 5
        wait_until(have_results(connection, ids), timeout=20)
        assert [line.pid for line in workers(connection) if line.pid == first.pid] == []
    assert done_entries(connection, ids) == [1] * 6
    assert [result(connection, job_id).attempt for job_id in ids] == [2, 2, 2, 1, 1, 1]
    assert batches.status(connection, "b1").done == connection.xlen(keys.batch_events("b1")) == 6
    for job_id in ids:
        assert _thinking(connection, job_id) == result(connection, job_id).thinking


@pytest.mark.parametrize("point", DEATHS)
def test_a_worker_killed_after_any_step_leaves_nothing_undone_and_nothing_twice(
    settings: Settings, connection: redis.Redis, point: str
) -> None:
    """The steps of a job's way, each the last one before a kill -9."""
    settings = msgspec.structs.replace(settings, max_batch=3)
    ids = submit(connection, "b1", *(job(2) for _ in range(4)))
    with worker_process(settings, "--die-after", point) as doomed:
        assert doomed.wait(20) == -signal.SIGKILL
    assert left_over(connection)
    with opened(settings) as process:
        tick_until(process, have_results(connection, ids))
    assert done_entries(connection, ids) == [1] * 4
    status = batches.status(connection, "b1")
    assert (status.done, status.thinking_tokens) == (4, 8)
    assert connection.xlen(keys.batch_events("b1")) == 4
    assert not list((Path(settings.home) / "spool").iterdir())
    for job_id in ids:
        assert _thinking(connection, job_id) == result(connection, job_id).thinking
    if list(DEATHS).index(point) >= list(DEATHS).index("Spool.put"):
        attempts = [result(connection, job_id).attempt for job_id in ids]
        assert 1 in attempts[:3], "what was on disk must not be decoded again"


def test_qw_04_a_job_that_kills_the_process_fails_and_the_others_are_answered(
    settings: Settings, connection: redis.Redis
) -> None:
    """Somebody starts the worker again each time, as the daemon does; it dies three times."""
    settings = msgspec.structs.replace(settings, max_batch=4)
    ids = submit(connection, "b1", job(2), job("die"), job(3))
    deaths = 0
    while not have_results(connection, ids)():
        with worker_process(settings) as worker:
            wait_until(_ended(worker, have_results(connection, ids)))
            deaths += worker.poll() == -signal.SIGKILL
        assert deaths <= 3
    good, poison, other = (result(connection, job_id) for job_id in ids)
    assert deaths == 3
    assert (good.status, other.status) == ("done", "done")
    assert poison.error is not None
    assert (poison.status, poison.error.kind) == ("failed", "worker_crashed")
    assert done_entries(connection, ids) == [1, 1, 1]
    assert not left_over(connection)


def test_a_job_on_its_last_attempt_runs_alone(settings: Settings, connection: redis.Redis) -> None:
    """What it may do to the process must not be charged to others a third time."""
    ids = submit(connection, "b1", *(job(n) for n in (1, 7, 2, 3)))
    connection.hset(keys.ATTEMPTS, ids[1], 2)
    engine = FakeEngine()
    with opened(settings, engine) as process:
        tick_until(process, have_results(connection, ids))
    assert all(prompts == {"7"} for prompts in engine.together if "7" in prompts)
    assert result(connection, ids[1]).attempt == 3
    assert result(connection, ids[1]).status == "done"


def test_qw_23_a_worker_whose_model_hangs_ends_itself(
    settings: Settings, connection: redis.Redis
) -> None:
    """Progress is what is watched: a slow model that does progress is left alone."""
    settings = msgspec.structs.replace(settings, hang_s=0.4)
    (slow,) = submit(connection, "b1", job(4))
    with worker_process(settings, "--step", "0.1") as worker:
        wait_until(have_results(connection, [slow]))
        submit(connection, "b2", job("hang"))
        assert worker.wait(20) == 1
        assert worker.stderr is not None
        assert "no progress" in worker.stderr.read()
    assert len(leases(connection)) == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, "eof", "rq"])
def test_a_worker_that_is_told_to_stop_gives_its_jobs_back_and_is_gone_in_5_s(
    settings: Settings, connection: redis.Redis, how: signal.Signals | str
) -> None:
    """Uncharged, at the front, exit code 0."""
    settings = msgspec.structs.replace(settings, max_batch=3)
    ids = submit(connection, "b1", *(job(10_000) for _ in range(3)))
    with worker_process(settings, "--step", "0.01") as worker:
        wait_until(lambda: "t2 " in _thinking(connection, ids[1]))
        if how == "rq":
            (key,) = Books.all_keys(connection)
            send_shutdown_command(connection, key.removeprefix("rq:worker:"))
        elif isinstance(how, str):
            assert worker.stdin is not None
            worker.stdin.close()
        else:
            worker.send_signal(how)
        assert worker.wait(5) == 0
    assert queue(connection).get_job_ids() == ids
    assert left_over(connection) == {"normal queued": 3, "attempts": 2}
    assert set(connection.hvals(keys.ATTEMPTS)) == {b"0"}


@pytest.mark.parametrize("signals", [1, 2])
def test_a_worker_stops_although_redis_hangs(
    settings: Settings, connection: redis.Redis, redis_server: RedisServer, signals: int
) -> None:
    """One signal: gone within 5 s. Two: gone now. Its jobs are found by the next worker."""
    (job_id,) = submit(connection, "b1", job(300))
    server = int(connection.info("server")["process_id"])
    with worker_process(settings, "--step", "0.01") as worker:
        wait_until(lambda: "t2 " in _thinking(connection, job_id))
        os.kill(server, signal.SIGSTOP)
        try:
            began = time.monotonic()
            worker.send_signal(signal.SIGTERM)
            if signals == 2:
                worker.send_signal(signal.SIGINT)
            worker.wait(5)
        finally:
            os.kill(server, signal.SIGCONT)
        assert signals == 1 or time.monotonic() - began < 2
    with opened(settings) as process:
        tick_until(process, have_results(connection, [job_id]))
    assert done_entries(connection, [job_id]) == [1]


def test_a_second_worker_on_the_same_data_directory_is_refused(
    settings: Settings, connection: redis.Redis
) -> None:
    """It would take the first one's jobs for orphans."""
    with worker_process(settings) as first:
        wait_until(lambda: workers(connection))
        with worker_process(settings) as second:
            assert second.wait(20) == 1
            assert second.stderr is not None
            assert f"pid {first.pid}" in second.stderr.read()


def _thinking(connection: redis.Redis, job_id: str) -> str:
    return streamed(connection, job_id, reasoning=True)


def _ended(worker: subprocess.Popen[str], all_done: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: worker.poll() is not None or all_done()


def _restarted(connection: redis.Redis, job_id: str) -> bool:
    return "restart" in [event.type for event in events(connection, job_id)]
