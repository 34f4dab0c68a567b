"""The Python interface."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec
import pytest

from support import wait_until
from support.simulated_worker import SimulatedWorker, answered
from thinkq.client import Client, Job, Message, Result, ThinkqError, keys, stream
from thinkq.client.errors import (
    InvalidBatch,
    InvalidJob,
    JobFailed,
    NotFound,
    RedisUnavailable,
    ResultTimeout,
)
from thinkq.client.settings import Settings, load_settings


@pytest.fixture
def client(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(stream, "BLOCK_MS", 50)
    with Client(settings=settings) as client:
        yield client


def asking(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


def test_jobs_are_submitted_followed_and_their_results_taken(
    client: Client, worker: SimulatedWorker
) -> None:
    built = Job(messages=[Message(role="user", content="built")], custom_id="x")
    batch = client.submit([built, asking("plain")], name="two")
    assert batch.job_ids == [f"{batch.id}-1", f"{batch.id}-2"]
    assert repr(batch) == f"<Batch {batch.id}: 2 jobs>"
    assert batch.status().queued == 2
    worker.work()
    first, second = batch.job_ids
    assert [event.type for event in client.follow(first)] == ["start", "delta", "delta", "done"]
    assert client.result(first).custom_id == "x"
    assert client.result(second, timeout=1).answer == "42"
    assert [result.job_id for result in client.batch(batch.id).results()] == batch.job_ids
    assert [result.job_id for result in batch.completed()] == batch.job_ids


def test_the_same_jobs_are_one_batch_unless_again(client: Client, worker: SimulatedWorker) -> None:
    batch = client.submit([asking("same")])
    assert client.submit([asking("same")]).id == batch.id
    assert client.submit([asking("same")], again=True).id != batch.id
    assert worker.work() == 2


def test_priority_is_that_of_jobs_that_state_none(client: Client, worker: SimulatedWorker) -> None:
    client.submit([asking("a"), asking("b") | {"priority": "high"}], priority="low")
    taken = worker.take()
    assert taken
    assert taken[1].messages[0].content == "b"
    assert worker.connection.llen(f"rq:queue:{keys.QUEUES['low']}") == 1


def test_bad_jobs_are_all_listed_and_none_is_queued(
    client: Client, worker: SimulatedWorker
) -> None:
    with pytest.raises(InvalidBatch, match="nothing was queued: line 2: messages is empty") as told:
        client.submit([asking("good"), {"messages": []}, asking("x") | {"seed": "1"}])
    assert [error.line for error in told.value.errors] == [2, 3]
    assert worker.take() is None
    with pytest.raises(InvalidBatch, match="there are no jobs"):
        client.submit([])


def test_a_job_that_was_changed_since_is_checked_anew(client: Client) -> None:
    job = Job(messages=[Message(role="user", content="x")])
    job.max_tokens = -5
    with pytest.raises(InvalidBatch, match="max_tokens must be at least 1"):
        client.submit([job])


def test_text_that_is_no_unicode_is_told(client: Client) -> None:
    with pytest.raises(InvalidJob, match="lone surrogate"):
        client.submit([asking("\ud800")])


def test_a_result_that_does_not_come_in_time_is_told(
    client: Client, worker: SimulatedWorker
) -> None:
    (job_id,) = client.submit([asking("slow")]).job_ids
    with pytest.raises(ResultTimeout, match="has not ended yet"):
        client.result(job_id, timeout=0.01)
    taken = worker.take()
    assert taken
    worker.commit(answered(*taken))
    assert client.result(job_id, timeout=0.01).answer == "42"


def test_a_job_that_goes_on_writing_does_not_put_off_the_time_out(
    client: Client, worker: SimulatedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is never a quiet second in which the time could be looked at."""
    (job_id,) = client.submit([asking("endless")]).job_ids
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1
        worker.event(job_id, type="delta", is_reasoning="1", text="hm ")
        return now

    monkeypatch.setattr(client, "clock", clock)
    with pytest.raises(ResultTimeout):
        client.result(job_id, timeout=5)
    assert now == 7


def test_a_question_is_asked_before_all_batches(client: Client, worker: SimulatedWorker) -> None:
    def first(job_id: str, job: Job) -> Result:
        return answered(job_id, job, str(len(worker.taken)))

    client.submit([asking("batch")])
    ask = threading.Thread(target=lambda: told.append(client.ask("What?", max_tokens=64)))
    told: list[Result] = []
    ask.start()
    wait_until(lambda: worker.connection.llen(f"rq:queue:{keys.QUEUES['high']}"))
    worker.work(first)
    ask.join()
    assert told[0].require_answer() == "1"


def test_an_answer_that_is_required_is_there_or_the_reason_is_raised() -> None:
    def result(status: str, **fields: object) -> Result:
        values = {"job_id": "b1-1", "status": status, "finish_reason": "stop"} | fields
        return msgspec.convert(values, Result)

    assert result("done", answer="42").require_answer() == "42"
    for kind, ended in {
        "empty_answer": result("done", warnings=["empty_answer"]),
        "cancelled": result("cancelled", answer="4"),
        "worker_crashed": result("failed", error={"kind": "worker_crashed", "message": "3 times"}),
    }.items():
        with pytest.raises(JobFailed) as told:
            ended.require_answer()
        assert told.value.kind == kind


def test_what_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(NotFound):
        client.batch("bnone")
    with pytest.raises(NotFound):
        client.result("bnone-1")


def test_a_server_that_is_away_is_a_thinkq_error(settings: Settings) -> None:
    nowhere = load_settings({}, home=settings.home)
    with Client(settings=nowhere) as client, pytest.raises(RedisUnavailable, match="daemon start"):
        client.submit([asking("x")])
    assert issubclass(RedisUnavailable, ThinkqError)


def test_a_url_wins_over_the_settings(settings: Settings) -> None:
    with Client("redis://localhost:1/0", settings=settings) as client:
        assert client.settings.redis_url == "redis://localhost:1/0"


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = (
        "import sys, thinkq.client\n"
        "heavy = {'redis', 'rq', 'click', 'rich', 'mlx', 'thinkq.worker', 'thinkq.daemon'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "from thinkq.client import Batch, Client, Event, Job, Message, Result, ThinkqError\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"
