"""The command line with a real server and a worker that follows the protocol."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from support import wait_until
from support.jobfiles import results_of, rows, write_jobs
from support.simulated_worker import SimulatedWorker, answered
from thinkq.client import batches, stream
from thinkq.client.cli import main
from thinkq.client.job import Job
from thinkq.client.result import Result
from thinkq.client.settings import Settings

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def environment(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command reads its settings from the environment, and works in a directory of its own."""
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setenv("THINKQ_REDIS_URL", str(settings.redis_url))
    monkeypatch.setattr(stream, "BLOCK_MS", 50)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file of three jobs that only this test has."""
    path = tmp_path / "jobs.jsonl"
    write_jobs(path, request.node.name)
    return path


def by_custom_id(answers: dict[str, str]) -> Callable[[str, Job], Result]:
    """Answers by custom_id; no answer fails the job."""

    def answer(job_id: str, job: Job) -> Result:
        text = answers.get(job.custom_id or "")
        if text is None:
            error = {"kind": "internal", "message": "no"}
            return answered(job_id, job, "", status="failed", finish_reason="error", error=error)
        return answered(job_id, job, text)

    return answer


def test_run_writes_all_rows_in_input_order_and_sums_up(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    with worker.at_work():
        assert main(["run", "jobs.jsonl"]) == 0
    assert [row["custom_id"] for row in rows(results_of(jobs))] == ["c1", "c2", "c3"]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "using the small demo model" in captured.err
    assert "3 done, 0 failed, 0 empty, 0 cancelled, 0 cut by max_tokens" in captured.err
    assert "thinking closed: 3 natural, 0 budget, 0 loop" in captured.err
    assert "9 thinking and 6 answer tokens" in captured.err


def test_bu_17_an_empty_or_failed_job_is_counted_and_makes_exit_code_3(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    """BU-17, BF-22: what has no answer never looks like a success."""
    with worker.at_work(by_custom_id({"c1": "42", "c2": ""})):
        assert main(["run", "jobs.jsonl"]) == 3
    err = capsys.readouterr().err
    assert "2 done, 1 failed, 1 empty" in err
    assert "--retry-failed runs those again" in err


def test_the_same_run_again_runs_nothing(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    with worker.at_work():
        main(["run", "jobs.jsonl"])
    before = results_of(jobs).read_bytes()
    assert main(["run", "jobs.jsonl"]) == 0
    err = capsys.readouterr().err
    assert "3 rows are there already, 0 jobs to go" in err
    assert "tokens/s" not in err.splitlines()[-2]
    assert results_of(jobs).read_bytes() == before
    assert len(worker.taken) == 3


def test_a_batch_that_has_finished_writes_its_file_at_once(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    with worker.at_work():
        main(["run", "jobs.jsonl"])
        results_of(jobs).unlink()
        assert main(["run", "jobs.jsonl"]) == 0
    assert len(worker.taken) == 3
    assert "had finished already" in capsys.readouterr().err
    assert len(rows(results_of(jobs))) == 3


def test_bf_20_retry_failed_runs_what_has_no_answer(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    """BF-20: the failed and the empty job, and no other."""
    with worker.at_work(by_custom_id({"c1": "42", "c2": ""})):
        assert main(["run", "jobs.jsonl"]) == 3
        assert main(["run", "jobs.jsonl"]) == 3
    assert len(worker.taken) == 3
    with worker.at_work():
        assert main(["run", "jobs.jsonl", "--retry-failed"]) == 0
    assert len(worker.taken) == 5
    assert "2 jobs without an answer are run again" in capsys.readouterr().err
    assert [row["answer"] for row in rows(results_of(jobs))] == ["42"] * 3


def test_bf_20_a_changed_line_alone_is_run(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    """BF-20: the other rows stay, and the summary says how many have changed."""
    with worker.at_work():
        main(["run", "jobs.jsonl"])
        jobs.write_text(jobs.read_text().replace(' 2"', ' 22"'))
        capsys.readouterr()
        assert main(["run", "jobs.jsonl"]) == 0
    err = capsys.readouterr().err
    assert "1 lines have changed since their row was written: run anew" in err
    assert "2 rows are there already, 1 jobs to go" in err
    assert len(worker.taken) == 4
    assert [row["line"] for row in rows(results_of(jobs))] == [1, 2, 3]


def test_again_runs_all_jobs_anew(worker: SimulatedWorker, jobs: Path) -> None:
    with worker.at_work():
        main(["run", "jobs.jsonl"])
        assert main(["run", "jobs.jsonl", "--again"]) == 0
    assert len(worker.taken) == 6
    assert len(rows(results_of(jobs))) == 3


def test_bf_07_a_bad_line_queues_nothing_and_every_bad_line_is_listed(
    worker: SimulatedWorker, connection: redis.Redis, jobs: Path, capsys: Capture
) -> None:
    """BF-07: the default policy."""
    jobs.write_text(jobs.read_text() + "{\n" + '{"messages": []}\n')
    before = batches.batch_ids(connection)
    for command in (["run", "jobs.jsonl"], ["submit", "jobs.jsonl"]):
        assert main(command) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "line 4: not JSON" in captured.err
        assert "line 5: messages is empty" in captured.err
        assert "2 of 5 lines cannot run, so nothing was queued" in captured.err
    assert batches.batch_ids(connection) == before
    assert not results_of(jobs).exists()


@pytest.mark.parametrize("form", ["thinkq", "openai"])
def test_bf_07_skip_invalid_runs_the_good_lines_and_gives_each_bad_one_a_row(
    worker: SimulatedWorker, tmp_path: Path, form: str
) -> None:
    """BF-07: the other policy."""
    jobs = tmp_path / "some.jsonl"
    write_jobs(jobs, f"skip {form}", 2)
    jobs.write_text("{\n" + jobs.read_text())
    with worker.at_work():
        command = ["run", "some.jsonl", "--skip-invalid", "--format", form]
        assert main(command) == 3
        assert main(command) == 3
    assert len(worker.taken) == 2
    written = rows(results_of(jobs))
    assert [row["custom_id"] for row in written] == [None, "c1", "c2"]
    assert "not JSON" in written[0]["error"]["message"]


def test_the_model_and_other_options_reach_the_jobs(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    seen: list[Job] = []

    def answer(job_id: str, job: Job) -> Result:
        seen.append(job)
        return answered(job_id, job)

    with worker.at_work(answer):
        options = ["--model", "m", "--effort", "high", "--budget", "50", "--max-tokens", "100"]
        assert main(["run", "jobs.jsonl", *options]) == 0
    assert {
        (job.model, job.reasoning_effort, job.thinking_token_budget, job.max_tokens) for job in seen
    } == {("m", "high", 50, 100)}
    assert "demo model" not in capsys.readouterr().err


def test_rows_go_to_stdout_in_order_when_the_input_is_stdin(
    worker: SimulatedWorker, jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with jobs.open() as stdin, worker.at_work():
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["run", "-"]) == 0
    written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["line"] for row in written] == [1, 2, 3]


def test_submit_prints_the_id_that_status_and_results_take(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    assert main(["submit", "jobs.jsonl"]) == 0
    batch = capsys.readouterr().out.strip()
    assert main(["status", batch, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["batch"], status["total"], status["queued"]) == (batch, 3, 3)
    worker.work()
    assert main(["results", batch]) == 0
    written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["custom_id"] for row in written] == ["c1", "c2", "c3"]
    assert main(["status"]) == 0
    assert f"{batch}  jobs.jsonl: 3/3" in capsys.readouterr().out


def test_results_and_run_write_the_same_rows(
    worker: SimulatedWorker, jobs: Path, tmp_path: Path, capsys: Capture
) -> None:
    """So a file that `results` wrote is one that `run` goes on with."""
    with worker.at_work():
        main(["run", "jobs.jsonl"])
    batch = rows(results_of(jobs))[0]["job_id"].rpartition("-")[0]
    assert main(["results", batch, "-o", "again.jsonl"]) == 0
    assert (tmp_path / "again.jsonl").read_bytes() == results_of(jobs).read_bytes()


def test_results_of_a_batch_that_runs_says_how_many_are_missing(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    main(["submit", "jobs.jsonl"])
    batch = capsys.readouterr().out.strip()
    taken = worker.take()
    assert taken
    worker.commit(answered(*taken))
    assert main(["results", batch]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert "2 of 3 jobs have not ended yet" in captured.err


def test_submit_and_wait_ends_with_the_exit_code_of_the_batch(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    with worker.at_work(by_custom_id({"c1": "42", "c3": "1"})):
        assert main(["submit", "jobs.jsonl", "--wait", "--priority", "low"]) == 3
    assert "2 done, 1 failed" in capsys.readouterr().err


def test_ask_streams_thinking_to_stderr_and_the_answer_to_stdout(
    worker: SimulatedWorker, capsys: Capture
) -> None:
    asked: list[Job] = []

    def answer(job_id: str, job: Job) -> Result:
        asked.append(job)
        return answered(job_id, job)

    with worker.at_work(answer):
        assert main(["ask", "What is 6 * 7?"]) == 0
        assert main(["ask", "What is 6 * 7?"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "42\n42\n"
    assert "hm" in captured.err
    assert [job.priority for job in asked] == ["high", "high"]


def test_ask_says_when_there_is_no_answer(worker: SimulatedWorker, capsys: Capture) -> None:
    with worker.at_work(by_custom_id({})):
        assert main(["ask", "hopeless"]) == 3
    assert "the job failed: no" in capsys.readouterr().err


def test_watch_follows_a_job_or_a_batch(
    worker: SimulatedWorker, jobs: Path, capsys: Capture
) -> None:
    main(["submit", "jobs.jsonl"])
    batch = capsys.readouterr().out.strip()
    worker.work()
    assert main(["watch", f"{batch}-2"]) == 0
    assert capsys.readouterr().out == "42\n"
    assert main(["watch", batch]) == 0
    assert "3 done" in capsys.readouterr().err
    assert main(["watch", "nothing-1"]) == 2


def test_a_server_that_does_not_answer_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    monkeypatch.setenv("THINKQ_REDIS_URL", f"unix://{tmp_path}/none.sock")
    for command in (["status"], ["ask", "hi"]):
        assert main(command) == 1
        assert capsys.readouterr().err.strip().splitlines()[-1] == (
            f"thinkq: no Redis answers at {tmp_path}/none.sock; "
            "start it, or correct redis_url (THINKQ_REDIS_URL)"
        )


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "thinkq.client", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_bf_19_a_run_killed_in_the_middle_has_its_rows_and_the_next_one_the_rest(
    worker: SimulatedWorker, tmp_path: Path
) -> None:
    """BF-19: SIGKILL after 40 of 100 rows; the second run has 100, each once, none run twice."""
    jobs = tmp_path / "hundred.jsonl"
    write_jobs(jobs, "hundred", 100)
    worker.register()
    process = start("run", "hundred.jsonl")
    wait_until(lambda: worker.connection.llen("rq:queue:thinkq:normal") == 100)
    for _ in range(40):
        taken = worker.take()
        assert taken
        worker.commit(answered(*taken))
    written = results_of(jobs)
    wait_until(lambda: written.exists() and len(written.read_bytes().splitlines()) == 40)
    process.kill()
    process.communicate()

    assert sorted(row["line"] for row in rows(written)) == list(range(1, 41))
    with worker.at_work():
        assert main(["run", "hundred.jsonl"]) == 0
    assert [row["line"] for row in rows(written)] == list(range(1, 101))
    assert len(worker.taken) == 100


def test_an_interrupted_run_says_how_to_go_on(worker: SimulatedWorker, jobs: Path) -> None:
    worker.register()
    process = start("run", "jobs.jsonl")
    wait_until(lambda: worker.connection.llen("rq:queue:thinkq:normal") == 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert b"the same command goes on with them" in err
    assert b"Traceback" not in err


def test_bf_23_text_survives_a_process_without_a_locale(
    worker: SimulatedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BF-23: as under launchd; bytes in, the same bytes out."""
    jobs = tmp_path / "unicode.jsonl"
    messages = [{"role": "user", "content": "unicode é你🔥"}]
    job = {"custom_id": "é你🔥", "messages": messages, "metadata": {"text": "é你🔥"}}
    jobs.write_text(json.dumps(job, ensure_ascii=False), "utf-8")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    monkeypatch.delenv("LANG", raising=False)
    with worker.at_work(lambda job_id, job: answered(job_id, job, "é你🔥")):
        for command in (["run", "unicode.jsonl"], ["ask", "é你🔥"]):
            process = start(*command)
            out, err = process.communicate()
            assert process.returncode == 0, err
    assert out == "é你🔥\n".encode()
    assert results_of(jobs).read_bytes().count("é你🔥".encode()) == 3
