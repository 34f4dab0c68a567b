"""One question on the command line, as its own process, on a real Redis."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import redis

from support import wait_until
from support.processes import environment
from support.simulated_worker import SimulatedWorker, answered
from thinkq.client import batches, keys
from thinkq.client.cli import main
from thinkq.client.job import Job
from thinkq.client.result import Result
from thinkq.client.settings import Settings


def ask(settings: Settings, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `thinkq ask` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "thinkq.client", "ask", *arguments],
        env=environment(THINKQ_HOME=settings.home, THINKQ_REDIS_URL=settings.effective_redis_url),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


class Listening:
    """Answers each job, and keeps it."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(self, job_id: str, job: Job) -> Result:
        self.jobs.append(job)
        return answered(job_id, job)


def contents(job: Job) -> list[tuple[str, object]]:
    return [(message.role, message.content) for message in job.messages]


def test_the_answer_is_stdout_and_the_thinking_stderr(
    settings: Settings, worker: SimulatedWorker
) -> None:
    """So `answer=$(thinkq ask ...)` holds the answer alone."""
    heard = Listening()
    with worker.at_work(heard):
        asked = ask(settings, "What?", stdin=subprocess.DEVNULL)
    assert (asked.returncode, asked.stdout) == (0, "42\n")
    assert "hm" in asked.stderr
    (job,) = heard.jobs
    assert (contents(job), job.priority) == ([("user", "What?")], "high")
    assert job.enable_thinking is None


def test_piped_text_comes_before_the_question_and_a_system_message_before_all(
    settings: Settings, worker: SimulatedWorker
) -> None:
    """As `git diff | thinkq ask ... --system ... --no-thinking`."""
    heard = Listening()
    with worker.at_work(heard):
        asked = ask(
            settings, "Sum it up.", "--system", "Be short.", "--no-thinking", input="é notes\n\n"
        )
    assert asked.returncode == 0, asked.stderr
    (job,) = heard.jobs
    assert contents(job) == [("system", "Be short."), ("user", "é notes\n\nSum it up.")]
    assert job.enable_thinking is False


def test_a_pipe_that_nobody_writes_to_does_not_hold_the_question_up(
    settings: Settings, worker: SimulatedWorker
) -> None:
    """Whoever starts the command may have left one open."""
    heard = Listening()
    read, write = os.pipe()
    try:
        with worker.at_work(heard):
            asked = ask(settings, "What?", stdin=read)
    finally:
        os.close(read)
        os.close(write)
    assert asked.returncode == 0
    assert "goes without it" in asked.stderr
    assert contents(heard.jobs[0]) == [("user", "What?")]


def test_json_is_the_whole_result_in_one_line(settings: Settings, worker: SimulatedWorker) -> None:
    with worker.at_work():
        asked = ask(settings, "What?", "--json", stdin=subprocess.DEVNULL)
    (line,) = asked.stdout.splitlines()
    fields = json.loads(line)
    assert (fields["answer"], fields["thinking"], fields["status"]) == ("42", "hm", "done")


def test_ctrl_c_cancels_the_job(
    settings: Settings, connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """Nobody waits for it any more."""
    worker.register()
    for batch in batches.batch_ids(connection):
        connection.zrem(keys.BATCHES, batch)
    with subprocess.Popen(
        [sys.executable, "-m", "thinkq.client", "ask", "What?"],
        env=environment(THINKQ_HOME=settings.home, THINKQ_REDIS_URL=settings.effective_redis_url),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: _asked(connection))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the job is cancelled" in said
    assert "Traceback" not in said
    (batch,) = batches.batch_ids(connection)
    assert batches.status(connection, batch).cancelled == 1


def _asked(connection: redis.Redis) -> bool:
    ids = batches.batch_ids(connection)
    return bool(ids) and batches.status(connection, ids[0]).total == 1


@pytest.mark.parametrize("question", ["", "  "])
def test_an_empty_question_is_refused(
    question: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setattr("thinkq.client.cli.ask._piped", lambda: "")
    assert main(["ask", question]) == 2
