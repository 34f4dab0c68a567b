"""Logs of processes in the background: private, bounded, and shown by `tail`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from thinkq.client.errors import NotFound
from thinkq.client.launch import daemon_log, private
from thinkq.client.settings import Settings
from thinkq.daemon.platforms import service_for

MAX_LOG_BYTES: Final = 4 * 1024 * 1024
"""A log that grew beyond this is moved to `<log>.1`, which is replaced."""


def daemon_logs(settings: Settings) -> list[Path]:
    """Where a daemon in the background may write, by who started it: `thinkq`, or a service."""
    return list(dict.fromkeys((daemon_log(settings), service_for(settings).log)))


def present(settings: Settings, process: str | None) -> list[Path]:
    """The logs that there are, or the one of a process. Raises NotFound if there are none."""
    daemons = [log for log in daemon_logs(settings) if log.exists()]
    newest = sorted(daemons, key=lambda log: log.stat().st_mtime)[-1:]
    children = [settings.logs_path / f"{name}.log" for name in ("worker", "redis")]
    logs = newest + [log for log in children if log.exists()]
    found = [log for log in logs if process is None or log.name.startswith(process)]
    if not found:
        raise NotFound(f"there is no such log in {settings.logs_path} yet")
    return found


def trim(log: Path) -> None:
    """Move what a log holds to `<log>.1` once it is too long.

    Its process goes on writing into the same file, which it must have opened for appending. A line
    written at that very moment may be lost.
    """
    # A log may vanish at any time, and on a full disk its old lines are the first to go.
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > MAX_LOG_BYTES:
            with contextlib.suppress(OSError):
                _copy(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)


def _copy(log: Path, copy: Path) -> None:
    with log.open("rb") as source, open(copy, "wb", opener=private) as target:
        shutil.copyfileobj(source, target)


def last_lines(log: Path, number: int, since: int = 0) -> str:
    """The end of a log, for a message: of what follows its first `since` bytes.

    Empty if there is no log.
    """
    try:
        with log.open("rb") as file:
            size = log.stat().st_size
            file.seek(max(since if since <= size else 0, size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-number:])


def show(paths: Sequence[Path], lines: int, *, follow: bool) -> NoReturn:
    """Become `tail`, which shows the last lines of each log, and with `follow` what comes next."""
    options = ["-n", str(lines), *(["-F"] if follow else [])]
    os.execvp("tail", ["tail", *options, *map(str, paths)])
