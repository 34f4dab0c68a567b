"""Reading batch files: the faults that real users hit, by their id, and arbitrary bytes."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinkq.client.batchfile import UTF16_STARTS, BatchFile, read_batch
from thinkq.client.errors import InvalidBatch
from thinkq.client.job import Job
from thinkq.client.source import physical_lines

LIMIT = 16 * 1024 * 1024

A = b'{"custom_id":"a","messages":[{"role":"user","content":"1+1?"}]}'
B = b'{"custom_id":"b","messages":[{"role":"user","content":"2+2?"}]}'


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Reads bytes as a batch file."""

    def reader(data: bytes, limit: int = LIMIT, **defaults: Any) -> BatchFile:
        path = tmp_path / "jobs.jsonl"
        path.write_bytes(data)
        return read_batch(str(path), max_line_bytes=limit, defaults=defaults)

    return reader


def jobs(file: BatchFile) -> dict[int, Job]:
    return dict(file.items())


def ids(file: BatchFile) -> list[str | None]:
    return [job.custom_id for job in jobs(file).values()]


def codes(file: BatchFile) -> list[tuple[int, str]]:
    return [(error.line, error.code) for error in file.errors]


def openai(custom_id: str | None = "a", **body: Any) -> bytes:
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions"}
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps(line | {"body": {"messages": messages} | body}).encode() + b"\n"


def test_bf_01_a_utf8_byte_order_mark_is_dropped(read: Any) -> None:
    file = read(b"\xef\xbb\xbf" + A + b"\n" + B + b"\n")
    assert (ids(file), codes(file)) == (["a", "b"], [])


def test_bf_01_one_mark_only_and_only_at_the_start(read: Any) -> None:
    bom = b"\xef\xbb\xbf"
    assert codes(read(bom + bom + A)) == [(1, "bad_json")]
    assert codes(read(A + b"\n" + bom + B)) == [(2, "bad_json")]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_bf_02_utf16_is_told_as_such(read: Any, encoding: str, mark: str) -> None:
    """With a byte order mark, as PowerShell writes it, and without."""
    file = read((mark + '{"custom_id":"a","messages":[]}\r\n').encode(encoding))
    assert (ids(file), codes(file)) == ([], [(1, "bad_encoding")])
    assert "UTF-16" in str(file.errors[0])


def test_a_file_that_is_one_json_array_is_told_once(read: Any) -> None:
    """As `json.dump` and exports write it; else each of its lines would be an error."""
    file = read(b"[\n  " + A + b",\n  " + B + b"\n]\n")
    assert (ids(file), codes(file)) == ([], [(1, "bad_json")])
    assert "one JSON array; write one object per line" in str(file.errors[0])
    assert codes(read(b"[" + A + b"]\n" + B)) == [(1, "bad_type:line")]


def test_bf_04_windows_line_ends(read: Any) -> None:
    file = read(A + b"\r\n" + B + b"\r\n")
    assert (ids(file), codes(file)) == (["a", "b"], [])
    assert codes(read(A + b"\r" + B + b"\r")) == [(1, "bad_json")]


def test_bf_05_blank_lines_are_skipped_and_counted(read: Any) -> None:
    file = read(b"\n" + A + b"\n  \t\n" + B + b"\n\n\n")
    assert {job.custom_id: line for line, job in file.items()} == {"a": 2, "b": 4}
    assert codes(file) == []
    assert ids(read(A + b"\n" + B)) == ["a", "b"]


def test_bf_07_broken_json_is_named_by_physical_line_and_byte(read: Any) -> None:
    broken = b'{"custom_id":"b","messages":[}'
    file = read(A + b"\n" + broken + b"\n" + B + b"\n")
    assert codes(file) == [(2, "bad_json")]
    assert "line 2" in str(file.errors[0])
    assert f"byte {broken.index(b'}')}" in str(file.errors[0])
    assert ids(file) == ["a", "b"]
    with pytest.raises(InvalidBatch, match="1 of 3 lines cannot run, so nothing was queued"):
        file.require_good()


def test_bf_09_a_custom_id_used_twice_names_the_first_line(read: Any) -> None:
    file = read(A + b"\n" + B + b"\n" + A + b"\n")
    assert codes(file) == [(3, "duplicate_custom_id")]
    assert "line 1" in file.errors[0].message


