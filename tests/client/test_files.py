"""Result files on disks that are full, with the modes that they have, and beside other writers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

from support.jobfiles import lines_of, write_jobs
from support.processes import environment
from support.simulated_worker import SimulatedWorker, answered, some_jobs
from thinkq.client import keys
from thinkq.client.cli import main
from thinkq.client.errors import ThinkqError
from thinkq.client.files import replacing, written_anew
from thinkq.client.job import job_hash
from thinkq.client.joblines import JobIndex
from thinkq.client.queue import JobQueue
from thinkq.client.resultfile import ResultFile
from thinkq.client.rows import Row, result_row
from thinkq.client.settings import Settings

Capture = pytest.CaptureFixture[str]

JOBS = some_jobs("files", 3)
INDEX = JobIndex.of(JOBS)


@pytest.fixture(autouse=True)
def home(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The commands take their settings from the environment, in a directory of their own."""
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setenv("THINKQ_REDIS_URL", settings.effective_redis_url)
    monkeypatch.chdir(tmp_path)


def row(line: int) -> Row:
    job = JOBS[line]
    return result_row(answered(keys.job_id("b1", line), job), job_hash(job))


def finished(connection: redis.Redis, worker: SimulatedWorker, batch: str) -> None:
    """A batch of three jobs that have ended."""
    JobQueue(connection).submit(batch, some_jobs(batch, 3))
    worker.work()


LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # A cut one would break every later import.
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
from thinkq.client.cli import main
sys.exit(main(sys.argv[2:]))
"""


def limited(settings: Settings, limit: int, *arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a command for which no file may grow beyond so many bytes."""
    home, url = settings.home, settings.effective_redis_url
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *arguments],
        env=environment(THINKQ_HOME=home, THINKQ_REDIS_URL=url),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stderr


def test_qw_13_a_full_disk_tears_no_row_and_the_same_command_goes_on(
    settings: Settings, worker: SimulatedWorker, capsys: Capture
) -> None:
    """QW-13: a file may not grow any more, in the middle of a row; later it may."""
    write_jobs(Path("jobs.jsonl"), "full disk", 8)
    out = Path("jobs.jsonl.results.jsonl")
    with worker.at_work():
        code, said = limited(settings, 2500, "run", "jobs.jsonl")
        assert code == 1
        assert f"cannot write {out.resolve()}: File too large; its rows are whole" in said
        assert "make room and run the same command again" in said
        assert out.read_bytes().endswith(b"\n")
        there = lines_of(out)
        assert 0 < len(there) < 8
        assert main(["run", "jobs.jsonl"]) == 0
    assert f"{len(there)} rows are there already" in capsys.readouterr().err
    assert lines_of(out) == list(range(1, 9))


@pytest.mark.parametrize("torn", [True, False])
def test_qw_13_a_disk_without_room_for_a_second_copy_leaves_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    """QW-13: when a torn row is to be dropped, and when the rows are to be sorted."""
    path = tmp_path / "out.jsonl"
    with ResultFile(path, "thinkq", INDEX) as file:
        for line in (3, 1, 2):
            file.append(row(line))
    if torn:
        with path.open("ab") as half:
            half.write(b'{"job_id":"b1-')
    before = path.read_bytes()

    def sort_it() -> None:
        with ResultFile(path, "thinkq", INDEX) as file:
            file.finish()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: full_disk())
        told = "it is as it was" if torn else "all rows are there, but not yet in order"
        with pytest.raises(ThinkqError, match=f"No space left on device; {told}; make room"):
            sort_it()
    assert path.read_bytes() == before
    assert [left.name for left in tmp_path.iterdir()] == ["out.jsonl"]
    sort_it()
    assert lines_of(path) == [1, 2, 3]


