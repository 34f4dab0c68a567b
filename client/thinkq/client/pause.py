"""The daemon's wish that no job is started on this machine, with its reason.

A file in the data directory, not a key in Redis: several machines may share one Redis, and only
this one's battery is low. What a dead daemon has left there does not count.
"""

from __future__ import annotations

import os

from thinkq.client import locks
from thinkq.client.settings import Settings


def pause(settings: Settings, reason: str) -> None:
    """Ask this machine's worker to start no job. Only the holder of the daemon's lock may."""
    new = settings.pause_file.with_suffix(".new")
    with open(new, "w", encoding="utf-8", opener=_private) as file:
        file.write(reason)
    new.replace(settings.pause_file)


def resume(settings: Settings) -> None:
    """Take the wish back."""
    settings.pause_file.unlink(missing_ok=True)


def paused(settings: Settings) -> str | None:
    """Why no job may be started now, in a few words; None: nothing is in the way."""
    try:
        reason = settings.pause_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return reason if locks.holder(settings.daemon_lock) is not None else None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
