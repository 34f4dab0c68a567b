"""Following jobs and batches, on a real server."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
import redis

from support.servers import start_again
from support.simulated_worker import SimulatedWorker, answered, some_jobs
from thinkq.client import batches, keys, steps, stream
from thinkq.client.connection import connect
from thinkq.client.errors import NotFound, RedisUnavailable
from thinkq.client.events import Event
from thinkq.client.queue import JobQueue
from thinkq.client.result import Result, decode_result
from thinkq.client.settings import load_settings
from thinkq.daemon.redis_server import RedisServer


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet second lasts a twentieth."""
    monkeypatch.setattr(stream, "BLOCK_MS", 50)


def submitted(connection: redis.Redis, batch: str, number: int = 1) -> list[str]:
    JobQueue(connection).submit(batch, some_jobs(batch, number))
    return batches.job_ids(connection, batch)


def texts(events: list[Event]) -> tuple[str, str]:
    """Thinking and answer of a whole stream, by a reader that follows the rules."""
    parts: dict[bool, list[str]] = {True: [], False: []}
    for event in events:
        if event.type in ("start", "restart"):
            parts = {True: [], False: []}
        elif event.type == "delta":
            parts[event.is_reasoning].append(event.text)
    return "".join(parts[True]), "".join(parts[False])


