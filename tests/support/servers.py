"""Redis servers that tests kill."""

from __future__ import annotations

from support import wait_until
from thinkq.daemon.redis_server import RedisServer


def start_again(server: RedisServer) -> None:
    """Start a server that was killed, and wait until it answers."""
    wait_until(server.start)
    wait_until(server.ready)
