"""The page about a batch: its structure and its numbers, on real results in a real Redis."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import redis

from support.simulated_worker import SimulatedWorker, answered, some_jobs
from thinkq.client import batches
from thinkq.client.cli import main
from thinkq.client.errors import NotFound
from thinkq.client.job import Job
from thinkq.client.queue import JobQueue
from thinkq.client.report import report_page
from thinkq.client.report.aggregates import EDGES, Rate, Top, range_of
from thinkq.client.report.charts import nice_ticks
from thinkq.client.result import Budget, JobError, Result, Timing, Usage
from thinkq.client.settings import Settings

VOID = {"meta", "br"}
HOSTILE = "</pre></script><img src=x onerror=alert(1)>&amp;\x00\x1b[31m"


class Page(HTMLParser):
    """A page as a browser takes it: its elements, its text, and whether all are closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.cells: list[str] = []
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style" and data.strip():
            self.cells.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.cells)

    def after(self, name: str) -> str:
        """The piece of text that follows this one."""
        return self.cells[self.cells.index(name) + 1]


def outcome(job_id: str, job: Job) -> Result:
    """By line: 1 to 4 answered, 5 cut, 6 empty, 7 closed by its budget, 8 failed, 9 cancelled."""
    line = batches.line_of(job_id)
    thinking = Usage(thinking_tokens=100, answer_tokens=5, completion_tokens=106)
    timing = Timing(prefill_s=0.5, decode_s=float(line))
    common: dict[str, Any] = {"usage": thinking, "timing": timing, "model": "demo"}
    match line:
        case 5:
            return answered(job_id, job, finish_reason="length", **common)
        case 6:
            return answered(job_id, job, "", close_reason="length", **common)
        case 7:
            budget = Budget(requested=100, enforced=100, by="token")
            return answered(job_id, job, close_reason="budget", budget=budget, **common)
        case 8:
            error = JobError("template_error", f"it says {HOSTILE}")
            return Result(
                job_id=job_id,
                custom_id=HOSTILE,
                status="failed",
                finish_reason="error",
                error=error,
            )
        case 9:
            return answered(
                job_id, job, status="cancelled", finish_reason="cancelled", thinking=HOSTILE
            )
        case _:
            return answered(job_id, job, **common)


