"""What is written in OpenAI's form, read with OpenAI's own types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redis
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from support.simulated_worker import SimulatedWorker, answered
from thinkq.client import batches
from thinkq.client.cli import main
from thinkq.client.job import Job
from thinkq.client.result import FinishReason, JobError, Result, Usage
from thinkq.client.settings import Settings

CALLS = [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]
ENDINGS: list[tuple[FinishReason, str]] = [
    ("stop", "stop"),
    ("length", "length"),
    ("tool_calls", "tool_calls"),
    ("timeout", "length"),
]


@pytest.fixture(autouse=True)
def home(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setenv("THINKQ_REDIS_URL", settings.effective_redis_url)
    monkeypatch.chdir(tmp_path)


def request(custom_id: str, **more: Any) -> str:
    """A line as OpenAI's documentation has it; mypy holds the body to the types of its package."""
    body: CompletionCreateParamsNonStreaming = {
        "model": "demo",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "What is 2 + 2?"},
        ],
        "max_completion_tokens": 1000,
        "temperature": 0.5,
        "user": "someone",
        "store": False,
        "n": 1,
    }
    line = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions"}
    return json.dumps(line | {"body": {**body, **more}}) + "\n"


def outcome(job_id: str, job: Job) -> Result:
    line = batches.line_of(job_id)
    if line > len(ENDINGS):
        error = JobError("context_length_exceeded", "5000 tokens are more than 4096")
        return answered(job_id, job, "", status="failed", finish_reason="error", error=error)
    reason = ENDINGS[line - 1][0]
    usage = Usage(
        prompt_tokens=20, cached_tokens=5, thinking_tokens=30, answer_tokens=4, completion_tokens=36
    )
    calls = CALLS if reason == "tool_calls" else None
    return answered(
        job_id, job, finish_reason=reason, usage=usage, tool_calls=calls, model=job.model
    )


def test_a_file_for_openais_batch_api_runs_unchanged_and_its_output_has_openais_types(
    connection: redis.Redis, worker: SimulatedWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each row has a response or an error; a body is a ChatCompletion, with the usage in detail."""
    count = len(ENDINGS) + 1
    Path("batch.jsonl").write_text("".join(request(f"r{n}") for n in range(count)))
    with worker.at_work(outcome):
        assert main(["run", "batch.jsonl", "--format", "openai", "-o", "out.jsonl"]) == 3
    assert "unknown" not in capsys.readouterr().err
    *good, bad = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["custom_id"] for row in (*good, bad)] == [f"r{n}" for n in range(count)]
    for row, (_, expected) in zip(good, ENDINGS, strict=True):
        assert row["error"] is None
        assert row["response"]["status_code"] == 200
        completion = ChatCompletion.model_validate(row["response"]["body"], strict=True)
        (choice,) = completion.choices
        assert choice.finish_reason == expected
        assert choice.message.content == "42"
        assert choice.message.model_extra == {"reasoning_content": "hm"}
        assert bool(choice.message.tool_calls) == (expected == "tool_calls")
        usage = completion.usage
        assert usage
        assert usage.total_tokens == 56
        assert usage.completion_tokens_details
        assert usage.completion_tokens_details.reasoning_tokens == 30
        assert usage.prompt_tokens_details
        assert usage.prompt_tokens_details.cached_tokens == 5
    assert bad["response"] is None
    assert bad["error"]["code"] == "context_length_exceeded"


def test_what_openais_client_puts_beside_its_own_fields_reaches_the_job(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """As `extra_body`, or merged into the body as the client sends it."""
    extra = {"thinking_token_budget": 100, "reasoning_effort": "high"}
    Path("batch.jsonl").write_text(request("a", extra_body=extra) + request("b", **extra))
    seen: list[Job] = []

    def note(job_id: str, job: Job) -> Result:
        seen.append(job)
        return answered(job_id, job)

    with worker.at_work(note):
        assert main(["run", "batch.jsonl", "-o", "out.jsonl"]) == 0
    assert [job.thinking_token_budget for job in seen] == [100, 100]
    assert [job.reasoning_effort for job in seen] == ["high", "high"]
    assert [job.max_tokens for job in seen] == [1000, 1000]