def full_disk(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def test_results_that_find_no_room_leave_the_file_as_it_was(
    settings: Settings, connection: redis.Redis, worker: SimulatedWorker, tmp_path: Path
) -> None:
    finished(connection, worker, "broom")
    Path("out.jsonl").write_text("before")
    code, said = limited(settings, 800, "results", "broom", "-o", "out.jsonl")
    assert code == 1
    assert "out.jsonl: File too large; what was there before is as it was" in said
    assert Path("out.jsonl").read_text() == "before"
    assert [left.name for left in tmp_path.glob("*out*")] == ["out.jsonl"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize("command", ["run", "results"])
def test_a_full_disk_behind_stdout_is_told(
    connection: redis.Redis, worker: SimulatedWorker, command: str
) -> None:
    finished(connection, worker, "bstdout")
    write_jobs(Path("jobs.jsonl"), "stdout", 2)
    arguments = {"run": ["jobs.jsonl", "-o", "-"], "results": ["bstdout"]}[command]
    with open("/dev/full", "wb") as full, worker.at_work():
        ended = subprocess.run(
            [sys.executable, "-m", "thinkq.client", command, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    assert ended.returncode == 1
    last = ended.stderr.decode().splitlines()[-1]
    assert last == (
        "thinkq: cannot write to stdout: No space left on device; "
        "results are kept in Redis, run the same command again"
    )


@pytest.mark.parametrize("command", ["run", "results"])
def test_a_result_file_keeps_its_mode_and_leaves_nothing_beside_it(
    connection: redis.Redis, worker: SimulatedWorker, tmp_path: Path, command: str
) -> None:
    """Thinking and answers may be private; whoever has closed the file to others wants it so."""
    finished(connection, worker, "bmode")
    write_jobs(Path("jobs.jsonl"), "mode", 3)
    out = tmp_path / "out.jsonl"
    with worker.at_work():
        assert main(["run", "jobs.jsonl", "-o", "out.jsonl"]) == 0
        out.chmod(0o640)
        if command == "run":
            # One row fewer, and a torn one, so that the file is rewritten.
            out.write_bytes(b"".join(out.read_bytes().splitlines(True)[1:]) + b'{"job_id":"')
            assert main(["run", "jobs.jsonl", "-o", "out.jsonl"]) == 0
        else:
            assert main(["results", "bmode", "-o", "out.jsonl"]) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert lines_of(out) == [1, 2, 3]
    assert [left.name for left in tmp_path.glob("*out*")] == ["out.jsonl"]


@pytest.mark.parametrize("former", [0o600, 0o644, None])
def test_a_new_file_is_never_more_open_than_the_one_it_replaces(
    tmp_path: Path, former: int | None
) -> None:
    """And as the umask says where there is none."""
    path = tmp_path / "out.jsonl"
    if former is not None:
        path.touch()
        path.chmod(former)
    before = os.umask(0o027)
    try:
        with replacing(path) as file:
            during = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        file.close()
    finally:
        os.umask(before)
    expected = 0o640 if former is None else former
    assert during == stat.S_IMODE(path.stat().st_mode) == expected


def test_what_a_crash_left_of_a_replacement_is_in_nobodys_way(tmp_path: Path) -> None:
    """Nor is a link followed that somebody else has put in its place."""
    path, elsewhere = tmp_path / "out.jsonl", tmp_path / "elsewhere"
    left = tmp_path / ".out.jsonl.thinkq"
    left.write_text("half a row, longer than the new file")
    with written_anew(path) as file:
        os.write(file.fileno(), b"new")
    assert path.read_text() == "new"
    elsewhere.write_text("precious")
    left.symlink_to(elsewhere)
    with pytest.raises(ThinkqError, match="cannot write"), written_anew(path):
        pass
    assert (path.read_text(), elsewhere.read_text()) == ("new", "precious")


@pytest.mark.parametrize("command", ["run", "results"])
def test_a_place_where_no_file_can_be_is_told_by_its_name(
    connection: redis.Redis, worker: SimulatedWorker, capsys: Capture, command: str
) -> None:
    finished(connection, worker, "bplace")
    write_jobs(Path("jobs.jsonl"), "place", 1)
    what = {"run": "jobs.jsonl", "results": "bplace"}[command]
    assert main([command, what, "-o", "nowhere/out.jsonl"]) == 1
    err = capsys.readouterr().err
    assert "nowhere/out.jsonl: No such file or directory" in err
    assert "Errno" not in err


def test_results_do_not_replace_a_file_that_a_run_is_writing(
    connection: redis.Redis, worker: SimulatedWorker, tmp_path: Path, capsys: Capture
) -> None:
    """Its later rows would be lost."""
    finished(connection, worker, "bbusy")
    with ResultFile(tmp_path / "out.jsonl", "thinkq", INDEX) as file:
        file.append(row(1))
        assert main(["results", "bbusy", "-o", "out.jsonl"]) == 1
        assert "is being written by another thinkq" in capsys.readouterr().err
    assert lines_of(tmp_path / "out.jsonl") == [1]
    assert main(["results", "bbusy", "-o", "out.jsonl"]) == 0
    assert lines_of(tmp_path / "out.jsonl") == [1, 2, 3]


def test_results_follow_a_link_and_fill_a_pipe(
    connection: redis.Redis, worker: SimulatedWorker, tmp_path: Path
) -> None:
    finished(connection, worker, "blink")
    Path("link.jsonl").symlink_to("target.jsonl")
    assert main(["results", "blink", "-o", "link.jsonl"]) == 0
    assert Path("link.jsonl").is_symlink()
    assert lines_of(tmp_path / "target.jsonl") == [1, 2, 3]
    os.mkfifo("pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text()))
    reader.start()
    assert main(["results", "blink", "-o", "pipe"]) == 0
    reader.join()
    assert read == [Path("target.jsonl").read_text()]


def test_a_result_file_that_cannot_be_made_is_told_in_one_sentence(capsys: Capture) -> None:
    """Not with a number of the system."""
    write_jobs(Path("jobs.jsonl"), "nowhere", 1)
    assert main(["run", "jobs.jsonl", "-o", "nowhere/rows.jsonl"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("thinkq: cannot write ")
    assert said.endswith("No such file or directory; choose another file with -o")
