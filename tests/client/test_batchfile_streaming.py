"""Batch files that are read twice: pipes, changes in between, and how little stays in memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from support.processes import environment
from support.simulated_worker import SimulatedWorker, some_jobs
from thinkq.client import batches, keys
from thinkq.client.batchfile import BatchFile, read_batch
from thinkq.client.errors import FileChanged, InvalidBatch
from thinkq.client.job import job_hash
from thinkq.client.joblines import JobIndex
from thinkq.client.queue import CHUNK_JOBS, JobQueue, batch_id

LIMIT = 1 << 20
EXAMPLES = Path(__file__).parents[2] / "examples" / "jobs.jsonl"


def lines(topic: str, number: int) -> bytes:
    """A file of jobs; all topics of one length make files of one length."""
    return b"".join(
        json.dumps({"messages": [{"role": "user", "content": f"{topic} {n}"}]}).encode() + b"\n"
        for n in range(1, number + 1)
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.jsonl"


def opened(path: Path | str) -> BatchFile:
    return read_batch(str(path), max_line_bytes=LIMIT)


def contents(jobs: Any) -> list[tuple[int, Any]]:
    return [(line, job.messages[0].content) for line, job in jobs.items()]


def test_the_jobs_can_be_read_as_often_as_wanted(path: Path) -> None:
    path.write_bytes(lines("twice", 3))
    with opened(path) as file:
        first = contents(file)
        assert first == contents(file) == [(1, "twice 1"), (2, "twice 2"), (3, "twice 3")]
        assert (len(file), list(file)) == (3, [1, 2, 3])
        some = file.only({3, 1})
        assert (len(some), list(some), contents(some)) == (2, [1, 3], [first[0], first[2]])
        assert contents(file.without({1, 2})) == first[2:]
        assert contents(file.only(set())) == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_comes_through_a_pipe_is_read_once_and_kept(path: Path, pack: Any) -> None:
    """A named pipe gives its bytes only once."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(pack(lines("pipe", 3)),))
    writer.start()
    with opened(path) as file:
        writer.join()
        assert contents(file) == contents(file) == [(n, f"pipe {n}") for n in (1, 2, 3)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_read_once_and_kept(monkeypatch: pytest.MonkeyPatch, pack: Any) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(lines("stdin", 2)))))
    with opened("-") as file:
        assert file.name == "standard input"
        assert contents(file) == contents(file) == [(1, "stdin 1"), (2, "stdin 2")]


def test_a_pipe_that_finds_no_room_for_its_copy_says_where_room_is_needed(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines("full", 1))))
    with pytest.raises(InvalidBatch, match="No space left on device; make room, or set TMPDIR"):
        opened("-")
    assert list(tmp_path.iterdir()) == []


def test_the_id_of_a_file_is_that_of_its_jobs_and_stays_the_same_between_versions() -> None:
    """Results in Redis and in files of earlier versions must be found again."""
    with opened(EXAMPLES) as file:
        assert file.batch_id() == batch_id(file) == batch_id(dict(file.items())) == "bf2b8ca9095ba"
        assert file.batch_id("salt") == batch_id(dict(file.items()), "salt") != file.batch_id()


def test_the_index_knows_lines_ids_and_hashes() -> None:
    jobs = {line * 3: job for line, job in some_jobs("index", 4).items()}
    index = JobIndex.of(jobs)
    assert dict(index.hashes()) == {line: job_hash(job) for line, job in jobs.items()}
    assert [line for line in range(20) if line in index] == list(index) == [3, 6, 9, 12]
    assert [index.line_of(f"c{n}") for n in (1, 4)] == [3, 12]
    assert (index.line_of("none"), index.line_of(None), index.hash_of(4)) == (None, None, None)


