"""Whole runs over batch files as users have them: duplicates, kills, other orders, other forms."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from rq.job import Job as RQJob

from support import wait_until
from support.jobfiles import lines_of, results_of, rows, write_jobs
from support.processes import environment
from support.simulated_worker import Answer, SimulatedWorker, answered
from thinkq.client import batches, keys, stream
from thinkq.client.cli import main
from thinkq.client.job import Job
from thinkq.client.result import JobError, Result
from thinkq.client.settings import Settings

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The commands take their settings from the environment, in a directory of their own."""
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setenv("THINKQ_REDIS_URL", settings.effective_redis_url)
    monkeypatch.setattr(stream, "BLOCK_MS", 50)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs.jsonl"


@contextmanager
def running(settings: Settings, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`thinkq run` in a process of its own; killed at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "thinkq.client", "run", *arguments],
        env=environment(THINKQ_HOME=settings.home, THINKQ_REDIS_URL=settings.effective_redis_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def taken(worker: SimulatedWorker, number: int) -> list[tuple[str, Job]]:
    """So many jobs, once they are queued, taken by the worker."""
    worker.register()
    wait_until(lambda: worker.connection.llen("rq:queue:thinkq:normal") == number)
    found = [worker.take() for _ in range(number)]
    return [item for item in found if item]


def wait_for_rows(path: Path, number: int) -> None:
    """Wait until the file has so many rows."""
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") == number)


def openai_line(custom_id: str, content: str, **body: Any) -> str:
    messages = [{"role": "user", "content": content}]
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions"}
    return json.dumps(line | {"body": {"messages": messages} | body}) + "\n"


def test_bf_09_a_custom_id_used_twice_queues_nothing_and_names_both_lines(
    jobs: Path, connection: redis.Redis, capsys: Capture
) -> None:
    write_jobs(jobs, "twice", 2)
    jobs.write_text(jobs.read_text() + jobs.read_text().splitlines()[0])
    before = connection.zcard(keys.BATCHES)
    assert main(["run", "jobs.jsonl"]) == 2
    assert "line 3: line 1 already has this custom_id" in capsys.readouterr().err
    assert connection.zcard(keys.BATCHES) == before


def test_bf_09_of_a_custom_id_used_twice_the_first_line_runs_and_the_second_is_an_error_row(
    jobs: Path, worker: SimulatedWorker, capsys: Capture
) -> None:
    """Also when the rows are read again: the error is not taken for the answer."""
    write_jobs(jobs, "skip twice", 2)
    jobs.write_text(jobs.read_text() + jobs.read_text().splitlines()[0])
    with worker.at_work():
        for _ in range(2):
            assert main(["run", "jobs.jsonl", "--skip-invalid"]) == 3
            written = rows(results_of(jobs))
            assert [row["custom_id"] for row in written] == ["c1", "c2", "c1"]
            assert [row["status"] for row in written] == ["done", "done", "failed"]
    assert len(worker.taken) == 2
    assert "have changed" not in capsys.readouterr().err


def test_lines_that_cannot_run_are_not_said_to_be_worth_a_retry(
    jobs: Path, worker: SimulatedWorker, capsys: Capture
) -> None:
    write_jobs(jobs, "no retry", 2)
    jobs.write_text("{\n" + jobs.read_text())
    with worker.at_work():
        assert main(["run", "jobs.jsonl", "--skip-invalid"]) == 3
        err = capsys.readouterr().err
        assert "1 of the failed are lines that could not run" in err
        assert "--retry-failed" not in err
    with worker.at_work(failing("c2")):
        assert main(["run", "jobs.jsonl", "--skip-invalid", "--again"]) == 3
    assert "--retry-failed" in capsys.readouterr().err


def test_bf_10_the_same_custom_id_in_two_files_has_its_own_answer_in_each(
    tmp_path: Path, worker: SimulatedWorker
) -> None:
    with worker.at_work(lambda id, job: answered(id, job, f"to {job.messages[0].content}")):
        for topic in ("x", "y"):
            write_jobs(tmp_path / topic, topic, 1)
            assert main(["run", topic]) == 0
    (x,), (y,) = rows(results_of(tmp_path / "x")), rows(results_of(tmp_path / "y"))
    assert (x["custom_id"], y["custom_id"]) == ("c1", "c1")
    assert (x["answer"], y["answer"]) == ("to x 1", "to y 1")
    assert x["job_id"] != y["job_id"]


@pytest.mark.parametrize("form", ["thinkq", "openai"])
def test_bf_11_a_custom_id_comes_back_as_it_was(
    jobs: Path, worker: SimulatedWorker, form: str
) -> None:
    custom_ids = [" a ", "\t", "é", "e\u0301", "line-9", "0"]
    jobs.write_text("".join(openai_line(id, f"{form} {id}") for id in custom_ids))
    with worker.at_work():
        assert main(["run", "jobs.jsonl", "--format", form]) == 0
    assert [row["custom_id"] for row in rows(results_of(jobs))] == custom_ids


def test_bf_19_what_ended_while_a_killed_run_was_away_is_not_run_again(
    jobs: Path, settings: Settings, worker: SimulatedWorker
) -> None:
    """SIGKILL after 20 of 100 rows, 50 jobs end in between, the file has a torn row."""
    write_jobs(jobs, "away", 100)
    out = results_of(jobs)
    with running(settings, "jobs.jsonl") as process:
        held = taken(worker, 100)
        for item in reversed(held[80:]):
            worker.commit(answered(*item))
        wait_for_rows(out, 20)
        process.kill()
        process.wait()
    before = out.read_bytes()
    for item in held[:50]:
        worker.commit(answered(*item))
    out.write_bytes(before + before[:200])
    with running(settings, "jobs.jsonl") as process:
        wait_for_rows(out, 70)
        for item in held[50:80]:
            worker.commit(answered(*item))
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert b"20 rows are there already, 80 jobs to go" in err
    assert lines_of(out) == list(range(1, 101))
    assert set(before.splitlines()) < set(out.read_bytes().splitlines())
    assert len(worker.taken) == 100


@pytest.mark.parametrize(
    ("options", "run"), [([], ["c2", "c4"]), (["--retry-failed"], ["c2", "c3", "c4"])]
)
def test_bf_20_what_has_no_complete_row_is_run(
    jobs: Path, worker: SimulatedWorker, options: list[str], run: list[str]
) -> None:
    """BF-20: c1 is done, c2 was started and killed, c3 has an error row, c4 was never started."""
    write_jobs(jobs, f"state {options}", 4)
    out = results_of(jobs)
    with worker.at_work(failing("c3")):
        assert main(["run", "jobs.jsonl"]) == 3
    done, started, failed, _ = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(done + failed + started[:-10])
    # Nothing but the file remembers.
    assert main(["rm", keys.batch_of(worker.taken[0])]) == 0
    worker.taken.clear()
    with worker.at_work():
        assert main(["run", "jobs.jsonl", *options]) == (0 if options else 3)
    assert [f"c{batches.line_of(id)}" for id in worker.taken] == run
    assert lines_of(out) == [1, 2, 3, 4]


def failing(*custom_ids: str) -> Answer:
    """These jobs do not fit the context."""
    error = JobError("context_length_exceeded", "5000 tokens are more than 4096")

    def answer(job_id: str, job: Job) -> Result:
        if job.custom_id not in custom_ids:
            return answered(job_id, job)
        return answered(job_id, job, "", status="failed", finish_reason="error", error=error)

    return answer


def test_retry_failed_runs_jobs_from_the_file_that_redis_no_longer_has(
    jobs: Path, worker: SimulatedWorker
) -> None:
    """RQ's part of a job may be gone before its result is."""
    write_jobs(jobs, "no longer", 2)
    with worker.at_work(failing("c2")):
        assert main(["run", "jobs.jsonl"]) == 3
    worker.connection.delete(*map(RQJob.key_for, worker.taken))
    with worker.at_work():
        assert main(["run", "jobs.jsonl", "--retry-failed"]) == 0
    assert [batches.line_of(id) for id in worker.taken] == [1, 2, 2]


@pytest.mark.parametrize(("options", "order"), [([], [1, 2, 3]), (["--unordered"], [3, 1, 2])])
def test_bf_21_rows_come_as_jobs_end_and_the_file_is_sorted_at_the_end(
    jobs: Path, settings: Settings, worker: SimulatedWorker, options: list[str], order: list[int]
) -> None:
    write_jobs(jobs, f"order {options}", 3)
    out = results_of(jobs)
    with running(settings, "jobs.jsonl", *options) as process:
        held = taken(worker, 3)
        for line, so_far in ((3, [3]), (1, [3, 1])):
            worker.commit(answered(*held[line - 1]))
            wait_for_rows(out, len(so_far))
            assert lines_of(out) == so_far
        worker.commit(answered(*held[1]))
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert lines_of(out) == order
    assert [row["custom_id"] for row in rows(out)] == [f"c{line}" for line in order]


@pytest.mark.parametrize(("options", "order"), [([], [1, 2, 3]), (["--unordered"], [3, 1, 2])])
def test_bf_21_rows_for_a_pipe_are_in_order_too(
    jobs: Path, settings: Settings, worker: SimulatedWorker, options: list[str], order: list[int]
) -> None:
    write_jobs(jobs, f"pipe {options}", 3)
    with running(settings, "jobs.jsonl", "-o", "-", *options) as process:
        held = taken(worker, 3)
        for line in (3, 1, 2):
            worker.commit(answered(*held[line - 1]))
        out, err = process.communicate()
        assert process.returncode == 0, err
    assert [json.loads(row)["line"] for row in out.splitlines()] == order


def test_bf_22_a_failed_request_is_an_error_row_and_counts_as_failed(
    jobs: Path, worker: SimulatedWorker, capsys: Capture
) -> None:
    jobs.write_text("".join(openai_line(f"c{n}", f"too long {n}") for n in (1, 2, 3)))
    with worker.at_work(failing("c2")):
        assert main(["run", "jobs.jsonl", "--format", "openai"]) == 3
    good, bad, also_good = rows(results_of(jobs))
    assert bad["custom_id"] == "c2"
    assert bad["response"] is None
    assert bad["error"] == {
        "code": "context_length_exceeded",
        "message": "5000 tokens are more than 4096",
    }
    for row in (good, also_good):
        assert row["error"] is None
        assert row["response"]["status_code"] == 200
    capsys.readouterr()
    assert main(["status", keys.batch_of(worker.taken[0]), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["total"], status["done"], status["failed"]) == (3, 2, 1)


def test_a_model_that_is_asked_for_replaces_that_of_openai_lines_alone(
    jobs: Path, worker: SimulatedWorker
) -> None:
    """Their files name OpenAI's models; a thinkq line that names one means it."""
    write_jobs(jobs, "model", 1, model="mine")
    jobs.write_text(jobs.read_text() + openai_line("o", "model", model="gpt-4o-mini"))
    models: list[str | None] = []

    def note(job_id: str, job: Job) -> Result:
        models.append(job.model)
        return answered(job_id, job)

    with worker.at_work(note):
        assert main(["run", "jobs.jsonl", "--again"]) == 0
        assert main(["run", "jobs.jsonl", "--again", "--model", "demo"]) == 0
    assert models == ["mine", "gpt-4o-mini", "mine", "demo"]


def test_submit_takes_what_run_takes(
    jobs: Path, connection: redis.Redis, worker: SimulatedWorker, capsys: Capture
) -> None:
    write_jobs(jobs, "submit", 1)
    jobs.write_text("{\n" + jobs.read_text())
    options = ["--model", "m", "--effort", "high", "--budget", "50", "--max-tokens", "100"]
    assert main(["submit", "jobs.jsonl", *options]) == 2
    capsys.readouterr()
    assert main(["submit", "jobs.jsonl", "--skip-invalid", "--name", "mine", *options]) == 0
    out, err = capsys.readouterr()
    assert "skipped: line 1: not JSON" in err
    status = batches.status(connection, out.strip())
    assert (status.name, status.total) == ("mine", 1)
    found = worker.take()
    assert found
    job = found[1]
    assert (job.model, job.reasoning_effort) == ("m", "high")
    assert (job.thinking_token_budget, job.max_tokens) == (50, 100)


def test_submit_of_a_file_without_a_good_line_queues_nothing(
    jobs: Path, connection: redis.Redis, capsys: Capture
) -> None:
    jobs.write_text("{\n")
    before = connection.zcard(keys.BATCHES)
    assert main(["submit", "jobs.jsonl", "--skip-invalid"]) == 2
    out, err = capsys.readouterr()
    assert "nothing was queued: no line can run" in err
    assert (out, connection.zcard(keys.BATCHES)) == ("", before)
