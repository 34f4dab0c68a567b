"""Rows that share an engine: admission, prompts between turns, deadlines, cancels."""

from __future__ import annotations

from typing import Any

import pytest

from support.scripted import CLOSE, EOS, ask, natural, scripted_engine
from support.tiny_models import tiny_model
from thinkq.client.job import Job, Message
from thinkq.client.settings import load_settings
from thinkq.worker import lm
from thinkq.worker.demo import evaluation
from thinkq.worker.engine import PREFILL_STEP_BETWEEN, Engine
from thinkq.worker.row import Row

FOREVER = natural("ABCD", "XY")
NO_HOME = "/nonexistent"


def finish(engine: Engine) -> None:
    while engine.busy:
        engine.turn()


def test_a_cancelled_row_ends_at_the_next_turn_with_its_text() -> None:
    engine = scripted_engine(FOREVER, FOREVER)
    row, other = engine.add(ask(0), job_id="a"), engine.add(ask(1, max_tokens=30), job_id="b")
    for _ in range(6):
        engine.turn()
    engine.cancel(row)
    assert engine.turn() == [row]
    assert row.result is not None
    assert (row.result.status, row.result.finish_reason) == ("cancelled", "cancelled")
    assert row.result.thinking == "ABCDD"
    assert row.result.close_reason == "none"
    finish(engine)
    assert other.result is not None
    assert other.result.answer == "XY"


def test_a_row_cancelled_before_its_prompt_is_read_leaves_too() -> None:
    engine = scripted_engine(FOREVER, max_batch=1)
    running = engine.add(ask(max_tokens=20), job_id="a")
    engine.turn()
    engine._prefill.add(waiting := _row_behind(engine))
    engine.cancel(waiting)
    assert waiting in engine.turn()
    finish(engine)
    assert running.result is not None
    assert waiting.result is not None
    assert waiting.result.status == "cancelled"


def _row_behind(engine: Engine) -> Row:
    other = scripted_engine(FOREVER)
    return other.add(ask(), job_id="b")


def test_a_thought_whose_time_is_up_is_closed_and_answered() -> None:
    engine = scripted_engine(FOREVER)
    row = engine.add(ask(timeout=60), job_id="a")
    for _ in range(4):
        engine.turn()
    row.deadline = 0.0
    finish(engine)
    assert row.result is not None
    assert (row.result.thinking, row.result.answer) == ("ABCD", "XY")
    assert (row.result.close_reason, row.result.finish_reason) == ("deadline", "stop")


def test_the_time_that_a_job_waits_for_room_is_not_its_own() -> None:
    engine = scripted_engine(FOREVER, FOREVER, max_batch=1)
    engine.add(ask(0, max_tokens=20), job_id="a")
    engine.turn()
    other = scripted_engine(FOREVER).add(ask(timeout=60), job_id="b")
    engine._prefill.add(other)
    assert other.deadline is None
    while other.deadline is None:
        engine.turn()
    assert other.deadline >= other.prefilled_at + 60


def test_an_interrupted_run_leaves_nothing_for_the_next_one() -> None:
    """What Ctrl-C cut short must not come back among the results of the next call."""
    engine = scripted_engine(FOREVER, natural([CLOSE], "second"))
    turn, turns = engine.turn, []

    def interrupted() -> list[Row]:
        turns.append(1)
        if len(turns) == 3:
            raise KeyboardInterrupt
        return turn()

    engine.turn = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        engine.run([ask(0), ask(0)])
    engine.turn = turn  # type: ignore[method-assign]
    assert [result.answer for result in engine.run([ask(1), ask(1)])] == ["second", "second"]


@pytest.mark.parametrize(
    "options",
    [{"logit_bias": {"999999": -100}}, {"top_k": 2**31 - 1, "temperature": 1.0}],
    ids=["an id beyond the vocabulary", "more than all ids"],
)
def test_odd_but_valid_sampling_runs_beside_others(options: dict[str, Any]) -> None:
    engine = scripted_engine(FOREVER)
    results = engine.run([ask(max_tokens=20), ask(max_tokens=20, **options)])
    assert [result.status for result in results] == ["done", "done"]