def rewritten(path: Path, data: bytes) -> None:
    """Other contents that neither size nor time betray."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_that_was_replaced_after_the_check_is_refused_at_once(path: Path) -> None:
    path.write_bytes(lines("before", 3))
    with opened(path) as file:
        path.write_bytes(lines("before", 2) + lines("changed", 1))
        with pytest.raises(FileChanged, match=r"jobs.jsonl was changed after it had been checked"):
            next(iter(file.items()))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (lines("befor", 2) + lines("after", 1), "line 3"),
        (lines("befor", 2) + b"{" * len(lines("befor", 1)), "line 3"),
        (lines("befor", 2) + b"\n" * len(lines("befor", 1)), "line 3"),
        (lines("befor", 2), "shorter"),
    ],
)
def test_a_line_that_changed_after_the_check_is_refused_by_its_hash(
    path: Path, data: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the file's size and time look the same."""
    path.write_bytes(lines("befor", 3))
    monkeypatch.setattr("thinkq.client.source.Source._check", lambda *_: None)
    with opened(path) as file:
        path.write_bytes(data)
        read = file.items()
        assert [next(read)[0], next(read)[0]] == [1, 2]
        with pytest.raises(FileChanged, match=told):
            next(read)


def test_a_file_that_is_gone_after_the_check_is_told(path: Path) -> None:
    path.write_bytes(lines("gone", 1))
    with opened(path) as file:
        path.unlink()
        with pytest.raises(InvalidBatch, match="No such file"):
            next(file.items())


def test_a_submission_whose_file_changed_before_its_first_job_leaves_nothing(
    path: Path, connection: redis.Redis, worker: SimulatedWorker
) -> None:
    path.write_bytes(lines("early", 3))
    with opened(path) as file:
        path.write_bytes(lines("other one", 3))
        with pytest.raises(FileChanged, match="nothing was queued; run the command again"):
            JobQueue(connection).submit(file.batch_id(), file)
        assert not connection.keys(f"*{file.batch_id()}*")
        assert file.batch_id() not in batches.batch_ids(connection)


def test_a_submission_whose_file_changed_in_the_middle_says_what_is_queued(
    path: Path,
    connection: redis.Redis,
    worker: SimulatedWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the same file as it was, submitted once more, completes the batch."""
    path.write_bytes(lines("middle", CHUNK_JOBS + 500))
    whole = JobQueue._queue_chunk

    def change_it(*arguments: Any) -> bool:
        rewritten(path, lines("middle", CHUNK_JOBS + 499) + lines("strange", 1))
        return whole(*arguments)

    queue = JobQueue(connection)
    with opened(path) as file:
        id = file.batch_id()
        with monkeypatch.context() as patch:
            patch.setattr(JobQueue, "_queue_chunk", change_it)
            with pytest.raises(
                FileChanged, match=rf"{CHUNK_JOBS} jobs .* as batch {id}; .* --cancel"
            ):
                queue.submit(id, file)
        assert batches.status(connection, id).state == "submitting"
    path.write_bytes(lines("middle", CHUNK_JOBS + 500))
    with opened(path) as file:
        assert queue.submit(id, file) == 500
    assert connection.llen(f"rq:queue:{keys.QUEUES['normal']}") == CHUNK_JOBS + 500


SUBMIT = """
import re, resource, sys
from thinkq.client.cli import main
code = main(["submit", sys.argv[1]])
if sys.platform == "darwin":
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20
else:  # There ru_maxrss counts the process that started this one, too.
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10
print(peak)
sys.exit(code)
"""
"""Prints the batch's id and the most memory that this process has had, in MB."""


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Path]:
    """A file of 20,000 lines of 4,000 characters."""
    path = tmp_path / "many.jsonl"
    with path.open("wb") as file:
        for block in range(20):
            file.write(lines(f"{block} " + "x" * 4000, 1000))
    yield path
    path.unlink()


def test_a_file_of_80_mb_is_submitted_in_a_fraction_of_its_size(
    many: Path, redis_url: str, connection: redis.Redis, worker: SimulatedWorker, tmp_path: Path
) -> None:
    """The limit is generous: held as jobs, these lines take some 250 MB and more."""
    variables = {"THINKQ_HOME": str(tmp_path), "THINKQ_REDIS_URL": redis_url}
    submitted = subprocess.run(
        [sys.executable, "-c", SUBMIT, str(many)],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    batch, peak_mb = submitted.stdout.split()
    assert connection.llen(keys.batch_jobs(batch)) == 20_000
    assert int(peak_mb) < 150
