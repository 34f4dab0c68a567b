"""The pretended queue behaves as the real one: the same tests run against both.

The real side is a real server, and a worker that is told by the same scripted answers what to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from support.simulated_worker import SimulatedWorker
from thinkq.client import Client, Event, Job, Message, Result, stream
from thinkq.client.cancel import Cancellation
from thinkq.client.errors import (
    InvalidBatch,
    InvalidJob,
    JobFailed,
    NotFinished,
    NotFound,
    ResultTimeout,
)
from thinkq.client.result import JobError
from thinkq.client.settings import Settings
from thinkq.client.testing import MemoryClient, Reply, ScriptedAnswers
from thinkq.client.testing.row import Row

ANSWERS = ScriptedAnswers(
    {
        "sum": Reply("2 + 2 is 4.", thinking="I add two and two. "),
        "plain": "yes",
        "empty": Reply(thinking="Hm. "),
        "loop": Reply("42", thinking="Let me see. ", loop="Wait, check again. "),
        "fails": Reply(error=JobError("worker_crashed", "it ended the worker 3 times")),
        "never": Reply(delay=math.inf),
    }
)


@pytest.fixture(params=["memory", "real"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client whose jobs are worked on while the test runs."""
    if request.param == "memory":
        yield MemoryClient(ANSWERS)
        return
    settings: Settings = request.getfixturevalue("settings")
    request.getfixturevalue("monkeypatch").setattr(stream, "BLOCK_MS", 50)
    with Client(settings=settings) as client, SimulatedWorker(client.connection).at_work(scripted):
        yield client
        client.connection.delete("rq:workers:thinkq:normal", "rq:worker:simulated")


