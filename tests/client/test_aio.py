"""The Python interface for asyncio, on a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from support.servers import start_again
from support.simulated_worker import SimulatedWorker, answered
from thinkq.client import AsyncClient, keys, steps, stream
from thinkq.client.connection import connect
from thinkq.client.errors import InvalidBatch, JobsLost, NotFound, RedisUnavailable, ResultTimeout
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.redis_server import RedisServer

Run = Callable[[Callable[[AsyncClient], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a coroutine function on a client, to the end of its event loop."""
    monkeypatch.setattr(stream, "BLOCK_MS", 50)

    def run(test: Callable[[AsyncClient], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with AsyncClient(settings=settings) as client:
                await test(client)

        asyncio.run(main())

    return run


def asking(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


def in_use(client: AsyncClient) -> int:
    """Connections that some reader has not given back."""
    return len(client.connection.connection_pool._in_use_connections)


def test_jobs_are_submitted_followed_and_their_results_taken(
    run: Run, worker: SimulatedWorker
) -> None:
    async def test(client: AsyncClient) -> None:
        batch = await client.submit([asking("one"), asking("two")], name="two")
        assert repr(batch) == f"<AsyncBatch {batch.id}: 2 jobs>"
        assert (await batch.status()).queued == 2
        await asyncio.to_thread(worker.work)
        first, second = batch.job_ids
        types = [event.type async for event in client.follow(first)]
        assert types == ["start", "delta", "delta", "done"]
        assert (await client.result(second, timeout=1)).answer == "42"
        again = await client.batch(batch.id)
        assert [result.job_id async for result in again.results()] == batch.job_ids
        assert [result.job_id async for result in again.completed()] == batch.job_ids
        assert in_use(client) == 0

    run(test)


def test_many_jobs_are_followed_at_once(run: Run, worker: SimulatedWorker) -> None:
    """More than redis-py's own limit of connections."""

    async def test(client: AsyncClient) -> None:
        batch = await client.submit([asking(f"{number}") for number in range(120)])
        results = [asyncio.create_task(client.result(job_id)) for job_id in batch.job_ids]
        async with asyncio.timeout(60):
            while in_use(client) < 120:
                await asyncio.sleep(0)
            await asyncio.to_thread(worker.work)
            ended = await asyncio.gather(*results)
        assert [result.job_id for result in ended] == batch.job_ids

    run(test)


def test_jobs_are_cancelled_retried_and_removed(run: Run, worker: SimulatedWorker) -> None:
    async def test(client: AsyncClient) -> None:
        batch = await client.submit([asking("cancelled"), asking("too")])
        assert batch.new_jobs == 2
        assert (await client.cancel(batch.id)).cancelled == 2
        assert await client.retry(batch.id) == 2
        await asyncio.to_thread(worker.work)
        assert [result.answer async for result in batch.completed()] == ["42", "42"]
        await client.remove(batch.id)
        with pytest.raises(NotFound):
            await client.status(batch.id)

    run(test)


def test_nobody_waits_for_jobs_that_are_lost(run: Run, worker: SimulatedWorker) -> None:
    async def test(client: AsyncClient) -> None:
        batch = await client.submit([asking("lost")])
        worker.connection.delete(f"rq:queue:{keys.QUEUES['normal']}")
        async with asyncio.timeout(10):
            with pytest.raises(JobsLost):
                await anext(batch.completed())

    run(test)


def test_a_question_is_answered(run: Run, worker: SimulatedWorker) -> None:
    async def test(client: AsyncClient) -> None:
        assert (await client.ask("What?", max_tokens=64)).require_answer() == "42"
        with pytest.raises(InvalidBatch, match="max_tokens"):
            await client.ask("What?", max_tokens=-1)

    with worker.at_work():
        run(test)


def test_a_reader_that_is_cancelled_leaves_nothing_behind(
    run: Run, worker: SimulatedWorker
) -> None:
    """Its connection goes back or is closed, and no reply meant for it reaches another reader."""

    async def test(client: AsyncClient) -> None:
        batch = await client.submit([asking("cancelled"), asking("other")])
        cancelled, other = batch.job_ids

        async def read() -> None:
            async for _ in client.follow(cancelled):
                reading.set()

        for _ in range(5):
            reading = asyncio.Event()
            worker.event(cancelled, type="start")
            task = asyncio.create_task(read())
            await reading.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert in_use(client) == 0
        await asyncio.to_thread(worker.work)
        events = [event.type async for event in client.follow(other)]
        assert events == ["start", "delta", "delta", "done"]
        assert (await client.result(other)).job_id == other

    run(test)


def test_a_reader_may_leave_at_any_event(run: Run, worker: SimulatedWorker) -> None:
    async def test(client: AsyncClient) -> None:
        (job_id,) = (await client.submit([asking("left")])).job_ids
        await asyncio.to_thread(worker.work)
        async with aclosing(client.follow(job_id)) as events:
            first = await anext(events)
        assert in_use(client) == 0
        rest = [event.type async for event in client.follow(job_id, after=first.id)]
        assert [first.type, *rest] == ["start", "delta", "delta", "done"]

    run(test)


def test_what_is_not_there_or_not_in_time_is_told(run: Run, worker: SimulatedWorker) -> None:
    async def test(client: AsyncClient) -> None:
        with pytest.raises(NotFound):
            await client.batch("bnone")
        with pytest.raises(NotFound):
            await client.result("bnone-1")
        (job_id,) = (await client.submit([asking("slow")])).job_ids
        with pytest.raises(ResultTimeout, match="has not ended yet"):
            await client.result(job_id, timeout=0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.result(job_id)
        assert in_use(client) == 0

    run(test)


def test_a_server_that_is_away_is_a_thinkq_error(settings: Settings) -> None:
    async def main() -> None:
        async with AsyncClient(settings=load_settings({}, home=settings.home)) as client:
            with pytest.raises(RedisUnavailable, match="daemon start"):
                await client.submit([asking("x")])
            with pytest.raises(RedisUnavailable, match="daemon start"):
                await anext(client.follow("b1-1"))

    asyncio.run(main())


def test_qw_21_following_survives_a_server_that_is_killed(
    tmp_path: Path, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server dies without a word and comes back: nothing is missed, nothing told twice."""
    monkeypatch.setattr(stream, "BLOCK_MS", 50)
    settings = load_settings({}, home=str(tmp_path))
    tried = threading.Event()
    pause = steps.Patience.pause

    def told(patience: steps.Patience, error: Any) -> float:
        tried.set()
        return pause(patience, error)

    monkeypatch.setattr(steps.Patience, "pause", told)

    async def main() -> None:
        with connect(settings) as connection:
            worker = SimulatedWorker(connection)
            async with AsyncClient(settings=settings) as client:
                (job_id,) = (await client.submit([asking("killed")])).job_ids
                taken = worker.take()
                assert taken
                worker.event(job_id, type="start")
                following = client.follow(job_id)
                events = [await anext(following)]
                own_server.kill()
                rest = asyncio.create_task(anext(following))
                await asyncio.to_thread(tried.wait)
                await asyncio.to_thread(start_again, own_server)
                worker.event(job_id, type="delta", is_reasoning="0", text="42")
                worker.commit(answered(*taken))
                events += [await rest, *[event async for event in following]]
        assert [event.type for event in events] == ["start", "delta", "done"]

    asyncio.run(main())