def test_the_page_tells_the_counts_of_the_batch(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """Outcomes, closes and names; elements are closed in order; nothing comes from outside."""
    JobQueue(connection).submit("bnight", some_jobs("night", 9), name="night.jsonl")
    worker.work(outcome)
    source = report_page(connection, "bnight")
    page = Page(source)
    assert "6 of 9" in page.cells
    for name, count in {"answered": 6, "empty": 1, "failed": 1, "cancelled": 1}.items():
        assert page.after(name) == str(count)
    for name, count in {"natural": 6, "budget": 1, "length": 1, "none": 1}.items():
        assert page.after(name) == str(count)
    assert "1 job cut by max_tokens." in page.cells
    assert "budget 100" in page.cells
    assert "tokens/s, all jobs together" in page.cells
    assert "night.jsonl" in page.text
    assert page.cells.count("bnight") == 1
    assert "script" not in page.tags
    assert not {name for name, _ in page.attributes} & {"src", "href", "onerror", "onload"}
    assert "http" not in source.replace("http://www.w3.org", "")


def test_what_users_wrote_is_shown_and_never_obeyed(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """Names, errors and thinking may hold anything; controls become a visible character."""
    JobQueue(connection).submit("bhostile", some_jobs("hostile", 9), name=HOSTILE)
    worker.work(outcome)
    page = Page(report_page(connection, "bhostile"))
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    assert page.cells.count(shown) >= 3, "the file's name, a custom_id, and a thought"
    assert any(cell.endswith(shown) and cell.startswith("it says") for cell in page.cells)
    assert "img" not in page.tags


def test_the_slowest_and_the_unanswered_jobs_are_listed_with_their_thinking_folded(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    JobQueue(connection).submit("bodd", some_jobs("odd", 9))
    worker.work(outcome)
    page = Page(report_page(connection, "bodd"))
    unanswered = page.cells[page.cells.index("Jobs without an answer") :]
    listed = [cell for cell in unanswered if cell in (HOSTILE, "c6", "c7", "c9", "c5")]
    slowest = page.cells[page.cells.index("Slowest jobs") :]
    assert [cell for cell in unanswered[:8] if cell == "c6"]
    assert listed.index("c6") < listed.index("c9")
    assert [cell for cell in slowest if cell.startswith("c")][:2] == ["c7", "c6"]
    assert page.tags.count("details") == page.tags.count("summary") > 0


def test_a_batch_that_still_runs_is_told_so_far(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """Also before anything has ended, and after a part has."""
    jobs = some_jobs("running", 4)
    JobQueue(connection).submit("brunning", jobs)
    page = Page(report_page(connection, "brunning"))
    assert "So far: 0 of 4 jobs have ended" in page.text
    assert page.after("not ended yet") == "4"
    taken = worker.take()
    assert taken
    worker.commit(answered(*taken))
    page = Page(report_page(connection, "brunning"))
    assert "So far: 1 of 4 jobs have ended" in page.text
    worker.work()
    assert "So far" not in Page(report_page(connection, "brunning")).text


def test_a_job_that_was_retried_is_told_once(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """The batch has an event for each of its ends."""
    jobs = some_jobs("again", 2)
    queue = JobQueue(connection)
    queue.submit("bagain", jobs)
    worker.work(lambda job_id, job: answered(job_id, job, ""))
    assert queue.retry("bagain", jobs) == 2
    worker.work()
    page = Page(report_page(connection, "bagain"))
    assert page.after("answered") == "2"
    assert page.after("natural") == "2"


def test_a_batch_that_is_not_there_is_no_page(connection: redis.Redis) -> None:
    with pytest.raises(NotFound):
        report_page(connection, "bnone")


def test_the_command_writes_a_file_and_says_which(
    connection: redis.Redis,
    worker: SimulatedWorker,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By default beside the caller, named after the batch; `-` is stdout."""
    monkeypatch.setenv("THINKQ_HOME", settings.home)
    monkeypatch.setenv("THINKQ_REDIS_URL", settings.effective_redis_url)
    monkeypatch.chdir(tmp_path)
    JobQueue(connection).submit("bfile", some_jobs("file", 1))
    worker.work()
    assert main(["report", "bfile"]) == 0
    assert "bfile.html" in capsys.readouterr().err
    written = (tmp_path / "bfile.html").read_text("utf-8")
    assert main(["report", "bfile", "-o", "-"]) == 0
    assert Page(capsys.readouterr().out).cells[:-1] == Page(written).cells[:-1]
    assert main(["report", "bnone"]) == 2


def test_ranges_of_tokens_meet_without_gap_or_overlap() -> None:
    """Every number is in one range, and the range ends at or after it."""
    for tokens in range(5000):
        index = range_of(tokens)
        assert EDGES[index] >= tokens
        assert index == 0 or EDGES[index - 1] < tokens
    assert list(EDGES) == sorted(set(EDGES))


def test_tokens_are_spread_over_their_time_and_none_is_lost() -> None:
    """Slots grow with the time; the sum stays."""
    rate = Rate()
    for hour in range(500_000, 500_012):  # since 1970
        rate.add(3600, hour * 3_600_000, (hour + 1) * 3_600_000)
    assert len(rate.per_second()) <= Rate.SLOTS + 1
    assert rate.per_second() == pytest.approx([1.0] * len(rate.per_second()))


def test_the_top_keeps_the_highest_and_the_first_of_equals() -> None:
    top: Top[str] = Top(2)
    for rank, name in ((1, "a"), (3, "b"), (3, "c"), (2, "d")):
        top.add(rank, name)
    assert top.items() == ["b", "c"]
    assert top.seen == 4


@pytest.mark.parametrize(("highest", "last"), [(1, 1), (6, 6), (7, 8), (37, 40), (323, 400)])
def test_an_axis_ends_at_a_round_number(highest: float, last: float) -> None:
    ticks = nice_ticks(highest)
    assert ticks[-1] == last
    assert len(ticks) <= 7
