"""Text on its way from the decode thread to a stream."""

from __future__ import annotations

import redis

from support.queues import events, streamed
from thinkq.worker.publish import COALESCE_CHARS, Deltas, publish


def deltas(wakes: list[int] | None = None, job_id: str = "b1-1") -> Deltas:
    return Deltas(
        job_id,
        attempt=1,
        opening="start",
        coalesce_s=1.0,
        wake=lambda: wakes.append(1) if wakes is not None else None,
    )


def taken(stream: Deltas, now: float) -> list[tuple[str, str, bool]]:
    return [(event.type, event.text, event.is_reasoning) for event in stream.take(now)]


def test_runs_of_one_kind_become_one_delta_in_order() -> None:
    """Thinking and answer are never mixed in an entry."""
    stream = deltas()
    for text, is_reasoning in (("a", True), ("b", True), ("c", False), ("d", True)):
        stream.add(text, is_reasoning)
    assert taken(stream, 0.0) == [
        ("start", "", False),
        ("delta", "ab", True),
        ("delta", "c", False),
        ("delta", "d", True),
    ]
    assert taken(stream, 0.0) == []


def test_the_first_text_is_due_at_once_and_later_text_when_there_is_time_or_much_of_it() -> None:
    """A reader sees at once that something comes, and the server is not called for each token."""
    wakes: list[int] = []
    stream = deltas(wakes)
    list(stream.take(10.0))
    assert not stream.due(10.0)
    stream.add("a", True)
    assert stream.due(10.0)
    assert wakes == [1]
    list(stream.take(10.0))
    stream.add("b", True)
    assert not stream.due(10.9)
    assert stream.due(11.0)
    assert wakes == [1]
    stream.add("x" * COALESCE_CHARS, True)
    assert stream.due(10.0)
    assert wakes == [1, 1]


def test_the_rest_is_due_at_once_when_the_job_has_ended() -> None:
    """Nothing may come after `done`."""
    stream = deltas()
    stream.add("a", True)
    list(stream.take(10.0))
    stream.add("b", True)
    assert not stream.due(10.1)
    stream.close()
    assert stream.due(10.1)


def test_after_an_error_a_reader_gets_everything_again_and_nothing_twice(
    connection: redis.Redis,
) -> None:
    """Nobody knows which entries arrived, so readers are told to drop what they have."""
    stream = deltas()
    stream.add("a", True)
    publish(connection, [stream], 0.0)
    stream.add("b", False)
    stream.rewind()
    publish(connection, [stream], 0.0)
    kinds = [event.type for event in events(connection, "b1-1")]
    assert kinds == ["start", "delta", "restart", "delta", "delta"]
    assert streamed(connection, "b1-1", reasoning=True) == "a"
    assert streamed(connection, "b1-1", reasoning=False) == "b"


def test_a_stream_that_was_to_expire_stays_while_it_grows(connection: redis.Redis) -> None:
    """A job that is run once more writes to the stream of its former life."""
    former, stream = deltas(), deltas()
    publish(connection, [former], 0.0)
    connection.expire(stream.stream, 100)
    stream.add("a", True)
    publish(connection, [stream], 0.0)
    assert connection.ttl(stream.stream) == -1


def test_text_alone_neither_begins_a_stream_nor_keeps_one(connection: redis.Redis) -> None:
    """A worker that lost its job may write for a moment: after the end, or after a removal."""
    late = deltas()
    publish(connection, [late], 0.0)
    connection.expire(late.stream, 100)
    late.add("a", True)
    publish(connection, [late], 0.0)
    assert connection.ttl(late.stream) == 100
    connection.delete(late.stream)
    late.add("b", True)
    late.close()
    publish(connection, [late], 0.0)
    assert not connection.exists(late.stream)