def test_after_the_deadline_the_answer_has_its_reserve_and_no_more() -> None:
    engine = scripted_engine(natural("ABCD", "y" * 100))
    row = engine.add(ask(timeout=60, max_tokens=200, answer_reserve=10), job_id="a")
    for _ in range(4):
        engine.turn()
    row.deadline = 0.0
    finish(engine)
    assert row.result is not None
    assert row.result.answer == "y" * 10
    assert (row.result.status, row.result.finish_reason) == ("done", "timeout")


def test_a_deadline_that_passes_in_the_answer_ends_the_job_as_done() -> None:
    engine = scripted_engine(natural(["A", CLOSE], "y" * 100))
    row = engine.add(ask(timeout=60), job_id="a")
    for _ in range(6):
        engine.turn()
    row.deadline = 0.0
    finish(engine)
    assert row.result is not None
    assert (row.result.status, row.result.finish_reason) == ("done", "timeout")
    assert row.result.answer


def test_a_loop_is_closed_and_answered() -> None:
    engine = scripted_engine(natural([*"start:", *"wait, " * 400], "XY"))
    (result,) = engine.run([ask(max_tokens=2000)])
    assert (result.close_reason, result.loop_period, result.answer) == ("loop", 6, "XY")
    assert result.usage.thinking_tokens == len("start:") + 64
    (free,) = engine.run([ask(max_tokens=500, loop_guard=False)])
    assert free.close_reason == "budget"


def test_a_job_that_cannot_fit_alone_is_refused_with_the_numbers() -> None:
    engine = _tiny(memory_limit_gb=1e-3)
    (result,) = engine.run([_job(max_tokens=4000)])
    assert result.error is not None
    assert result.error.kind == "out_of_memory"
    assert "memory_limit_gb" in result.error.message


def test_rows_wait_for_room_and_all_get_it() -> None:
    """Room for two rows only: never more run together, and none fails."""
    engine = _tiny()
    cost = lm.kv_cost(engine.model)
    jobs = [_job(max_tokens=20 + i, answer_reserve=0) for i in range(6)]
    engine._prefill._room._limit = 2 * cost.bytes(100)
    most = 0
    rows = [engine.add(job, job_id=str(i)) for i, job in enumerate(jobs)]
    while engine.busy:
        engine.turn()
        most = max(most, len(engine.rows))
    assert most == 2
    assert all(row.result is not None and row.result.status == "done" for row in rows)


def test_a_long_prompt_is_read_between_turns_of_the_running_rows() -> None:
    """A running row goes on with one token at each turn while another's prompt is read."""
    engine = Engine.load("demo", max_batch=4, settings=load_settings({}, home=NO_HOME))
    running = engine.add(evaluation("hard")[0][0], job_id="running")
    for _ in range(5):
        engine.turn()
    long = engine.add(_job("7 " * 900, max_tokens=20), job_id="long")
    pieces = -(-len(long.prompt.ids) // PREFILL_STEP_BETWEEN)
    assert pieces >= 3
    before = running.completion_tokens
    for turn in range(1, pieces):
        engine.turn()
        assert len(engine.rows) == 1
        assert running.completion_tokens == before + turn
    engine.turn()
    assert len(engine.rows) == 2
    finish(engine)


@pytest.mark.parametrize("stop", [["END"], "END", ["nothing", "END", "ENDING"]])
def test_tt_06_a_stop_string_ends_the_answer_and_sleeps_in_the_thinking(
    stop: str | list[str],
) -> None:
    script = natural([*"an END of it", CLOSE], [*"Done ENDING more", EOS])
    (result,) = scripted_engine(script).run([ask(stop=stop)])
    assert (result.thinking, result.answer) == ("an END of it", "Done ")
    assert result.finish_reason == "stop"


def _tiny(**overrides: float) -> Engine:
    from support.scripted import make_tokenizer

    settings = load_settings({}, home=NO_HOME, **overrides)
    return Engine(tiny_model("qwen3"), make_tokenizer(), max_batch=4, settings=settings)


def _job(text: str = "hello", **options: int) -> Job:
    return Job(messages=[Message(role="user", content=text)], **options)  # type: ignore[arg-type]
