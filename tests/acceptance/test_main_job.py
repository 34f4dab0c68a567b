"""The main job as a person runs it: real daemon, real Redis, real worker, the shipped model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from openai.types.chat import ChatCompletion

from support import wait_until
from support.processes import environment, thinkq
from thinkq.client import keys
from thinkq.client.connection import connect, probe
from thinkq.client.rows import Row, encode_row
from thinkq.client.settings import Settings, load_settings

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "examples" / "jobs.jsonl"
CUSTOM_IDS = [json.loads(line)["custom_id"] for line in JOBS.read_text("utf-8").splitlines()]


@contextmanager
def daemon(home: Path) -> Iterator[Settings]:
    """A daemon in the background, with its Redis up; ended in order."""
    process = subprocess.Popen(
        [sys.executable, "-m", "thinkq.daemon", "run"],
        env=environment(THINKQ_HOME=str(home)),
        stderr=subprocess.DEVNULL,
    )
    settings = load_settings({}, home=str(home))
    try:
        with probe(settings) as connection:
            wait_until(lambda: answers(connection), 30)
        yield settings
    finally:
        process.terminate()
        assert process.wait(20) == 0


def answers(connection: redis.Redis) -> bool:
    try:
        return bool(connection.ping())
    except redis.RedisError:
        return False


def worker_pids(connection: redis.Redis) -> set[int]:
    return {json.loads(line)["pid"] for line in connection.hvals(keys.WORKERS)}


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[redis.Redis, list[Any], str]]:
    """The example file, run against a daemon that stays up: its Redis, its rows, what was said."""
    home = tmp_path_factory.mktemp("home")
    out = home / "out.jsonl"
    with daemon(home) as settings, connect(settings) as connection:
        ran = thinkq(home, "run", str(JOBS), "-o", str(out))
        assert ran.returncode in (0, 3), ran.stderr
        assert ran.stdout == ""
        yield (
            connection,
            [json.loads(line) for line in out.read_text("utf-8").splitlines()],
            ran.stderr,
        )


def test_every_job_has_a_row_in_input_order(finished: tuple[redis.Redis, list[Any], str]) -> None:
    """Split, counted, within its budget, and with the reason why its thinking ended."""
    _, rows, _ = finished
    assert [row["custom_id"] for row in rows] == CUSTOM_IDS
    for row in rows:
        usage = row["usage"]
        kinds = usage["thinking_tokens"], usage["answer_tokens"], usage["control_tokens"]
        assert sum(kinds) == usage["completion_tokens"] > 0
        assert usage["thinking_tokens"] <= row["budget"]["enforced"]
        assert row["status"] == "done"
        assert row["answer"] or "empty_answer" in row["warnings"]
    by_id = {row["custom_id"]: row for row in rows}
    assert by_id["budget-0"]["usage"]["thinking_tokens"] == 0
    assert by_id["budget-8-cuts"]["usage"]["thinking_tokens"] == 8
    assert by_id["budget-8-cuts"]["close_reason"] == "budget"
    assert by_id["budget-256-does-not-cut"]["close_reason"] == "natural"
    assert by_id["without-reasoning"]["thinking"] is None
    assert by_id["without-reasoning"]["usage"]["thinking_tokens"] > 0
    assert by_id["sum-effort-none"]["close_reason"] == "none"
    assert by_id["story-boxes"]["metadata"] == {"set": "stories", "row": 19}


def test_real_rows_in_openais_form_have_openais_types(
    finished: tuple[redis.Redis, list[Any], str],
) -> None:
    """What the demo model wrote, with its thinking and its counts."""
    _, rows, _ = finished
    for row in rows:
        data = encode_row(msgspec.convert(row, Row), "openai")
        response = json.loads(data)["response"]
        assert (response["status_code"], response["request_id"]) == (200, row["job_id"])
        completion = ChatCompletion.model_validate(response["body"], strict=True)
        (choice,) = completion.choices
        assert choice.message.content == row["answer"]
        assert choice.message.model_extra == {"reasoning_content": row["thinking"]}
        usage = completion.usage
        assert usage
        assert usage.completion_tokens_details
        assert usage.completion_tokens_details.reasoning_tokens == row["usage"]["thinking_tokens"]


def test_a_summary_closes_the_run(finished: tuple[redis.Redis, list[Any], str]) -> None:
    _, _, said = finished
    assert re.search(r"^\d+/24: ", said, re.MULTILINE), "no progress was shown"
    assert re.search(r"^24 done, 0 failed, \d+ empty, 0 cancelled", said, re.MULTILINE)
    assert re.search(r"^thinking closed: \d+ natural", said, re.MULTILINE)


def test_each_stream_reads_as_a_story(finished: tuple[redis.Redis, list[Any], str]) -> None:
    """A start, deltas that add up to the stored result to the byte, and one end."""
    connection, rows, _ = finished
    for row in rows:
        stored: Any = connection.xrange(keys.stream(row["job_id"]))
        entries = [
            {name.decode(): text.decode() for name, text in fields.items()} for _, fields in stored
        ]
        types = [entry["type"] for entry in entries]
        assert types == ["start", *["delta"] * (len(types) - 2), "done"]
        deltas = entries[1:-1]
        thinking = "".join(entry["text"] for entry in deltas if entry["is_reasoning"] == "1")
        answer = "".join(entry["text"] for entry in deltas if entry["is_reasoning"] == "0")
        assert (thinking or None, answer) == (row["thinking"], row["answer"])


def test_rq_lists_the_queues_and_the_worker(finished: tuple[redis.Redis, list[Any], str]) -> None:
    connection, _, _ = finished
    path = connection.connection_pool.connection_kwargs["path"]
    info = subprocess.run(
        [sys.executable, "-m", "rq.cli", "info", "--url", f"unix://{path}", "--raw"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for queue in keys.QUEUES.values():
        assert f"queue {queue} 0" in info.stdout
    assert "worker thinkq-" in info.stdout


def test_the_same_command_again_has_nothing_to_do(tmp_path: Path) -> None:
    """Also without a daemon: a run starts its own, and its rows are all that the next one needs."""
    short = tmp_path / "short.jsonl"
    short.write_text("".join(JOBS.read_text("utf-8").splitlines(keepends=True)[:3]), "utf-8")
    first = thinkq(tmp_path / "home", "run", str(short))
    out = Path(f"{short}.results.jsonl")
    rows = out.read_bytes()
    assert first.returncode in (0, 3), first.stderr
    assert len(rows.splitlines()) == 3
    assert first.stderr.endswith(f"results: {out}\n")
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0, "prompts lie open"
    again = thinkq(tmp_path / "home", "run", str(short))
    assert again.returncode == first.returncode
    assert out.read_bytes() == rows
    assert "3 rows are there already" in again.stderr


def test_a_worker_that_is_killed_in_mid_batch_loses_nothing(tmp_path: Path) -> None:
    """kill -9 when the first results are there: a new worker does the rest; each job ends once."""
    with daemon(tmp_path) as settings, connect(settings) as connection:
        batch = thinkq(tmp_path, "submit", str(JOBS)).stdout.strip()
        counts = keys.batch(batch)
        wait_until(lambda: int(connection.hget(counts, "done") or 0) >= 3, 60)
        (victim,) = worker_pids(connection)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: int(connection.hget(counts, "done") or 0) == len(CUSTOM_IDS), 60)
        assert victim not in worker_pids(connection)
        for line in range(1, len(CUSTOM_IDS) + 1):
            job_id = keys.job_id(batch, line)
            assert connection.exists(keys.result(job_id))
            entries: Any = connection.xrange(keys.stream(job_id))
            assert sum(fields[b"type"] == b"done" for _, fields in entries) == 1
        assert connection.xlen(keys.batch_events(batch)) == len(CUSTOM_IDS)


def wait_for_rows(path: Path, number: int) -> None:
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= number, 60)


def test_a_run_that_is_killed_leaves_nothing_running_and_the_next_one_does_the_rest(
    tmp_path: Path,
) -> None:
    """kill -9 of `thinkq run` in mid-batch, twice; then it has every row once, in input order."""
    home, out = tmp_path / "home", tmp_path / "out.jsonl"
    settings = load_settings({}, home=str(home))
    seen: list[bytes] = []
    for goal in (4, 10):
        process = subprocess.Popen(
            [sys.executable, "-m", "thinkq.client", "run", str(JOBS), "-o", str(out)],
            env=environment(THINKQ_HOME=str(home)),
            stderr=subprocess.DEVNULL,
        )
        wait_for_rows(out, goal)
        process.kill()
        process.wait()
        seen += out.read_bytes().splitlines(keepends=True)
        with probe(settings) as connection:
            wait_until(lambda: not answers(connection), 30)
    last = thinkq(home, "run", str(JOBS), "-o", str(out))
    assert last.returncode in (0, 3), last.stderr
    found = re.search(r"^(\d+) rows are there already, (\d+) jobs to go", last.stderr, re.MULTILINE)
    assert found
    assert int(found[1]) >= 10
    assert int(found[1]) + int(found[2]) == len(CUSTOM_IDS)
    rows = out.read_bytes().splitlines(keepends=True)
    assert [json.loads(row)["custom_id"] for row in rows] == CUSTOM_IDS
    assert {row for row in seen if row.endswith(b"\n")} <= set(rows), "a row was made twice"
