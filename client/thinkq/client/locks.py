"""Locks on files that the kernel drops at any death of their holder (flock).

They tell exactly whether a process of this machine still lives; a pid file cannot.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


class Lock:
    """A held lock. It is released when the object is closed or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The descriptor. A child that inherits it holds the lock too, until both are gone."""
        return self._descriptor

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)


def take(path: Path) -> Lock | None:
    """Take the lock and write this pid into the file; None if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    if not _acquired(descriptor):
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return Lock(descriptor)


def _acquired(descriptor: int) -> bool:
    # Whoever only asks (`holder`) has a shared lock for an instant; that is waited out.
    for _ in range(5):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False


def holder(path: Path) -> int | None:
    """The pid that holds the lock (0 if it cannot be read), or None if nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # A shared lock: two that look at once do not take each other for a holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode().strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(descriptor)
    return None