def test_bf_11_custom_ids_are_kept_byte_for_byte_and_never_converted(read: Any) -> None:
    message = b'"messages":[{"role":"user","content":"1+1?"}]}\n'
    file = read(
        b'{"custom_id":" a ",'
        + message
        + b'{"custom_id":"",'
        + message
        + b'{"custom_id":7,'
        + message
        + b"{"
        + message
    )
    assert ids(file) == [" a ", "line-4"]
    assert codes(file) == [(2, "empty:custom_id"), (3, "bad_type:custom_id")]
    assert codes(read(openai(None))) == [(1, "missing_field:custom_id")]


def test_bf_12_an_openai_line_is_checked_as_one(read: Any) -> None:
    file = read(
        b'{"custom_id":"a","body":{"messages":[{"role":"user","content":"hi"}]}}\n'
        b'{"custom_id":"b","method":"POST","url":"/v1/embeddings","body":{"input":"x"}}\n'
        + openai("c", stream=True)
    )
    assert codes(file) == [
        (1, "missing_field:method"),
        (2, "unsupported_url"),
        (3, "unsupported:stream"),
    ]


def test_bf_13_null_options_are_the_defaults(read: Any) -> None:
    fields = ("max_tokens", "temperature", "stop", "thinking_token_budget")
    line = A[:-1] + b"".join(b',"%s":null' % name.encode() for name in fields) + b"}\n"
    assert jobs(read(line)) == jobs(read(A))


def test_bf_14_max_completion_tokens_counts_and_unknown_fields_are_told_once(read: Any) -> None:
    file = read(
        openai("a", model="m", max_completion_tokens=4000, foo=1)
        + openai("b", foo=2, thinking_tokn_budget=5)
    )
    assert [job.max_tokens for job in jobs(file).values()] == [4000, None]
    assert len(file.warnings) == 2
    assert "line 1: unknown field `foo`" in file.warnings[0]
    assert "did you mean `thinking_token_budget`?" in file.warnings[1]
    assert codes(read(openai(max_tokens=5, max_completion_tokens=6))) == [
        (1, "conflict:max_tokens")
    ]


def test_bf_15_text_parts_are_joined_and_images_refused_by_name(read: Any) -> None:
    file = read(
        b'{"custom_id":"a","messages":[{"role":"user","content":'
        b'[{"type":"text","text":"Sum: "},{"type":"text","text":"1+1"}]}]}\n'
        b'{"custom_id":"b","messages":[{"role":"user","content":'
        b'[{"type":"image_url","image_url":{"url":"x"}}]}]}\n'
    )
    assert jobs(file)[1].messages[0].content == "Sum: 1+1"
    assert codes(file) == [(2, "unsupported:image_url")]


def test_bf_17_a_line_that_is_too_long_is_skipped_while_reading(read: Any, tmp_path: Path) -> None:
    """80 MiB on one line, while at most the limit of 16 MiB is held."""
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(A.replace(b"1+1?", b"x" * (3 << 20)) + b"\n" + B + b"\n" + b'{"messages":"')
        for _ in range(80):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n' + A.replace(b'"a"', b'"d"'))
    tracemalloc.start()
    batch = read_batch(str(path), max_line_bytes=LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (ids(batch), codes(batch)) == (["a", "b", "d"], [(3, "line_too_long")])
    assert peak < 3 * LIMIT


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_limit_of_a_line_does_not_count_its_end(end: bytes) -> None:
    assert list(physical_lines(io.BytesIO(b"12345" + end), 5)) == [(1, b"12345")]
    assert next(physical_lines(io.BytesIO(b"123456" + end), 5)) == (1, None)


def test_bf_25_an_error_never_repeats_the_prompt(read: Any) -> None:
    """2 MiB of wrong messages, prompts in wrong places: short reports without them."""
    secret = "the-secret-prompt"
    lines = [
        {"messages": [secret * 25] * 5000},
        {"messages": secret},
        {"messages": [{"role": secret, "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": [secret]}]}]},
        {"messages": [{"role": "user", "content": "x"}], "reasoning_effort": secret},
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": secret},
        {"messages": [{"role": "user", "content": "x"}], "temperature": secret},
        {"custom_id": "c", "method": secret, "url": secret, "body": {"messages": secret}},
    ]
    file = read(b"\n".join(json.dumps(line).encode() for line in lines))
    assert len(file.errors) == len(lines)
    for error in file.errors:
        assert secret not in str(error)
        assert len(str(error).encode()) <= 4096


