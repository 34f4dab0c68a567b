"""Arbitrary files through the command line: queued whole or not at all, never a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from support.simulated_worker import SimulatedWorker
from thinkq.client import batches, keys
from thinkq.client.cli import main
from thinkq.client.job import Job
from thinkq.client.settings import Settings

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command reads its settings from the environment, and works in a directory of its own."""
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setenv("THINKQ_REDIS_URL", settings.effective_redis_url)
    monkeypatch.chdir(tmp_path)


def line(**fields: Any) -> bytes:
    job = {"messages": [{"role": "user", "content": "hm"}]} | fields
    # As Python's own json: NaN and lone surrogates go through.
    return json.dumps(job).encode(errors="surrogatepass")


TEXT = st.text(st.characters(), max_size=8)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "tool", "nobody"])},
        optional={"content": TEXT | JSON, "tool_calls": JSON, "name": JSON, "thinking": JSON},
    ),
    max_size=3,
)
FIELDS = st.dictionaries(
    st.sampled_from([*Job.__struct_fields__, "n", "stream", "extra_body", "user"]), JSON, max_size=3
)
GOOD = st.builds(
    lambda n, text: line(custom_id=f"c{n}", messages=[{"role": "user", "content": text}]),
    st.integers(0, 10_000),
    st.text(max_size=20),
)
THINKQ = st.builds(lambda messages, more: line(**more | {"messages": messages}), MESSAGES, FIELDS)
OPENAI = st.builds(
    lambda n, body, more: json.dumps(
        {"custom_id": f"o{n}", "method": "POST", "url": "/v1/chat/completions", "body": body} | more
    ).encode(errors="surrogatepass"),
    st.integers(0, 10_000),
    st.fixed_dictionaries({"messages": MESSAGES}, optional={"n": JSON, "extra_body": FIELDS}),
    st.dictionaries(st.sampled_from(["method", "url", "id", "id"]), JSON, max_size=1),
)
DEEP = st.integers(1, 5000).map(lambda depth: b'{"messages":' + b"[" * depth)
LINES = st.one_of(GOOD, GOOD, THINKQ, OPENAI, JSON.map(lambda value: line(metadata=value)), DEEP)
CUT = st.tuples(LINES, st.integers(0, 200)).map(lambda both: both[0][: both[1]])
PARTS = st.one_of(LINES, LINES, CUT, st.binary(max_size=40), st.just(b""))
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b""])
STARTS = st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b"])
PLAIN = st.builds(
    lambda start, parts: start + b"".join(part + end for part, end in parts),
    STARTS,
    st.lists(st.tuples(PARTS, ENDS), max_size=6),
)
PACKED = st.tuples(PLAIN, st.integers(0, 30)).map(
    lambda both: gzip.compress(both[0])[: -both[1] or None]
)
WHOLE = st.lists(GOOD | st.just(b" "), max_size=5).map(b"\n".join)
FILES = st.one_of(WHOLE, WHOLE, PLAIN, PACKED)


def check(connection: redis.Redis, capsys: Capture, data: bytes, *options: str) -> None:
    """Submit the file: all its good lines are queued, or nothing is and the code is 2."""
    Path("any.jsonl").write_bytes(data)
    before, known = total(connection), connection.zcard(keys.BATCHES)
    code = main(["submit", "any.jsonl", "--again", *options])
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert "thinkq itself" not in told.err
    if code == 0:
        batch = told.out.strip()
        listed = len(batches.listed_ids(connection, batch))
        assert total(connection) - before == listed > 0
        assert listed == batches.status(connection, batch).total
        if not options:
            assert listed == len([one for one in unpacked(data).split(b"\n") if one.strip()])
    else:
        assert code == 2
        assert told.err.splitlines()[-1].startswith("thinkq: ")
        assert (total(connection), connection.zcard(keys.BATCHES)) == (before, known)
        assert told.out == ""


def total(connection: redis.Redis) -> int:
    return sum(connection.llen(f"rq:queue:{name}") for name in keys.QUEUES.values())


def unpacked(data: bytes) -> bytes:
    plain = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    return plain.removeprefix(b"\xef\xbb\xbf")


@hypothesis_settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES)
def test_whatever_is_in_the_file_it_is_queued_whole_or_not_at_all(
    connection: redis.Redis, worker: SimulatedWorker, capsys: Capture, data: bytes
) -> None:
    check(connection, capsys, data)


@hypothesis_settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES)
def test_with_skip_invalid_the_good_lines_of_whatever_file_are_queued(
    connection: redis.Redis, worker: SimulatedWorker, capsys: Capture, data: bytes
) -> None:
    check(connection, capsys, data, "--skip-invalid")


@pytest.mark.fuzz
@hypothesis_settings(
    max_examples=5000,
    derandomize=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(FILES, st.booleans())
def test_many_more_files(
    connection: redis.Redis, worker: SimulatedWorker, capsys: Capture, data: bytes, skip: bool
) -> None:
    """The same with examples that are new in each run."""
    check(connection, capsys, data, *(["--skip-invalid"] if skip else []))
