"""What people who watch see of jobs that a real worker holds."""

from __future__ import annotations

import redis

from support.queues import gated, job, leases, opened, streamed, submit, tick_until
from thinkq.client import live
from thinkq.client.settings import Settings


def test_the_tails_are_what_the_running_jobs_of_the_batch_write_last(
    settings: Settings, connection: redis.Redis
) -> None:
    """Thinking and answer are told apart; other batches are left out."""
    engine = gated()
    assert engine.turns is not None
    first, second = submit(connection, "b1", job(3, custom_id="one"), job(30, custom_id="two"))
    submit(connection, "b2", job(30, custom_id="of another"))
    with opened(settings, engine) as process:
        tick_until(process, lambda: len(leases(connection)) == 3)
        engine.turns.release(5)
        tick_until(process, lambda: "a4 " in streamed(connection, first, reasoning=False))
        tick_until(process, lambda: "t3 " in streamed(connection, second, reasoning=True))
        shown = {tail.name: tail for tail in live.tails(connection, "b1")()}
    assert shown.keys() == {"one", "two"}
    assert shown["one"].text == "a3 a4 "
    assert not shown["one"].is_reasoning
    assert shown["two"].text.startswith("t0 t1 t2 t3 ")
    assert shown["two"].is_reasoning


def test_a_redis_that_is_away_leaves_what_was_seen_last(settings: Settings) -> None:
    """Progress must not end a run."""
    calls: list[int] = []

    def read() -> int:
        calls.append(1)
        raise redis.ConnectionError

    recent = live.Recent(read, 7)
    assert [recent(), recent()] == [7, 7]
    assert len(calls) == 1, "it is not asked again at once"
