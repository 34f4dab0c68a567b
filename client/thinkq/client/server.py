"""What the server says about itself: whether it may drop jobs, and whether it takes writes."""

from __future__ import annotations

from typing import Any, Final

import redis

from thinkq.client.errors import RedisUnavailable
from thinkq.client.settings import Settings

SAFE_POLICY: Final = "noeviction"


def eviction_warning(connection: redis.Redis) -> str:
    """One sentence if the server drops keys when it is full, else nothing."""
    # INFO, because managed servers forbid CONFIG.
    policy = connection.info("memory").get("maxmemory_policy", SAFE_POLICY)
    if policy == SAFE_POLICY:
        return ""
    return (
        f"this Redis drops keys when it is full (maxmemory-policy {policy}), so queued jobs would "
        f"vanish; set maxmemory-policy to {SAFE_POLICY}, or use a Redis of its own for thinkq"
    )


def refuse_eviction(connection: redis.Redis, settings: Settings) -> None:
    """Raise RedisUnavailable for a server that may drop jobs, unless the settings allow it."""
    if settings.allow_eviction:
        return
    if warning := eviction_warning(connection):
        raise RedisUnavailable(f"{warning}, or set allow_eviction = true")


def complaints(connection: redis.Redis) -> list[str]:
    """Why the server refuses writes now, one sentence each; none if it takes them."""
    info: dict[str, Any] = connection.info()
    found = []
    full = 0 < int(info.get("maxmemory", 0)) <= int(info["used_memory"])
    if full and info.get("maxmemory_policy") == SAFE_POLICY:
        used, limit = info["used_memory_human"], info["maxmemory_human"]
        found.append(
            f"Redis is full ({used} of {limit}) and refuses writes; "
            "remove batches with `thinkq rm`, or raise maxmemory"
        )
    if info.get("aof_enabled") and info.get("aof_last_write_status") == "err":
        found.append(
            "Redis cannot write its append-only file and refuses writes; make room on its disk"
        )
    if info.get("rdb_last_bgsave_status") == "err" and _needs_snapshots(connection):
        found.append("Redis cannot save its snapshot and refuses writes; make room on its disk")
    return found


def _needs_snapshots(connection: redis.Redis) -> bool:
    """Whether a failed snapshot makes the server refuse writes."""
    try:
        config = connection.config_get("save", "stop-writes-on-bgsave-error")
    except redis.ResponseError:
        return True  # Managed servers forbid CONFIG; it is the default.
    return bool(config.get("save")) and config.get("stop-writes-on-bgsave-error") == "yes"
