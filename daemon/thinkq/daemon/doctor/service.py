"""Checks of what thinkq itself has on this machine: files, daemon, spool."""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from thinkq.client import locks, pause
from thinkq.daemon.doctor.finding import Check, Installation, Verdict, counted, fail, ok, warn

SPOOL_S: Final = 60.0
"""A worker brings a spooled result to Redis at once; one that waits so long is stuck."""


def permissions(site: Installation) -> Verdict:
    """Nobody else reads prompts and answers, or puts a socket of their own in the way."""
    home = site.settings.home_path
    if not home.exists():
        return ok(f"{home} will be made at the first start, for its owner only")
    for path in _all_paths(home):
        if path.lstat().st_uid != os.getuid():
            return fail(
                f"{path} belongs to another user",
                f"run `sudo chown -R $USER {shlex.quote(str(home))}`, or set THINKQ_HOME",
            )
    # In a closed directory every file is out of reach.
    for directory in filter(Path.exists, (home, site.settings.socket_path.parent)):
        open_to_others = directory.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        remedy = f"run `chmod 700 {shlex.quote(str(directory))}`"
        if open_to_others & (stat.S_IWGRP | stat.S_IWOTH):
            return fail(f"others may write into {directory}", remedy)
        if open_to_others:
            return warn(f"others may look into {directory}", remedy)
    return ok(f"{home} is for its owner only")


def _all_paths(home: Path) -> Iterator[Path]:
    """The data directory and what lies in it, without Redis's own files."""
    yield home
    for directory in (home, home / "logs", home / "spool"):
        yield from directory.glob("*")


def daemon(site: Installation) -> Verdict:
    """Whether a daemon runs, or why the last one ended."""
    settings, state = site.settings, site.daemon_state
    if state is not None and state.state == "crash_loop":
        return fail(
            f"the daemon has given up: {state.last_error}",
            "see to that, then start it again with `thinkq daemon start`",
        )
    pid = locks.holder(settings.daemon_lock)
    if pid is None:
        if state is not None and state.last_error:
            return warn(
                f"no daemon runs: {state.last_error}", "start it again with `thinkq daemon start`"
            )
        return ok("no daemon runs; `thinkq run` starts one for as long as it takes")
    if (worker := locks.holder(settings.worker_lock)) is None:
        return warn(
            f"the daemon (pid {pid}) runs, but no worker",
            f"wait a moment; if none comes, see {settings.logs_path / 'worker.log'}",
        )
    return ok(f"the daemon (pid {pid}) and its worker (pid {worker}) run")


def power(site: Installation) -> Verdict | None:
    """Whether the daemon holds jobs back because of battery or heat."""
    reason = pause.paused(site.settings)
    if reason is None:
        return None
    return warn(
        f"no job is started: {reason}", "plug in the machine or let it cool; or change that setting"
    )


def spool(site: Installation) -> Verdict:
    """Finished results that Redis has not taken yet."""
    files = list((site.settings.home_path / "spool").glob("*.json"))
    old = [file for file in files if time.time() - file.stat().st_mtime > SPOOL_S]
    if not old:
        return ok("no finished result waits on the disk")
    return warn(
        f"on the disk, and not taken by Redis: {counted(len(old), 'finished result')}",
        "start a worker with `thinkq worker`; it brings them there, and its log says what fails",
    )


CHECKS: Final[dict[str, Check]] = {
    "permissions": permissions,
    "daemon": daemon,
    "power": power,
    "spool": spool,
}
