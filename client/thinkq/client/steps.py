"""Reading Redis without I/O: what to ask next is decided once, for threads and for asyncio.

A script is a generator that yields what it asks of the server, is sent the replies, and yields
whatever it has found out. `drive` and `drive_async` carry it out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import closing
from typing import Any, Final, TypeVar

import msgspec
import redis
import redis.asyncio

from thinkq.client.errors import RedisUnavailable

RECONNECT_S: Final = 60.0
"""A server that is away longer than this ends the reading."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

AWAY: Final = (redis.ConnectionError, redis.TimeoutError)
"""What a server that is being restarted raises."""

T = TypeVar("T")
Command = tuple[str | int, ...]
Idle = Callable[[], None]


class Ask(msgspec.Struct, frozen=True):
    """Commands whose replies a script needs: one for one, of several a list of one moment."""

    commands: tuple[Command, ...]
    waits: bool = False
    """The server waits a while for news; a reply without any is a quiet moment."""


class Call(msgspec.Struct, frozen=True):
    """What other code reads by itself, with a connection for threads. Its value is the reply."""

    function: Callable[[redis.Redis], Any]


Step = Ask | Call
Script = Generator[Ask | Call | T, Any, None]
Perform = Callable[[Step], Any]
PerformAsync = Callable[[Step], Awaitable[Any]]


def nothing() -> None:
    """The `idle` of those who have nothing to do meanwhile."""


def drive(perform: Perform, script: Script[T], idle: Idle = nothing) -> Iterator[T]:
    """What the script finds out. `idle` is called at each quiet moment, and ends it by raising."""
    reply = None
    with closing(script):
        while True:
            try:
                step = script.send(reply)
            except StopIteration:
                return
            reply = None
            if isinstance(step, Ask | Call):
                reply = perform(step)
                if isinstance(step, Ask) and step.waits and not reply:
                    idle()
            else:
                yield step


async def drive_async(perform: PerformAsync, script: Script[T]) -> AsyncGenerator[T, None]:
    """As `drive`, on an event loop. Whoever has enough cancels the task, or leaves the loop."""
    reply = None
    with closing(script):
        while True:
            try:
                step = script.send(reply)
            except StopIteration:
                return
            reply = None
            if isinstance(step, Ask | Call):
                reply = await perform(step)
            else:
                yield step


class Patience:
    """How long to pause before each new try to reach a server that has gone away."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self._pause = FIRST_PAUSE_S

    def answered(self) -> None:
        """The server is there."""
        self._deadline, self._pause = time.monotonic() + RECONNECT_S, FIRST_PAUSE_S

    def pause(self, error: redis.RedisError) -> float:
        """Seconds until the next try. Raises the error of a server that has never been there, and
        RedisUnavailable once it has been away for too long.
        """
        if self._deadline is None:
            raise error
        if time.monotonic() > self._deadline:
            raise RedisUnavailable(
                f"Redis has been away for {RECONNECT_S:.0f} s ({error}); start it again, "
                "nothing that was queued is lost"
            )
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_S)
        return pause


def patient(connection: redis.Redis, idle: Idle = nothing) -> Perform:
    """Asks a server that may be restarted meanwhile; `idle` is called before each new try."""
    patience = Patience()

    def perform(step: Step) -> Any:
        while True:
            try:
                reply = _reply(connection, step)
            except AWAY as error:
                idle()
                time.sleep(patience.pause(error))
            else:
                patience.answered()
                return reply

    return perform


def patient_async(connection: redis.asyncio.Redis, threads: redis.Redis) -> PerformAsync:
    """As `patient`, on an event loop; calls run in a thread."""
    patience = Patience()

    async def perform(step: Step) -> Any:
        while True:
            try:
                reply = await _reply_async(connection, threads, step)
            except AWAY as error:
                await asyncio.sleep(patience.pause(error))
            else:
                patience.answered()
                return reply

    return perform


def _reply(connection: redis.Redis, step: Step) -> Any:
    if isinstance(step, Call):
        return step.function(connection)
    if len(step.commands) == 1:
        return connection.execute_command(*step.commands[0])  # type: ignore[no-untyped-call]
    with connection.pipeline() as pipe:
        for command in step.commands:
            pipe.execute_command(*command)  # type: ignore[no-untyped-call]
        return pipe.execute()


async def _reply_async(connection: redis.asyncio.Redis, threads: redis.Redis, step: Step) -> Any:
    if isinstance(step, Call):
        return await asyncio.to_thread(step.function, threads)
    if len(step.commands) == 1:
        return await connection.execute_command(*step.commands[0])  # type: ignore[no-untyped-call]
    async with connection.pipeline() as pipe:
        for command in step.commands:
            pipe.execute_command(*command)
        return await pipe.execute()