@pytest.fixture(params=["memory", "real"])
def unserved(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a queue in which every job still waits."""
    if request.param == "memory":
        yield MemoryClient(ANSWERS)
        return
    with Client(settings=request.getfixturevalue("settings")) as client:
        yield client


def scripted(job_id: str, job: Job) -> Result | None:
    """What the worker says; nothing for a job that never ends."""
    reply = ANSWERS.reply_to(job)
    return None if reply.delay else Row(job_id, job, reply).run()


def asking(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def told(events: list[Event]) -> tuple[list[str], str, str]:
    """The kinds of events, each once in a row, and both texts."""
    kinds: list[str] = [event.type for event in events]
    short = [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before]
    thinking = "".join(event.text for event in events if event.is_reasoning)
    return short, thinking, "".join(event.text for event in events if not event.is_reasoning)


def test_jobs_are_submitted_followed_and_their_results_taken(client: Client) -> None:
    built = Job(messages=[Message(role="user", content="sum")], custom_id="x", metadata={"a": 1})
    batch = client.submit([built, asking("plain")], name="two")
    assert batch.job_ids == [f"{batch.id}-1", f"{batch.id}-2"]
    assert repr(batch) == f"<Batch {batch.id}: 2 jobs>"
    first, second = batch.job_ids
    events = list(client.follow(first))
    assert told(events) == (["start", "delta", "done"], "I add two and two. ", "2 + 2 is 4.")
    short = msgspec.json.decode(events[-1].result, type=Result)
    assert (short.answer, short.thinking) == ("", None)
    result = client.result(first, timeout=10)
    assert (result.thinking, result.answer) == ("I add two and two. ", "2 + 2 is 4.")
    assert (result.custom_id, result.metadata, result.close_reason) == ("x", {"a": 1}, "natural")
    assert client.result(second).require_answer() == "yes"


def test_a_reader_resumes_after_any_event(client: Client) -> None:
    (job_id,) = client.submit([asking("sum", custom_id="resume")]).job_ids
    events = list(client.follow(job_id))
    for number, event in enumerate(events):
        assert list(client.follow(job_id, after=event.id)) == events[number + 1 :]


def test_every_result_comes_once(client: Client) -> None:
    prompts = ["sum", "plain", "empty", "loop", "fails"]
    batch = client.submit([asking(prompt) for prompt in prompts])
    completed = list(batch.completed())
    assert sorted(result.job_id for result in completed) == batch.job_ids
    assert list(batch.results()) == sorted(completed, key=lambda result: result.job_id)
    assert list(client.batch(batch.id).completed()) == list(batch.results())


def test_a_status_counts(client: Client) -> None:
    batch = client.submit([asking("sum"), asking("empty"), asking("fails")], name="counted")
    list(batch.completed())
    status = batch.status()
    assert (status.batch, status.name, status.total) == (batch.id, "counted", 3)
    assert (status.done, status.failed, status.empty) == (2, 1, 1)
    assert (status.queued, status.running) == (0, 0)
    assert status.closes == {"natural": 2, "none": 1}
    assert (status.thinking_tokens, status.answer_tokens) == (6, 5)
    assert status.finished


def test_the_same_jobs_are_one_batch_unless_again(client: Client) -> None:
    """And the id is the same everywhere: the jobs decide it."""
    batch = client.submit([asking("plain")])
    assert batch.id == "bacb6f036071a"
    assert client.submit([asking("plain")]).id == batch.id
    assert client.submit([asking("plain")], again=True).id != batch.id
    assert (
        client.submit_lines({7: Job(messages=[Message(role="user", content="sum")])})
        .job_ids[0]
        .endswith("-7")
    )


def test_bad_jobs_are_refused_in_the_same_words(client: Client) -> None:
    with pytest.raises(InvalidBatch, match="nothing was queued: line 2: messages is empty") as all:
        client.submit([asking("plain"), {"messages": []}, asking("x", sede=1)])
    assert [error.code for error in all.value.errors] == ["empty_messages", "unknown_field:sede"]
    with pytest.raises(InvalidBatch, match="there are no jobs"):
        client.submit([])
    with pytest.raises(InvalidJob, match="lone surrogate"):
        client.submit([asking("\ud800")])


def test_what_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(NotFound, match="there is no batch 'bnone'"):
        client.batch("bnone")
    with pytest.raises(NotFound, match="there is no batch 'bnone'"):
        client.status("bnone")
    with pytest.raises(NotFound, match="there is no job 'bnone-1'"):
        client.result("bnone-1")
    with pytest.raises(NotFound, match="there is no job 'bnone-1'"):
        next(client.follow("bnone-1"))


def test_failures_and_empty_answers_are_told(client: Client) -> None:
    assert client.ask("plain", max_tokens=64).answer == "yes"
    for prompt, kind in {"fails": "worker_crashed", "empty": "empty_answer"}.items():
        with pytest.raises(JobFailed) as failed:
            client.ask(prompt).require_answer()
        assert failed.value.kind == kind


def test_a_job_that_does_not_end_in_time_is_told(client: Client) -> None:
    (job_id,) = client.submit([asking("never")]).job_ids
    with pytest.raises(ResultTimeout, match="has not ended yet"):
        client.result(job_id, timeout=0.01)
    with pytest.raises(KeyboardInterrupt):
        next(iter(client.batch(job_id.rpartition("-")[0]).completed(idle=interrupt)))


def test_jobs_without_an_answer_are_retried(client: Client) -> None:
    batch = client.submit([asking("sum"), asking("fails"), asking("empty")], name="retried")
    assert batch.new_jobs == 3
    list(batch.completed())
    assert client.retry(batch.id) == 2
    assert [result.status for result in sorted(batch.completed(), key=by_id)] == [
        "done",
        "failed",
        "done",
    ]
    status = batch.status()
    assert (status.done, status.failed, status.empty) == (2, 1, 1)
    assert client.submit([asking("sum"), asking("fails"), asking("empty")]).new_jobs == 0


def test_a_batch_that_has_ended_can_be_removed(client: Client) -> None:
    batch = client.submit([asking("sum", custom_id="removed")])
    list(batch.completed())
    client.remove(batch.id)
    for gone in (client.remove, client.batch, client.status, client.retry, client.cancel):
        with pytest.raises(NotFound):
            gone(batch.id)
    with pytest.raises(NotFound):
        client.result(batch.job_ids[0])
    assert client.submit([asking("sum", custom_id="removed")]).new_jobs == 1


def test_jobs_that_wait_are_cancelled(unserved: Client) -> None:
    batch = unserved.submit([asking("plain"), asking("sum")], name="cancelled")
    with pytest.raises(NotFinished):
        unserved.remove(batch.id)
    assert unserved.cancel(batch.job_ids[1]) == Cancellation(cancelled=1)
    assert unserved.cancel(batch.id) == Cancellation(cancelled=1, ended=1)
    assert unserved.cancel(batch.id) == Cancellation(ended=2)
    for result in batch.completed():
        assert (result.status, result.finish_reason, result.answer) == (
            "cancelled",
            "cancelled",
            "",
        )
    assert [event.type for event in unserved.follow(batch.job_ids[0])][-1] == "done"
    assert batch.status().cancelled == 2
    with pytest.raises(NotFound):
        unserved.cancel("bnone-1")


def by_id(result: Result) -> str:
    return result.job_id


def interrupt() -> None:
    raise KeyboardInterrupt
