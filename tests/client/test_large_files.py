"""Files larger than memory should be, that change, that come through pipes; and full disks."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from support.processes import environment
from support.simulated_worker import SimulatedWorker
from thinkq.client import batches, keys
from thinkq.client.batchfile import read_batch
from thinkq.client.cli import main
from thinkq.client.errors import InvalidBatch
from thinkq.client.queue import batch_id
from thinkq.client.settings import Settings

LIMIT = 1 << 20


@pytest.fixture(autouse=True)
def home(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setenv("THINKQ_REDIS_URL", settings.effective_redis_url)
    monkeypatch.chdir(tmp_path)


def line(number: int, content: str = "hm") -> str:
    job = {"custom_id": f"c{number}", "messages": [{"role": "user", "content": content}]}
    return json.dumps(job) + "\n"


def thinkq(settings: Settings, *arguments: str, limit: int | None = None) -> tuple[int, str, int]:
    """Exit code, stderr and peak memory in bytes of a command; files may grow to `limit` bytes."""

    def restrict() -> None:
        assert limit is not None
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = subprocess.Popen(
        [sys.executable, "-m", "thinkq.client", *arguments],
        env=environment(THINKQ_HOME=settings.home, THINKQ_REDIS_URL=settings.effective_redis_url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restrict if limit else None,  # no threads here
    )
    assert process.stderr is not None
    with process.stderr as stderr:
        said = stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024
    return process.returncode, said, usage.ru_maxrss * unit


def test_memory_does_not_grow_with_the_file(settings: Settings, connection: redis.Redis) -> None:
    """150 MB of prompts are queued in less memory than that."""
    with Path("large.jsonl").open("w") as file:
        for number in range(2500):
            file.write(line(number, "x" * 60_000))
    code, said, peak = thinkq(settings, "submit", "large.jsonl")
    assert code == 0, said
    assert peak < 120e6
    (batch,) = batches.batch_ids(connection)[:1]
    assert batches.status(connection, batch).total == 2500
    assert main(["cancel", batch]) == 0
    assert main(["rm", batch]) == 0


def test_a_file_that_changes_while_it_is_queued_is_told() -> None:
    """What is queued must be what was checked."""
    path = Path("jobs.jsonl")
    for change in (line(1) + line(3), line(1), line(1) + "not json\n", ""):
        path.write_text(line(1) + line(2))
        file = read_batch(str(path), max_line_bytes=LIMIT)
        assert len(dict(file.jobs.items())) == 2
        path.write_text(change)
        with pytest.raises(InvalidBatch, match="has changed while"):
            dict(file.jobs.items())


def test_a_pipe_is_read_once_and_used_twice() -> None:
    """As of `thinkq submit <(zcat jobs.gz)`."""
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_text(line(1) + line(2)))
    writer.start()
    file = read_batch("pipe", max_line_bytes=LIMIT)
    writer.join()
    assert [dict(file.jobs.items()) for _ in range(2)] == [dict(file.jobs)] * 2
    assert file.batch_id() == batch_id(dict(file.jobs))


@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([line(1).encode(), line(2).encode(), b"\n"]) | st.binary(max_size=40))
)
def test_whatever_is_in_the_file_it_is_queued_whole_or_not_at_all(
    connection: redis.Redis,
    worker: SimulatedWorker,
    capsys: pytest.CaptureFixture[str],
    parts: list[bytes],
) -> None:
    """Never a traceback, never a part of a file."""
    Path("any.jsonl").write_bytes(b"".join(parts))
    before = connection.llen("rq:queue:thinkq:normal")
    known = connection.zcard(keys.BATCHES)
    code = main(["submit", "any.jsonl", "--again"])
    told = capsys.readouterr()
    added = connection.llen("rq:queue:thinkq:normal") - before
    assert "thinkq itself" not in told.err
    if code == 0:
        assert added == len(batches.listed_ids(connection, told.out.strip())) > 0
    else:
        assert code == 2
        assert (added, connection.zcard(keys.BATCHES)) == (0, known)


def test_qw_13_a_full_disk_tears_no_row_and_the_same_command_goes_on(
    settings: Settings, connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """A file may not grow any more, in the middle of a row; later it may."""
    Path("jobs.jsonl").write_text("".join(line(n, "full disk") for n in range(1, 9)))
    out = Path("jobs.jsonl.results.jsonl")
    with worker.at_work():
        code, said, _ = thinkq(settings, "run", "jobs.jsonl", limit=2500)
        assert code == 1
        assert "cannot be written (File too large); make room and run the same command" in said
        torn = out.read_bytes()
        assert torn.endswith(b"\n")
        rows = [json.loads(row) for row in torn.splitlines()]
        assert 0 < len(rows) < 8
        code, said, _ = thinkq(settings, "run", "jobs.jsonl")
    assert code == 0, said
    assert f"{len(rows)} rows are there already" in said
    assert [json.loads(row)["line"] for row in out.read_text().splitlines()] == list(range(1, 9))


@pytest.mark.parametrize("command", ["run", "results"])
def test_a_result_file_keeps_its_mode_and_leaves_nothing_beside_it(
    connection: redis.Redis,
    worker: SimulatedWorker,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """Thinking and answers may be private; whoever has closed the file to others wants it so."""
    Path("jobs.jsonl").write_text("".join(line(n, f"mode {command}") for n in range(1, 4)))
    out = Path("out.jsonl")
    with worker.at_work():
        assert main(["run", "jobs.jsonl", "-o", "out.jsonl"]) == 0
        out.chmod(0o600)
        if command == "run":
            # One row fewer, and a torn one, so that the file is rewritten.
            out.write_bytes(b"".join(out.read_bytes().splitlines(True)[1:]) + b'{"job_id":"')
            assert main(["run", "jobs.jsonl", "-o", "out.jsonl"]) == 0
        else:
            (batch, *_) = batches.batch_ids(connection)
            assert main(["results", batch, "-o", "out.jsonl"]) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [json.loads(row)["line"] for row in out.read_text().splitlines()] == [1, 2, 3]
    assert sorted(path.name for path in Path.cwd().glob("*out*")) == ["out.jsonl"]
