"""Checks of Redis: whether it answers, and whether it may lose anything."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import redis

from thinkq.client import locks
from thinkq.client.columns import shown_bytes
from thinkq.client.connection import address, probe, unavailable
from thinkq.client.errors import RedisUnavailable
from thinkq.client.settings import Settings
from thinkq.daemon.doctor.finding import Installation, ServerCheck, Verdict, fail, ok, warn
from thinkq.daemon.redis_server import MINIMUM_VERSION, find_server

REACH_S: Final = 2.0
"""Looking up a host's name can take longer than any socket's time-out."""

FULL: Final = 0.9
"""Share of Redis's memory from which on it is nearly full."""

SKEW_S: Final = 2.0
"""Clocks of one machine agree; those of two are kept within this by any time service."""


def reach(settings: Settings) -> redis.Redis:
    """A connection to a server that answers. Raises RedisUnavailable, within REACH_S seconds."""
    connection = probe(settings)
    errors: list[redis.RedisError] = []
    answered = threading.Event()

    def ask() -> None:
        try:
            connection.ping()
            answered.set()
        except redis.RedisError as error:
            errors.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(REACH_S)
    if answered.is_set():
        return connection
    raise unavailable(settings, errors[0] if errors else redis.TimeoutError())


def absent(site: Installation, error: RedisUnavailable) -> Verdict:
    """What it means that no server answers."""
    settings = site.settings
    if not settings.embedded_redis:
        return fail(str(error), "start that server, or correct redis_url")
    if locks.holder(settings.daemon_lock) is not None:
        return fail(
            f"a daemon runs, but no Redis answers at {address(settings)}",
            f"see {settings.logs_path / 'redis.log'}",
        )
    try:
        server = find_server()
    except RedisUnavailable as missing:
        return fail(f"no Redis runs, and {missing}", "install one as said")
    return ok(f"none runs now; it is started when needed, from {server}")


def version(site: Installation, connection: redis.Redis) -> Verdict:
    """Name and version."""
    info: dict[str, Any] = connection.info("server")
    name = "Valkey" if "valkey_version" in info else "Redis"
    number = str(info.get("valkey_version") or info["redis_version"])
    shown = f"{name} {number} at {address(site.settings)}"
    if int(number.partition(".")[0]) < MINIMUM_VERSION:
        return fail(f"{shown} is too old", f"use version {MINIMUM_VERSION} or newer")
    return ok(shown)


def policy(site: Installation, connection: redis.Redis) -> Verdict:
    """A full server must refuse writes; it must not drop jobs."""
    info: dict[str, Any] = connection.info("memory")
    found = info["maxmemory_policy"]
    if found == "noeviction":
        return ok("a full Redis refuses writes and drops nothing (noeviction)")
    text = f"a full Redis drops data, queued jobs among them (maxmemory-policy {found})"
    remedy = "set `maxmemory-policy noeviction` in its configuration"
    if site.settings.allow_eviction:
        return warn(f"{text}, and allow_eviction lets it", remedy)
    return fail(text, remedy)


def persistence(_: Installation, connection: redis.Redis) -> Verdict:
    """Every write must reach the disk."""
    info: dict[str, Any] = connection.info("persistence")
    if not info["aof_enabled"]:
        return warn(
            "Redis keeps no append-only file: its crash loses queued jobs and results",
            "set `appendonly yes` in its configuration",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return fail("Redis cannot write its append-only file", "make room on its disk")
    return ok("Redis writes an append-only file")


def memory(_: Installation, connection: redis.Redis) -> Verdict:
    """Room in Redis's memory: against its own limit, else against the machine's."""
    info: dict[str, Any] = connection.info("memory")
    used, limit = info["used_memory"], info["maxmemory"] or info.get("total_system_memory", 0)
    text = f"Redis uses {shown_bytes(used)} of {shown_bytes(limit)}"
    if limit and used > FULL * limit:
        return fail(text, "remove batches with `thinkq rm`, set retention_s, or raise maxmemory")
    return ok(text)


def clock(site: Installation, connection: redis.Redis) -> Verdict:
    """Leases are compared with the clocks of all machines."""
    before = time.time()
    seconds, micros = connection.time()
    # The server's clock was read at some moment between the two of ours.
    skew = seconds + micros / 1e6 - (before + time.time()) / 2
    text = f"the clock is {abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} that of Redis"
    remedy = "set the clocks of all machines by network time"
    if abs(skew) > site.settings.lease_s:
        return fail(f"{text}, longer than a lease: jobs would run twice", remedy)
    return warn(text, remedy) if abs(skew) > SKEW_S else ok("the clock agrees with that of Redis")


CHECKS: Final[dict[str, ServerCheck]] = {
    "redis": version,
    "redis policy": policy,
    "redis file": persistence,
    "redis memory": memory,
    "clock": clock,
}
