"""What the server says about itself, on real servers that are made to suffer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import redis

from support import wait_until
from thinkq.client import server
from thinkq.client.errors import RedisUnavailable
from thinkq.client.settings import Settings


@contextmanager
def configured(connection: redis.Redis, **values: str) -> Iterator[None]:
    """The server with other settings for a while."""
    names = {name: name.replace("_", "-") for name in values}
    before = {name: connection.config_get(name)[name] or "" for name in names.values()}
    for name, value in values.items():
        connection.config_set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            connection.config_set(name, value)


def test_a_server_that_takes_writes_is_not_complained_of(connection: redis.Redis) -> None:
    assert server.complaints(connection) == []
    assert server.eviction_warning(connection) == ""


def test_qw_12_a_server_that_drops_keys_is_refused_unless_the_settings_allow_it(
    connection: redis.Redis, settings: Settings
) -> None:
    """QW-12: found out with INFO, which managed servers permit."""
    with configured(connection, maxmemory_policy="volatile-lru"):
        assert "maxmemory-policy volatile-lru" in server.eviction_warning(connection)
        with pytest.raises(RedisUnavailable, match="allow_eviction = true"):
            server.refuse_eviction(connection, settings)
        server.refuse_eviction(connection, msgspec.structs.replace(settings, allow_eviction=True))
    server.refuse_eviction(connection, settings)


def test_a_full_server_is_named(connection: redis.Redis) -> None:
    with configured(connection, maxmemory="1"):
        (complaint,) = server.complaints(connection)
    assert "Redis is full" in complaint
    assert "thinkq rm" in complaint


def test_qw_13_a_server_that_cannot_save_is_named(connection: redis.Redis) -> None:
    """QW-13: its snapshot fails, so it answers MISCONF to every write."""
    obstacle = Path(str(connection.config_get("dir")["dir"])) / "dump.rdb"
    obstacle.mkdir()
    try:
        with configured(connection, save="3600 1000000"):
            connection.bgsave()
            wait_until(lambda: connection.info()["rdb_last_bgsave_status"] == "err")
            with pytest.raises(redis.ResponseError, match="MISCONF"):
                connection.set("thinkq:test", "1")
            assert "cannot save its snapshot" in server.complaints(connection)[0]
        # Without snapshots the old failure refuses nothing.
        assert server.complaints(connection) == []
    finally:
        obstacle.rmdir()
        connection.bgsave()
        wait_until(lambda: connection.info()["rdb_last_bgsave_status"] == "ok")