def test_qw_21_a_reader_that_comes_late_misses_nothing(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """QW-21: joined after 500 entries, and resumed after the last id that was seen."""
    (job_id,) = submitted(connection, "blate")
    worker.event(job_id, type="start")
    for number in range(700):
        worker.event(job_id, type="delta", is_reasoning="1", text=f"t{number} ")
    taken = worker.take()
    assert taken
    worker.event(job_id, type="delta", is_reasoning="0", text="né🔥")
    thinking = "".join(f"t{number} " for number in range(700))
    worker.commit(answered(*taken, "né🔥", thinking=thinking))

    events = list(stream.follow(connection, job_id))
    assert texts(events) == (thinking, "né🔥")
    assert events[-1].type == "done"
    assert decode_result(events[-1].result).status == "done"

    seen, rest = events[:300], list(stream.follow(connection, job_id, after=events[299].id))
    assert texts([*seen, *rest]) == (thinking, "né🔥")


def test_events_come_while_the_job_runs(connection: redis.Redis, worker: SimulatedWorker) -> None:
    (job_id,) = submitted(connection, "blive")
    events = stream.follow(connection, job_id)
    worker.event(job_id, type="start")
    assert next(events).type == "start"
    worker.event(job_id, type="delta", is_reasoning="1", text="a")
    assert next(events).text == "a"


def test_entries_of_an_older_attempt_are_left_out(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """A worker that lost its job may still be writing."""
    (job_id,) = submitted(connection, "bzombie")
    taken = worker.take()
    assert taken
    worker.event(job_id, type="start")
    worker.event(job_id, type="delta", is_reasoning="0", text="old")
    worker.event(job_id, type="restart", attempt="2")
    worker.event(job_id, type="delta", is_reasoning="0", text="zombie")
    worker.event(job_id, type="delta", is_reasoning="0", text="new", attempt="2")
    worker.event(job_id, type="done", result="{}")
    worker.commit(answered(*taken, "new", attempt=2))
    events = list(stream.follow(connection, job_id))
    assert [event.type for event in events] == ["start", "delta", "restart", "delta", "done"]
    assert texts(events) == ("", "new")


def test_a_stream_that_has_expired_is_told_from_the_result(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    (job_id,) = submitted(connection, "bexpiredstream")
    worker.work()
    connection.delete(keys.stream(job_id))
    events = list(stream.follow(connection, job_id))
    assert [event.type for event in events] == ["restart", "delta", "delta", "done"]
    assert texts(events) == ("hm", "42")


def test_a_reader_that_has_seen_the_end_is_not_kept_waiting(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    (job_id,) = submitted(connection, "bseen")
    worker.work()
    last = list(stream.follow(connection, job_id))[-1]
    assert list(stream.follow(connection, job_id, after=last.id)) == []


def test_a_job_that_is_not_there_is_named(connection: redis.Redis) -> None:
    with pytest.raises(NotFound, match="there is no job 'bnone-1'"):
        list(stream.follow(connection, "bnone-1"))


def test_idle_is_called_when_nothing_comes_and_ends_the_following(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    (job_id,) = submitted(connection, "bidle")

    def idle() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        next(stream.follow(connection, job_id, idle=idle))


def test_following_survives_lost_connections(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    """The server cuts the reader off, as it does when it is restarted."""
    (job_id,) = submitted(connection, "bcut")
    worker.event(job_id, type="start")
    events = stream.follow(connection, job_id)
    assert next(events).type == "start"
    others = redis.Redis.from_url(connection_url(connection))
    with others:
        others.client_kill_filter(_type="normal", skipme=True)
    worker.event(job_id, type="delta", is_reasoning="0", text="after")
    assert next(events).text == "after"


def test_qw_21_following_survives_a_server_that_is_killed(
    tmp_path: Path, own_server: RedisServer
) -> None:
    """The server dies without a word and comes back: nothing is missed, nothing told twice."""
    with connect(load_settings({}, home=str(tmp_path))) as connection:
        (job_id,) = submitted(connection, "bkilled")
        worker = SimulatedWorker(connection)
        taken = worker.take()
        assert taken
        worker.event(job_id, type="start")
        worker.event(job_id, type="delta", is_reasoning="1", text="hm")
        tries = 0

        def idle() -> None:
            nonlocal tries
            tries += 1
            if tries == 2:
                start_again(own_server)
                worker.event(job_id, type="delta", is_reasoning="0", text="42")
                worker.commit(answered(*taken))

        following = stream.follow(connection, job_id, idle=idle)
        events = [next(following), next(following)]
        own_server.kill()
        events += following
        assert [event.type for event in events] == ["start", "delta", "delta", "done"]
        assert texts(events) == ("hm", "42")


def test_a_server_that_stays_away_ends_the_following(
    tmp_path: Path, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "RECONNECT_S", 0.0)
    with connect(load_settings({}, home=str(tmp_path))) as connection:
        (job_id,) = submitted(connection, "bgone")
        SimulatedWorker(connection).event(job_id, type="start")
        following = stream.follow(connection, job_id)
        next(following)
        own_server.kill()
        with pytest.raises(RedisUnavailable, match="start it again"):
            next(following)


def test_a_server_that_was_never_there_is_told_at_once(tmp_path: Path) -> None:
    with (
        connect(load_settings({}, home=str(tmp_path))) as connection,
        pytest.raises(redis.ConnectionError),
    ):
        next(stream.follow(connection, "b1-1"))


def connection_url(connection: redis.Redis) -> str:
    return f"unix://{connection.connection_pool.connection_kwargs['path']}"


def test_completed_yields_each_result_once_first_those_that_are_there(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    ids = submitted(connection, "bcompleted", 4)
    for _ in range(2):
        taken = worker.take()
        assert taken
        worker.commit(answered(*taken))
    came: list[Result] = []
    thread: threading.Thread | None = None
    for result in stream.completed(connection, "bcompleted", ids):
        came.append(result)
        if len(came) == 2:
            thread = threading.Thread(target=worker.work)
            thread.start()
    assert thread
    thread.join()
    assert [result.job_id for result in came] == ids


def test_completed_says_when_the_batch_is_removed_meanwhile(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    ids = submitted(connection, "bremoved")
    waiting = stream.completed(connection, "bremoved", ids)
    connection.delete(keys.batch("bremoved"))
    with pytest.raises(NotFound):
        next(waiting)


def test_batch_events_tell_how_each_job_ended(
    connection: redis.Redis, worker: SimulatedWorker
) -> None:
    submitted(connection, "bevents", 2)
    answers = {"bevents-1": "", "bevents-2": "42"}
    worker.work(lambda job_id, job: answered(job_id, job, answers[job_id]))
    events = stream.follow_batch(connection, "bevents")
    first, second = next(events), next(events)
    assert msgspec.structs.replace(first, id="") == stream.BatchEvent(
        "", "bevents-1", "done", "stop", True
    )
    assert (second.job_id, second.empty) == ("bevents-2", False)
