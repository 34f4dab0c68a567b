"""The named points at which a worker process can be made to kill itself."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from redis.connection import AbstractConnection

from thinkq.client.commit import Committer
from thinkq.worker import desk, recovery
from thinkq.worker.books import Books
from thinkq.worker.spool import Spool

DEATHS: Final[dict[str, tuple[Any, str]]] = {
    "Books.pop": (Books, "pop"),
    "Books.start": (Books, "start"),
    "Spool.put": (Spool, "put"),
    "Committer.commit": (Committer, "commit"),
    "Books.close": (Books, "close"),
    "Spool.remove": (Spool, "remove"),
}
"""The steps of a job's way, in their order."""

CRASH_POINTS: Final = DEATHS | {
    "publish": (desk, "publish"),
    "Books.put_back": (Books, "put_back"),
    "Books.give_back": (Books, "give_back"),
    "Books.abandon": (Books, "abandon"),
    "Books.enter": (Books, "enter"),
    "Books.beat": (Books, "beat"),
    "Books.show": (Books, "show"),
    "Books.lost": (Books, "lost"),
    "Books.clean_registries": (Books, "clean_registries"),
    "replay": (desk, "replay"),
    "recover": (desk, "recover"),
    "bury": (recovery, "_bury"),
    "reconcile": (desk, "reconcile"),
}
"""All that a worker does to Redis and to its disk."""

_IDLE: Final = ("Books.pop", "Books.start")
"""Steps that return None where there was nothing to do."""


def die_after(point: str, nth: int = 1) -> None:
    """Make the process kill itself when that step was done for the nth time."""
    left = [nth]

    def dying(step: Any, *args: Any, **kwargs: Any) -> Any:
        done = step(*args, **kwargs)
        if done is not None or point not in _IDLE:
            left[0] -= 1
        if not left[0]:
            _die()
        return done

    _wrap(*CRASH_POINTS[point], dying)


def die_during(point: str, nth: int = 1) -> None:
    """Make the process kill itself inside of that step, the nth time it is taken.

    That is when Redis has answered a part of it, or before the disk has what was written.
    """
    left = [nth]
    inside = [False]

    def entering(step: Any, *args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        inside[0] = left[0] == 0
        try:
            return step(*args, **kwargs)
        finally:
            inside[0] = False

    def interrupted(step: Any, *args: Any, **kwargs: Any) -> Any:
        done = step(*args, **kwargs)
        if inside[0]:
            _die()
        return done

    _wrap(*CRASH_POINTS[point], entering)
    _wrap(AbstractConnection, "read_response", interrupted)
    _wrap(os, "open", interrupted)


def _wrap(owner: Any, name: str, around: Any) -> None:
    step = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: around(step, *args, **kwargs))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
