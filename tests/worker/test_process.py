"""The worker process around a scripted engine, on a real server."""

from __future__ import annotations

import logging
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from rq import Callback
from rq.command import send_stop_job_command
from rq.job import Job as RQJob
from rq.suspension import resume, suspend

from support import wait_until
from support.fake_engine import FakeEngine
from support.queues import (
    done_entries,
    events,
    gated,
    have_results,
    job,
    leases,
    left_over,
    opened,
    queue,
    result,
    started,
    streamed,
    submit,
    tick_until,
)
from thinkq.client import batches, keys
from thinkq.client.job import encode_payload
from thinkq.client.serializer import MsgpackSerializer
from thinkq.client.settings import Settings
from thinkq.client.workers import WorkerStatus, workers
from thinkq.worker.books import Books
from thinkq.worker.process import Process


class Planted:
    """Unpickling it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.file,))


def test_a_batch_is_answered_streamed_counted_and_nothing_is_left_over(
    settings: Settings, connection: redis.Redis
) -> None:
    """Ten jobs through four rows: results, streams and counts agree to the letter."""
    ids = submit(connection, "b1", *(job(n, custom_id=f"c{n}") for n in range(1, 11)))
    with opened(settings) as process:
        tick_until(process, have_results(connection, ids))
    for n, job_id in enumerate(ids, start=1):
        answer = result(connection, job_id)
        assert (answer.status, answer.custom_id, answer.attempt) == ("done", f"c{n}", 1)
        assert answer.answer == "".join(f"a{turn} " for turn in range(n, 2 * n))
        assert streamed(connection, job_id, reasoning=False) == answer.answer
        assert streamed(connection, job_id, reasoning=True) == answer.thinking
        kinds = [event.type for event in events(connection, job_id)]
        assert (kinds[0], kinds[-1], kinds.count("done")) == ("start", "done", 1)
    status = batches.status(connection, "b1")
    assert (status.done, status.finished, status.closes) == (10, True, {"natural": 10})
    assert (status.thinking_tokens, status.answer_tokens) == (55, 55)
    assert connection.xlen(keys.batch_events("b1")) == 10


def test_qw_08_results_stay_until_they_are_removed(
    settings: Settings, connection: redis.Redis
) -> None:
    """RQ's default would drop them after 500 s; streams do expire, and results if told to."""
    (kept,) = submit(connection, "b1", job(1))
    with opened(settings) as process:
        tick_until(process, have_results(connection, [kept]))
    assert connection.ttl(keys.result(kept)) == -1
    assert 0 < connection.ttl(keys.stream(kept)) <= settings.stream_ttl_s
    (fleeting,) = submit(connection, "b2", job(2))
    with opened(msgspec.structs.replace(settings, retention_s=60)) as process:
        tick_until(process, have_results(connection, [fleeting]))
    assert 0 < connection.ttl(keys.result(fleeting)) <= 60


def test_qw_09_rq_keeps_the_job_id_and_not_the_answer(
    settings: Settings, connection: redis.Redis
) -> None:
    """The answer is thinkq's to store, so nothing depends on what RQ can serialise."""
    (job_id,) = submit(connection, "b1", job(1))
    with opened(settings) as process:
        tick_until(process, have_results(connection, [job_id]))
    rq_job = RQJob.fetch(job_id, connection, MsgpackSerializer)
    assert (rq_job.is_finished, rq_job.return_value()) == (True, job_id)


def test_qw_10_a_job_that_names_another_function_fails_and_runs_nothing(
    settings: Settings, connection: redis.Redis, tmp_path: Path
) -> None:
    """Any function that can be imported could be named in a job."""
    planted = tmp_path / "planted"
    queue(connection).enqueue("os.mkdir", str(planted), job_id="evil-1")
    queue(connection).enqueue(keys.TASK, job_id="evil-2")
    (good,) = submit(connection, "b1", job(1))
    with opened(settings) as process:
        tick_until(process, have_results(connection, ["evil-1", "evil-2", good]))
    assert not planted.exists()
    for job_id in ("evil-1", "evil-2"):
        error = result(connection, job_id).error
        assert error is not None
        assert error.kind == "bad_payload"
        assert RQJob.fetch(job_id, connection).is_failed
    assert result(connection, good).status == "done"


