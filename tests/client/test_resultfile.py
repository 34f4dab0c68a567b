"""Result files: durable rows, repair, resumption, order."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion

from support.simulated_worker import answered, some_jobs
from thinkq.client import keys
from thinkq.client.errors import LineError, ThinkqError
from thinkq.client.job import Job, job_hash
from thinkq.client.joblines import JobIndex
from thinkq.client.output import StreamOutput
from thinkq.client.resultfile import ResultFile
from thinkq.client.rows import FORMATS, Format, Row, decode_row, encode_row, error_row, result_row

JOBS = some_jobs("rows", 4)
INDEX = JobIndex.of(JOBS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.jsonl.results.jsonl"


def row(line: int, jobs: dict[int, Job] = JOBS, **fields: Any) -> Row:
    job = jobs[line]
    return result_row(answered(keys.job_id("b1", line), job, **fields), job_hash(job))


def rows(path: Path) -> list[Row]:
    return [decode_row(data)[0] for data in path.read_bytes().splitlines()]


def lines(path: Path) -> list[int]:
    return [row.line for row in rows(path)]


def write(path: Path, *appended: Row, form: Format = "thinkq", finish: bool = False) -> None:
    with ResultFile(path, form, INDEX) as file:
        for one in appended:
            file.append(one)
        if finish:
            file.finish()


@pytest.mark.parametrize("form", FORMATS)
def test_bf_19_a_row_is_in_the_file_as_soon_as_it_is_appended(path: Path, form: Format) -> None:
    """BF-19: another process reads it while the writer has not ended."""
    with ResultFile(path, form, INDEX) as file:
        file.append(row(2))
        assert lines(path) == [2]
        file.append(row(1))
        assert lines(path) == [2, 1]


@pytest.mark.parametrize("cut", [1, 10, 200])
@pytest.mark.parametrize("form", FORMATS)
def test_bf_19_a_torn_last_row_is_dropped_and_written_again(
    path: Path, form: Format, cut: int
) -> None:
    """BF-19: the process was killed in the middle of a write."""
    write(path, row(1), row(2), form=form)
    os.truncate(path, path.stat().st_size - cut)
    with ResultFile(path, form, INDEX) as file:
        assert file.present == {1}
        file.append(row(2))
    assert lines(path) == [1, 2]


def test_bf_20_rows_that_are_there_need_not_run_again(path: Path) -> None:
    """BF-20: only a complete row counts; failed jobs run again only when that is asked for."""
    write(path, row(1), row(3, answer="", status="failed", finish_reason="error"))
    with ResultFile(path, "thinkq", INDEX) as file:
        assert set(JOBS) - file.present == {2, 4}
    with ResultFile(path, "thinkq", INDEX, retry_failed=True) as file:
        assert set(JOBS) - file.present == {2, 3, 4}
        assert file.retried == 1
    assert lines(path) == [1]


def test_bf_20_a_line_that_has_changed_is_run_as_new_and_counted(path: Path) -> None:
    """BF-20: the recorded hash decides."""
    write(path, row(1), row(2))
    changed = JOBS | {2: some_jobs("changed")[2]}
    with ResultFile(path, "thinkq", JobIndex.of(changed)) as file:
        assert (file.present, file.changed) == ({1}, 1)
    assert lines(path) == [1]


def test_empty_answers_are_retried_as_failed_ones(path: Path) -> None:
    write(path, row(1, answer=""))
    with ResultFile(path, "thinkq", INDEX, retry_failed=True) as file:
        assert file.retried == 1


def test_again_leaves_no_row_of_this_input(path: Path) -> None:
    write(path, row(1), row(2))
    with ResultFile(path, "thinkq", INDEX, again=True) as file:
        assert file.present == set()
    assert rows(path) == []


@pytest.mark.parametrize("form", FORMATS)
def test_bf_21_the_finished_file_is_in_input_order(path: Path, form: Format) -> None:
    """BF-21: rows of an earlier run, in the order of their ends, are sorted in."""
    write(path, row(4), row(2), form=form)
    write(path, row(3), row(1), form=form, finish=True)
    assert lines(path) == [1, 2, 3, 4]
    assert not path.with_name(f"{path.name}.tmp").exists()


def test_unordered_leaves_the_order_of_the_ends(path: Path) -> None:
    with ResultFile(path, "thinkq", INDEX, unordered=True) as file:
        for line in (3, 1, 2):
            file.append(row(line))
        file.finish()
    assert lines(path) == [3, 1, 2]


def test_rows_of_another_input_stay(path: Path) -> None:
    other = {line + 10: job for line, job in some_jobs("other", 1).items()}
    other[11].custom_id = "other"
    with ResultFile(path, "thinkq", JobIndex.of(other)) as file:
        file.append(row(11, other))
    write(path, row(2), row(1), finish=True)
    assert lines(path) == [11, 1, 2]


def test_error_rows_are_written_anew_each_time(path: Path) -> None:
    bad = error_row("b1-9", "bad", LineError(9, "bad_json", "not JSON"))
    write(path, bad, row(1))
    write(path, bad, finish=True)
    assert lines(path) == [1, 9]


@pytest.mark.parametrize("content", [b"my notes\n", b"my notes", b'{"a": 1}\n', b'{"a": 1}'])
def test_a_file_that_holds_something_else_is_refused_and_left_alone(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(ThinkqError, match="is not a result file; choose another with -o"):
        write(path)
    assert path.read_bytes() == content


def test_a_file_in_the_other_form_is_refused(path: Path) -> None:
    write(path, row(1), form="openai")
    with pytest.raises(ThinkqError, match="--format openai"):
        write(path)
    assert lines(path) == [1]


def test_two_runs_do_not_write_one_file(path: Path) -> None:
    with ResultFile(path, "thinkq", INDEX), pytest.raises(ThinkqError, match="another thinkq"):
        write(path)


def test_a_device_is_no_result_file() -> None:
    with pytest.raises(ThinkqError, match="not a plain file"):
        write(Path("/dev/null"))


def test_a_stream_gets_rows_in_input_order_as_soon_as_possible() -> None:
    out = io.BytesIO()

    def written() -> list[int]:
        return [decode_row(data)[0].line for data in out.getvalue().splitlines()]

    with StreamOutput(out, "thinkq", [1, 2, 3, 4]) as output:
        for line, expected in ((2, []), (1, [1, 2]), (4, [1, 2])):
            output.append(row(line))
            assert written() == expected
        output.finish()
    assert written() == [1, 2, 4]


def test_a_thinkq_row_is_the_result_with_line_and_hash() -> None:
    fields = msgspec.json.decode(encode_row(row(2), "thinkq"))
    assert fields["line"] == 2
    assert fields["job_hash"] == job_hash(JOBS[2])
    assert (fields["custom_id"], fields["answer"], fields["thinking"]) == ("c2", "42", "hm")
    assert fields["usage"]["thinking_tokens"] == 3


def test_bf_22_an_openai_row_has_either_a_response_or_an_error() -> None:
    """BF-22: a failure must not look like a success."""
    good = msgspec.json.decode(encode_row(row(1), "openai"))
    assert good["error"] is None
    assert good["response"]["status_code"] == 200
    body = good["response"]["body"]
    assert body["choices"][0]["message"]["content"] == "42"
    assert body["choices"][0]["message"]["reasoning_content"] == "hm"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}

    error = {"kind": "context_length_exceeded", "message": "5000 tokens do not fit 4096"}
    failed = row(2, answer="", status="failed", finish_reason="error", error=error)
    bad = msgspec.json.decode(encode_row(failed, "openai"))
    assert bad["response"] is None
    assert bad["error"] == {"code": error["kind"], "message": error["message"]}
    assert bad["custom_id"] == "c2"

    cancelled = row(3, status="cancelled", finish_reason="cancelled")
    fields = msgspec.json.decode(encode_row(cancelled, "openai"))
    assert fields["response"] is None
    assert fields["error"]["code"] == "batch_cancelled"


def test_tool_calls_without_an_answer_have_no_content_in_openais_form() -> None:
    """As OpenAI writes them; an answer beside the calls stays."""
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    for answer, content in (("", None), ("42", "42")):
        one = row(1, answer=answer, tool_calls=calls, finish_reason="tool_calls")
        body = msgspec.json.decode(encode_row(one, "openai"))["response"]["body"]
        (choice,) = ChatCompletion.model_validate(body, strict=True).choices
        assert choice.message.content == content
        assert choice.message.tool_calls


@pytest.mark.parametrize("form", FORMATS)
def test_sp_36_the_row_of_an_empty_answer_says_so_and_has_its_thinking_once(form: Format) -> None:
    empty = row(1, answer="", thinking="8*7 = 56 so", finish_reason="length")
    data = encode_row(empty, form)
    fields = msgspec.json.decode(data)
    result = fields if form == "thinkq" else fields["thinkq"]
    assert (result["finish_reason"], result["warnings"]) == ("length", ["empty_answer"])
    assert data.count(b"8*7 = 56 so") == 1
    if form == "openai":
        (choice,) = fields["response"]["body"]["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
