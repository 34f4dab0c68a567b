"""What people see: streams, summaries, progress."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.text import Text

from support.simulated_worker import answered, some_jobs
from thinkq.client.events import Event
from thinkq.client.live import Tail
from thinkq.client.progress import Lines, Pace, observing
from thinkq.client.render import (
    DIM,
    RESET,
    JobView,
    duration,
    one_line,
    shows_color,
    summary,
)
from thinkq.client.result import encode_result

JOB = some_jobs("render", 1)[1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def delta(text: str, is_reasoning: bool = False) -> Event:
    return Event(type="delta", text=text, is_reasoning=is_reasoning)


def done() -> Event:
    return Event(type="done", result=encode_result(answered("b1-1", JOB)).decode())


def show(out: io.StringIO, err: io.StringIO, *events: Event) -> None:
    assert JobView(out, err).show([*events, done()])


def test_thinking_is_dim_on_a_terminal_and_the_answer_bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, err = Terminal(), Terminal()
    show(out, err, delta("hm", True), delta("4"), delta("2"))
    assert err.getvalue() == f"{DIM}hm{RESET}\n\n"
    assert out.getvalue() == "42\n"


def test_no_color_and_pipes_are_honoured() -> None:
    assert shows_color(Terminal(), {})
    assert not shows_color(Terminal(), {"NO_COLOR": "1"})
    assert shows_color(Terminal(), {"NO_COLOR": ""})
    assert not shows_color(io.StringIO(), {})


def test_a_pipe_gets_only_the_answer_of_the_last_attempt() -> None:
    out, err = io.StringIO(), io.StringIO()
    show(out, err, delta("4"), Event(type="restart", attempt=2), delta("42"))
    assert out.getvalue() == "42\n"
    assert "begins anew" in err.getvalue()


def test_a_terminal_sees_the_answer_grow() -> None:
    out = Terminal()
    view = JobView(out, io.StringIO())
    assert view.show([delta("4")]) is None
    assert out.getvalue() == "4"


def test_the_summary_names_all_counts() -> None:
    tally = Counter(done=7, failed=1, empty=2, cancelled=1, length=3, thinking_tokens=12345)
    tally.update({"close:natural": 4, "close:budget": 2, "close:eos": 1, "answer_tokens": 50})
    assert summary(tally, new_tokens=1000, seconds=100.0) == [
        "7 done, 1 failed, 2 empty, 1 cancelled, 3 cut by max_tokens",
        "thinking closed: 4 natural, 2 budget, 0 loop, 1 eos",
        "12,345 thinking and 50 answer tokens; 10.0 tokens/s; 1 min 40 s",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (59.4, "59.4 s"), (61, "1 min 1 s"), (7384, "2 h 3 min")]
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_pace_counts_only_what_came_since_its_start() -> None:
    clock = Clock()
    pace = Pace(10, clock)
    for _ in range(4):
        pace.count(answered("b1-1", JOB))
    pace.start()
    clock.now = 10.0
    pace.count(answered("b1-1", JOB))
    pace.count(answered("b1-1", JOB, ""))
    assert pace.line() == (
        "6/10: 6 done, 0 failed, 1 empty; 20.0 s left; 1 thinking and 1 answer tokens/s"
    )
    pace.speed = lambda: 100.0
    assert pace.line().endswith("60 thinking and 40 answer tokens/s"), "what the workers say wins"


def test_before_anything_has_ended_no_time_is_told() -> None:
    """A number that nobody can know is worse than none."""
    clock = Clock()
    pace = Pace(10, clock)
    clock.now = 5.0
    assert pace.line() == "0/10: 0 done, 0 failed, 0 empty"
    pace.speed = lambda: 1234.5
    assert pace.line() == "0/10: 0 done, 0 failed, 0 empty; 1,234 tokens/s"
    clock.now = 1.0
    assert "tokens/s" not in pace.line(), "the workers tell of the second before"


def test_plain_lines_come_every_two_seconds_and_while_nothing_ends_every_five() -> None:
    clock, out = Clock(), io.StringIO()
    pace = Pace(100, clock)
    lines = Lines(pace, out, clock)
    written = []
    for second in range(1, 20):
        clock.now = float(second)
        if second <= 6:
            pace.count(answered("b1-1", JOB))
        before = out.tell()
        lines.changed()
        if out.tell() > before:
            written.append(second)
    assert written == [2, 4, 6, 11, 16]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_view_never_wraps(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the counts nor what jobs write, which may hold anything."""
    monkeypatch.setenv("COLUMNS", str(columns))
    clock = Clock()
    pace = Pace(12_345, clock)
    clock.now = 10.0
    pace.speed = lambda: 5432.1
    pace.tally.update(done=4321, failed=12, empty=3, thinking_tokens=700, answer_tokens=70)
    out = Terminal()
    tails = [Tail("a-long-custom-id", one_line("x" * 500 + "\x1b[31m\n[bold]"), True)]
    with observing(pace, out, lambda: tails) as observer:
        observer.changed()
        (bar, tail) = drawn(out)
    assert len(bar) <= columns
    assert len(tail) <= columns
    assert "4333/" in bar or columns == 40
    assert tail.endswith("\ufffd[31m [bold]")


def drawn(out: io.StringIO) -> list[str]:
    """The lines that are on the terminal, without their styles."""
    return [Text.from_ansi(line).plain for line in out.getvalue().splitlines() if line.strip()][-2:]


def test_what_a_model_writes_cannot_command_a_terminal() -> None:
    """A pipe gets it as it is."""
    out, pipe = Terminal(), io.StringIO()
    show(out, Terminal(), delta("4\x1b]0;title\x07"))
    show(pipe, io.StringIO(), delta("4\x1b]0;title\x07"))
    assert "\x1b" not in out.getvalue()
    assert "\x1b]0;" in pipe.getvalue()


def test_a_terminal_has_a_bar_with_the_counts() -> None:
    out = Terminal()
    pace = Pace(2)
    with observing(pace, out) as observer:
        observer.note("[the worker] is loading")
        pace.count(answered("b1-1", JOB))
        observer.changed()
    assert "[the worker] is loading" in out.getvalue()
    assert "1/2: 1 done" in out.getvalue()
