"""The one place that opens connections to Redis."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from thinkq.client.errors import RedisUnavailable
from thinkq.client.settings import Settings

MAX_CONNECTIONS: Final = 10_000
"""As many as a server takes by default; redis-py's own limit is 100."""


def connect(settings: Settings) -> redis.Redis:
    """A connection pool, not yet connected. Text fields are decoded by their readers.

    The socket time-out is off: redis-py's default of 5 s would break a blocking read that lasts
    longer.
    """
    refuse_open(settings)
    return redis.Redis.from_url(
        settings.effective_redis_url, socket_timeout=None, socket_connect_timeout=5
    )


def connect_async(settings: Settings) -> redis.asyncio.Redis:
    """As `connect`, for asyncio. Each job that is followed keeps a connection of its own busy."""
    refuse_open(settings)
    return redis.asyncio.Redis.from_url(
        settings.effective_redis_url,
        socket_timeout=None,
        socket_connect_timeout=5,
        max_connections=MAX_CONNECTIONS,
    )


def probe(settings: Settings) -> redis.Redis:
    """A connection pool for asking what is there now: it waits 1 s at most, and asks once."""
    refuse_open(settings)
    return redis.Redis.from_url(
        settings.effective_redis_url,
        socket_timeout=1,
        socket_connect_timeout=1,
        retry=Retry(NoBackoff(), 0),
    )


def address(settings: Settings) -> str:
    """Where Redis is, as a message may say it: without the password."""
    url = urlsplit(settings.effective_redis_url)
    return url.path if url.scheme == "unix" else f"{url.hostname}:{url.port or 6379}"


def unavailable(settings: Settings, error: redis.RedisError) -> RedisUnavailable:
    """A server's error as a sentence that says what to do."""
    # redis-py counts these two among its connection errors, but the server is there.
    there = isinstance(error, redis.AuthenticationError | redis.BusyLoadingError)
    if there or not isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return RedisUnavailable(f"the Redis at {address(settings)} refused: {reason(error)}")
    remedy = (
        "start it with `thinkq daemon start`"
        if settings.embedded_redis
        else "start it, or correct redis_url (THINKQ_REDIS_URL)"
    )
    return RedisUnavailable(f"no Redis answers at {address(settings)}; {remedy}")


def reason(error: redis.RedisError) -> str:
    """What the server or the connection says, without the command, which may hold a prompt."""
    return str(error).rpartition(" caused error: ")[2].rstrip(".")


def refuse_open(settings: Settings) -> None:
    """Raise RedisUnavailable for a Redis on the network that has no password."""
    url = urlsplit(settings.effective_redis_url)
    if url.scheme == "unix" or url.password or settings.allow_open_redis or _loopback(url.hostname):
        return
    raise RedisUnavailable(
        f"the Redis at {url.hostname} is on the network and its URL has no password; "
        "put one into the URL, or set allow_open_redis = true"
    )


def _loopback(host: str | None) -> bool:
    if host in (None, "localhost"):
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def ping(connection: redis.Redis) -> bool:
    """Whether the server answers now."""
    try:
        return bool(connection.ping())
    except redis.exceptions.RedisError:
        return False
