"""Keeps the machine, not its display, from going to sleep while jobs run.

A program of the system holds the lock against sleep, and ends with the worker by itself: so the
lock is gone after any death of the worker or of the daemon.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final

from thinkq.client.settings import Settings

STOP_S: Final = 2.0
"""The holder ends at SIGTERM; one that does not is killed after so long."""

_log = logging.getLogger(__name__)

Holder = subprocess.Popen[bytes]
Spawn = Callable[[Sequence[str]], Holder]
"""Starts a command in a session of its own."""


def spawn(argv: Sequence[str]) -> Holder:
    """Start the command, with nothing to read and its complaints thrown away."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


class Awake:
    """The lock against sleep of one daemon. Does nothing where the system has no such program."""

    def __init__(
        self, settings: Settings, *, platform: str = sys.platform, spawn: Spawn = spawn
    ) -> None:
        self._wanted = settings.keep_awake
        self._platform, self._spawn = platform, spawn
        self._holder: Holder | None = None
        self._held_for: int | None = None

    def tick(self, busy: bool, worker_pid: int | None) -> None:
        """Hold the lock while the worker with this pid is busy, and at no other time."""
        pid = worker_pid if busy and self._wanted else None
        if pid != self._held_for:
            self.close()
            self._held_for = pid
            self._holder = self._take(pid) if pid is not None else None
        elif self._holder is not None and self._holder.poll() is not None:
            # It ends with the worker; where it cannot work it ends at once, and will again.
            self._holder = None

    def close(self) -> None:
        """Release the lock."""
        holder, self._holder, self._held_for = self._holder, None, None
        if holder is None or holder.poll() is not None:
            return
        os.killpg(holder.pid, signal.SIGTERM)
        try:
            holder.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()

    def _take(self, pid: int) -> Holder | None:
        command = hold_command(self._platform, pid)
        if command is None:
            return None
        try:
            return self._spawn(command)
        except OSError as error:
            _log.warning("the machine may go to sleep: %s: %s", command[0], error.strerror)
            return None


def hold_command(platform: str, pid: int) -> list[str] | None:
    """What holds the lock until the process `pid` ends; None where the system has nothing.

    `-i` is idle sleep alone. `-d` would keep the display on, which nobody needs at night.
    """
    if platform == "darwin":
        caffeinate = shutil.which("caffeinate")
        return [caffeinate, "-i", "-w", str(pid)] if caffeinate else None
    inhibit, tail = shutil.which("systemd-inhibit"), shutil.which("tail")
    if inhibit is None or tail is None:
        return None
    why = ("--who=thinkq", "--why=jobs are running")
    hold = (tail, f"--pid={pid}", "--follow", os.devnull)
    return [inhibit, "--what=idle:sleep", "--mode=block", *why, *hold]