def test_broken_text_encodings_are_told_with_their_byte(read: Any) -> None:
    file = read(b'{"custom_id":"\xe9"}\n')
    assert codes(file) == [(1, "bad_encoding")]
    assert "byte 14" in str(file.errors[0])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"stream": False, "n": 1, "logprobs": False, "user": "u", "store": True}, None),
        ({"parallel_tool_calls": True, "service_tier": "auto", "stream": None}, None),
        ({"n": 2}, "unsupported:n"),
        ({"n": True}, "unsupported:n"),
        ({"logprobs": True}, "unsupported:logprobs"),
        ({"top_logprobs": 5}, "unsupported:top_logprobs"),
        ({"extra_body": {"stream": True}}, "unsupported:stream"),
        ({"extra_body": 5}, "bad_type:extra_body"),
    ],
)
def test_fields_of_an_openai_body_that_ask_for_what_is_not_there_are_refused(
    read: Any, body: dict[str, Any], code: str | None
) -> None:
    file = read(openai("a", **body))
    assert [error.code for error in file.errors] == ([code] if code else [])
    assert file.warnings == []


def test_extra_body_is_part_of_the_body(read: Any) -> None:
    """BU-10: a budget must not be lost on the way."""
    file = read(openai(extra_body={"thinking_token_budget": 100}))
    assert jobs(file)[1].thinking_token_budget == 100


def test_bu_10_a_misspelt_field_of_a_thinkq_line_is_refused_with_the_nearest_name(
    read: Any,
) -> None:
    file = read(A[:-1] + b',"thinking_budget":100}')
    assert codes(file) == [(1, "unknown_field:thinking_budget")]
    assert "did you mean `thinking_token_budget`?" in str(file.errors[0])


def test_both_forms_may_be_mixed(read: Any) -> None:
    file = read(A + b"\n" + openai("o"))
    assert ids(file) == ["a", "o"]
    assert jobs(file)[2].messages[0].content == "hi"


def test_defaults_fill_in_only_what_a_job_does_not_state(read: Any) -> None:
    file = read(
        A + b"\n" + openai("b", max_completion_tokens=50) + openai("c", reasoning_effort="high"),
        max_tokens=900,
        reasoning_effort="medium",
    )
    stated = [(job.max_tokens, job.reasoning_effort) for job in jobs(file).values()]
    assert stated == [(900, "medium"), (50, "medium"), (900, "high")]


def test_a_job_is_checked_with_the_defaults_that_it_gets(read: Any) -> None:
    file = read(A[:-1] + b',"max_tokens":100}', thinking_token_budget=90)
    assert codes(file) == [(1, "no_room_for_answer")]


def test_gzip_is_recognised_by_its_content_and_told_when_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl.gz"
    path.write_bytes(gzip.compress(A + b"\n" + B + b"\n"))
    assert ids(read_batch(str(path), max_line_bytes=LIMIT)) == ["a", "b"]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidBatch, match=r"cannot read .*jobs\.jsonl\.gz"):
        read_batch(str(path), max_line_bytes=LIMIT)


def test_standard_input_is_read_as_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(A + b"\n" + B)))
    with read_batch("-", max_line_bytes=LIMIT) as file:
        assert ids(file) == ["a", "b"]


def test_a_standard_input_that_is_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `thinkq run - <&-`: Python has no `sys.stdin` then."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InvalidBatch, match="standard input is closed"):
        read_batch("-", max_line_bytes=LIMIT)


def test_a_file_that_is_not_there_or_empty_is_told_in_one_sentence(read: Any) -> None:
    with pytest.raises(
        InvalidBatch, match=r"cannot read nowhere\.jsonl: No such file or directory"
    ):
        read_batch("nowhere.jsonl", max_line_bytes=LIMIT)
    with pytest.raises(InvalidBatch, match="holds no jobs"):
        read(b"\n \n")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["messages", "custom_id", "body", "method", "url", "n", "stop", "tools", "extra_body"]
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), JSON | st.just("user")),
    max_size=2,
)
LINES = st.dictionaries(FIELDS, JSON | MESSAGES).map(
    lambda line: json.dumps(line).encode(errors="surrogatepass")
)


@given(st.lists(st.binary(max_size=60) | LINES, max_size=6).map(b"\n".join))
def test_whatever_the_bytes_each_line_is_a_job_or_an_error(data: bytes) -> None:
    """Never a traceback; never a line that is neither blank, nor good, nor reported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        try:
            file = read_batch("-", max_line_bytes=LIMIT)
        except InvalidBatch:
            return
    with file:
        for error in file.errors:
            assert len(str(error).encode()) <= 4096
        good, bad = dict(file.items()), {error.line for error in file.errors}
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        written = {number for number, line in enumerate(lines, start=1) if line.strip()}
        of_the_whole = lines[0].startswith(UTF16_STARTS) or lines[0].strip() == b"["
        assert good.keys() | bad == written or of_the_whole
        assert not good.keys() & bad
        assert len({job.custom_id for job in good.values()}) == len(good)