def test_qw_10_a_pickle_is_refused_and_never_loaded(
    settings: Settings, connection: redis.Redis, tmp_path: Path
) -> None:
    """Loading a pickle can run any code; the proof that this one would is in the last line."""
    planted = tmp_path / "planted"
    payload = pickle.dumps((keys.TASK, None, (Planted(planted),), {}))
    queue(connection).enqueue(keys.TASK, "", job_id="evil-1")
    connection.hset(RQJob.key_for("evil-1"), "data", payload)
    (good,) = submit(connection, "b1", job(1))
    with opened(settings) as process:
        tick_until(process, have_results(connection, ["evil-1", good]))
    error = result(connection, "evil-1").error
    assert error is not None
    assert error.kind == "bad_payload"
    assert result(connection, good).status == "done"
    assert not planted.exists()
    pickle.loads(payload)
    assert planted.exists()


def test_qw_10_a_sweep_runs_no_callback_that_a_job_names(
    settings: Settings, connection: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    """RQ itself would, as the last lines prove."""
    books = Books(connection, settings, "elsewhere")
    registry = queue(connection).started_job_registry
    for sweep in (books.clean_registries, registry.cleanup):
        assert not capsys.readouterr().out
        queue(connection).enqueue(keys.TASK, job_id="evil-1", on_failure=Callback("builtins.print"))
        lease = started(books)
        connection.zadd(registry.key, {lease.member: 1})
        sweep()
        assert RQJob.fetch("evil-1", connection).is_failed
    assert "AbandonedJobError" in capsys.readouterr().out


def test_an_invalid_job_fails_with_its_code(settings: Settings, connection: redis.Redis) -> None:
    """Somebody else's client may have queued what ours would have refused."""
    payload = encode_payload(job(1)).replace('"messages"', '"mesages"')
    queue(connection).enqueue(keys.TASK, payload, job_id="b1-1")
    with opened(settings) as process:
        tick_until(process, have_results(connection, ["b1-1"]))
    error = result(connection, "b1-1").error
    assert error is not None
    assert error.kind == "unknown_field:mesages"


def test_qw_16_a_job_that_the_engine_refuses_fails_alone(
    settings: Settings, connection: redis.Redis
) -> None:
    """Its reason reaches the result; the others run."""
    refused, good = submit(connection, "b1", job("refuse", custom_id="r"), job(2))
    with opened(settings) as process:
        tick_until(process, have_results(connection, [refused, good]))
    failed = result(connection, refused)
    assert failed.error is not None
    assert (failed.custom_id, failed.error.kind) == ("r", "context_length_exceeded")
    assert "4096" in failed.error.message
    assert result(connection, good).status == "done"


@pytest.mark.parametrize("prompt", ["add fails", "turn fails"])
def test_an_engine_that_fails_costs_one_job_and_not_the_others_nor_the_worker(
    settings: Settings, connection: redis.Redis, caplog: pytest.LogCaptureFixture, prompt: str
) -> None:
    """Whoever was in the same turn runs again; the guilty one is found because it runs alone.

    Neither the result nor the log repeats the exception's text, which may hold the prompt.
    """
    good, bad, other = submit(connection, "b1", job(9), job(prompt), job(7))
    process = Process(settings, lambda *_: FakeEngine(settings.max_batch))
    process.open()
    with caplog.at_level(logging.INFO):
        tick_until(process, have_results(connection, [good, bad, other]))
        (late,) = submit(connection, "b2", job(2))
        tick_until(process, have_results(connection, [late]))
    process.close()
    failed = result(connection, bad)
    assert failed.error is not None
    assert failed.error.kind == "internal"
    assert failed.attempt == (3 if prompt == "turn fails" else 1)
    assert "RuntimeError" in failed.error.message
    assert prompt not in failed.error.message
    assert "RuntimeError" in caplog.text
    assert prompt * 2 not in caplog.text
    assert [result(connection, each).status for each in (good, other, late)] == ["done"] * 3
    assert done_entries(connection, [good, bad, other]) == [1, 1, 1]


def test_high_priority_goes_first_and_has_a_row_of_its_own(
    settings: Settings, connection: redis.Redis
) -> None:
    """Behind many normal jobs, a high one starts although none of them has ended."""
    settings = msgspec.structs.replace(settings, max_batch=3)
    engine = gated(max_batch=3)
    normal = submit(connection, "b1", *(job(5) for _ in range(5)))
    with opened(settings, engine) as process:
        tick_until(process, lambda: len(leases(connection)) == 2)
        (high,) = submit(connection, "b2", job(1, priority="high"))
        tick_until(process, lambda: leases(connection, "high"))
        assert len(leases(connection)) == 2
        assert engine.turns is not None
        engine.turns.release(100)
        tick_until(process, have_results(connection, [*normal, high]))
    assert engine.added.index(high) <= 2


def test_a_single_row_takes_normal_jobs_too(settings: Settings, connection: redis.Redis) -> None:
    """With one row nothing can be kept for high priority."""
    settings = msgspec.structs.replace(settings, max_batch=1)
    ids = submit(connection, "b1", job(1), job(1, priority="low"))
    with opened(settings) as process:
        tick_until(process, have_results(connection, ids))
    assert [result(connection, job_id).status for job_id in ids] == ["done", "done"]


@pytest.mark.parametrize("by", ["thinkq", "rq"])
def test_qw_05_a_running_job_is_cancelled_and_keeps_its_text(
    settings: Settings, connection: redis.Redis, by: str
) -> None:
    """Asked for through our set, or with RQ's own stop command; the next job starts."""
    (job_id,) = submit(connection, "b1", job(1_000_000))
    with opened(settings, FakeEngine(step_s=0.002)) as process:
        tick_until(process, lambda: "t2 " in streamed(connection, job_id, reasoning=True))
        if by == "thinkq":
            connection.sadd(keys.CANCELLED, job_id)
        else:
            send_stop_job_command(connection, job_id, MsgpackSerializer)
        tick_until(process, have_results(connection, [job_id]), timeout=2)
        (good,) = submit(connection, "b2", job(1))
        tick_until(process, have_results(connection, [good]))
    cancelled = result(connection, job_id)
    assert (cancelled.status, cancelled.finish_reason) == ("cancelled", "cancelled")
    assert cancelled.thinking is not None
    assert cancelled.thinking.startswith("t0 t1 t2 ")
    assert cancelled.thinking == streamed(connection, job_id, reasoning=True)
    assert batches.status(connection, "b1").cancelled == 1
    assert RQJob.fetch(job_id, connection, MsgpackSerializer).is_stopped


def test_a_job_deleted_in_the_queue_is_skipped(settings: Settings, connection: redis.Redis) -> None:
    """Only its id is still in the list."""
    gone, good = submit(connection, "b1", job(1), job(1))
    connection.delete(RQJob.key_for(gone))
    with opened(settings) as process:
        tick_until(process, have_results(connection, [good]))
    assert not connection.exists(keys.result(gone))


def test_a_job_that_is_broken_in_redis_is_dropped_and_the_worker_lives(
    settings: Settings, connection: redis.Redis
) -> None:
    """Not even RQ can read it; a worker that died of it would die at each start."""
    broken, good = submit(connection, "b1", job(1), job(1))
    connection.hset(RQJob.key_for(broken), "status", "no such status")
    with opened(settings) as process:
        tick_until(process, have_results(connection, [good]))
    assert not connection.exists(keys.result(broken))


def test_a_result_that_is_ready_when_the_worker_stops_is_handed_out_whole(
    settings: Settings, connection: redis.Redis
) -> None:
    """Its text has not been published yet."""
    engine = gated()
    assert engine.turns is not None
    (job_id,) = submit(connection, "b1", job(3))
    with opened(settings, engine) as process:
        tick_until(process, lambda: leases(connection))
        wait_until(lambda: engine.rows)
        engine.turns.release(7)
        wait_until(lambda: process._decoder.busy_since is None)
    answer = result(connection, job_id)
    assert streamed(connection, job_id, reasoning=True) == answer.thinking == "t0 t1 t2 "
    assert streamed(connection, job_id, reasoning=False) == answer.answer


def test_a_burst_ends_when_no_job_is_left(
    settings: Settings, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a job ends at once, and others must wait until it has."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    ids = submit(connection, "b1", job(1), job(2), job(3), job("refuse"))
    connection.hset(keys.ATTEMPTS, mapping={ids[0]: 3, ids[1]: 2})
    assert Process(settings, lambda *_: FakeEngine(), burst=True).run() == 0
    assert have_results(connection, ids)()
    assert [result(connection, i).status for i in ids] == ["failed", "done", "done", "failed"]


def test_an_answered_job_that_is_queued_again_is_not_run_again(
    settings: Settings, connection: redis.Redis
) -> None:
    """RQ swept it after its commit, before its books were closed."""
    (job_id,) = submit(connection, "b1", job(1))
    engine = FakeEngine()
    with opened(settings, engine) as process:
        tick_until(process, have_results(connection, [job_id]))
        queue(connection).push_job_id(job_id)
        tick_until(process, have_results(connection, [job_id]))
    assert engine.added == [job_id]
    assert done_entries(connection, [job_id]) == [1]


def test_a_worker_that_stops_gives_its_jobs_back_in_order_and_uncharged(
    settings: Settings, connection: redis.Redis
) -> None:
    """They are at the front again, and their readers are told to begin anew."""
    settings = msgspec.structs.replace(settings, max_batch=4)
    engine = gated()
    assert engine.turns is not None
    ids = submit(connection, "b1", *(job(9) for _ in range(5)))
    with opened(settings, engine) as process:
        engine.turns.release(2)
        tick_until(process, lambda: streamed(connection, ids[0], reasoning=True).count("t") == 2)
        assert len(leases(connection)) == 3
    rq_queue = queue(connection)
    assert rq_queue.get_job_ids() == ids
    assert left_over(connection) == {"normal queued": 5, "attempts": 3}
    assert set(connection.hvals(keys.ATTEMPTS)) == {b"0"}
    assert not connection.exists(keys.WORKERS)
    with opened(settings) as process:
        tick_until(process, have_results(connection, ids))
    assert result(connection, ids[0]).attempt == 1
    kinds = [event.type for event in events(connection, ids[0]) if event.type != "delta"]
    assert kinds == ["start", "restart", "done"]
    assert streamed(connection, ids[0], reasoning=True) == result(connection, ids[0]).thinking


def test_a_job_that_lost_its_lease_is_let_go(settings: Settings, connection: redis.Redis) -> None:
    """Swept and run by somebody else meanwhile: this worker's answer is dropped."""
    engine = gated()
    assert engine.turns is not None
    (job_id,) = submit(connection, "b1", job(5))
    with opened(settings, engine) as process:
        tick_until(process, lambda: leases(connection))
        queue(connection).started_job_registry.cleanup(timestamp=2e9)
        connection.lpop(queue(connection).key)
        connection.zadd(queue(connection).started_job_registry.key, {f"{job_id}:other": 2e9})
        engine.turns.release(100)
        tick_until(process, lambda: workers(connection)[0].state == "idle")
    assert not connection.exists(keys.result(job_id))
    assert leases(connection) == [f"{job_id}:other"]
    assert not connection.xlen(keys.batch_events("b1"))


def test_rq_suspend_and_resume_are_obeyed(settings: Settings, connection: redis.Redis) -> None:
    """The status line says why nothing starts."""
    suspend(connection)
    with opened(settings) as process:
        tick_until(process, lambda: [w.state for w in workers(connection)] == ["paused"])
        (job_id,) = submit(connection, "b1", job(1))
        tick_until(process, lambda: workers(connection)[0].updated > 0)
        assert left_over(connection) == {"normal queued": 1}
        resume(connection)
        tick_until(process, have_results(connection, [job_id]))


def test_the_status_line_and_rq_info_show_the_worker(
    settings: Settings, connection: redis.Redis
) -> None:
    """People watch `thinkq ps` and `rq info`; the line goes away with the worker."""
    engine = gated()
    submit(connection, "b1", job(5))
    with opened(settings, engine) as process:
        tick_until(process, lambda: [w.state for w in workers(connection)] == ["busy"])
        (line,) = connection.hgetall(keys.WORKERS).values()
        status = msgspec.json.decode(line, type=WorkerStatus)
        assert (status.model, status.rows, status.max_batch) == ("fake", 1, settings.max_batch)
        shown = subprocess.run(
            [
                str(Path(sys.executable).with_name("rq")),
                "info",
                "--url",
                settings.effective_redis_url,
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert all(name in shown for name in keys.QUEUES.values())
        assert "1 workers, 3 queues" in shown
        assert f"thinkq-{status.host}-" in shown
        assert leases(connection), "looking must not take the job away"
    assert not connection.exists(keys.WORKERS)


def test_qw_02_a_long_job_keeps_its_lease_whoever_sweeps(
    settings: Settings, connection: redis.Redis
) -> None:
    """It runs longer than a lease lasts, and RQ's sweep finds nothing abandoned."""
    settings = msgspec.structs.replace(settings, heartbeat_s=0.05, lease_s=1.0)
    engine = gated()
    assert engine.turns is not None
    (job_id,) = submit(connection, "b1", job(1))
    registry = queue(connection).started_job_registry
    with opened(settings, engine) as process:
        tick_until(process, lambda: leases(connection))
        (lease,) = leases(connection)
        granted = connection.zscore(registry.key, lease)
        tick_until(process, lambda: connection.zscore(registry.key, lease) != granted)
        registry.cleanup()
        assert leases(connection) == [lease]
        engine.turns.release(10)
        tick_until(process, have_results(connection, [job_id]))
    assert engine.added == [job_id]
