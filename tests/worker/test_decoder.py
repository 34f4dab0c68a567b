"""The decode thread around a scripted engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support import wait_until
from support.fake_engine import FakeEngine
from support.queues import gated, job
from thinkq.worker.decoder import Decoder
from thinkq.worker.task import Task


def task(prompt: str | int, job_id: str = "b1-1") -> Task:
    return Task(
        job=job(prompt), job_id=job_id, attempt=1, queued_s=0.0, sink=lambda text, reasoning: None
    )


@contextmanager
def running(*engines: FakeEngine) -> Iterator[Decoder]:
    """A decode thread that loads one engine after the other."""
    rest = iter(engines)
    decoder = Decoder(lambda *_: next(rest), lambda: None)
    decoder.start()
    try:
        yield decoder
    finally:
        assert decoder.stop(5)


def test_qw_19_one_thread_loads_the_model_and_makes_every_call() -> None:
    """MLX's streams belong to the thread that made them."""
    callers: set[int] = set()

    class Watched(FakeEngine):
        def turn(self) -> list:  # type: ignore[type-arg]
            callers.add(threading.get_ident())
            return super().turn()

    def load(*_: object) -> FakeEngine:
        callers.add(threading.get_ident())
        return Watched()

    decoder = Decoder(load, lambda: None)
    decoder.start()
    wait_until(lambda: decoder.room)
    decoder.submit(task(2))
    wait_until(decoder.ended)
    assert decoder.stop(5)
    assert callers == {decoder.ident}


def test_there_is_no_room_before_the_model_is_loaded_and_never_too_much() -> None:
    """A submitted task takes its room at once, not only when the engine sees it."""
    engine = gated(max_batch=2)
    assert engine.turns is not None
    decoder = Decoder(lambda *_: engine, lambda: None)
    assert decoder.room == 0
    decoder.start()
    wait_until(lambda: decoder.room == 2)
    decoder.submit(task(1, "b1-1"))
    assert decoder.room == 1
    decoder.submit(task(1, "b1-2"))
    assert decoder.room == 0
    engine.turns.release(10)
    wait_until(lambda: decoder.room == 2)
    assert decoder.stop(5)


def test_an_engine_that_failed_in_a_turn_is_replaced() -> None:
    """Nobody knows what state it is in; what waits goes to the new one."""
    broken, fresh = FakeEngine(), FakeEngine()
    with running(broken, fresh) as decoder:
        wait_until(lambda: decoder.room)
        decoder.submit(task("turn fails"))
        wait_until(decoder.ended)
        wait_until(lambda: decoder.room)
        decoder.submit(task(1, "b1-2"))
        wait_until(decoder.ended)
    assert fresh.added == ["b1-2"]


def test_only_a_thread_that_works_can_hang() -> None:
    """Neither waiting for jobs nor loading a model counts as being busy."""
    engine = gated()
    assert engine.turns is not None
    with running(engine) as decoder:
        wait_until(lambda: decoder.room)
        assert decoder.busy_since is None
        decoder.submit(task(1))
        wait_until(lambda: decoder.busy_since is not None)
        began = decoder.busy_since
        engine.turns.release(1)
        wait_until(lambda: decoder.busy_since != began)
        engine.turns.release(10)
        wait_until(lambda: decoder.busy_since is None)
