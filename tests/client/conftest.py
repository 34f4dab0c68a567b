"""Fixtures of the client's tests: a connection, and a worker that only follows the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from support import wait_until
from support.simulated_worker import SimulatedWorker
from thinkq.client import keys
from thinkq.client.connection import connect
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.redis_server import RedisServer


@pytest.fixture
def connection(settings: Settings) -> Iterator[redis.Redis]:
    """A connection to the module's server."""
    with connect(settings) as connection:
        yield connection


@pytest.fixture
def worker(connection: redis.Redis) -> Iterator[SimulatedWorker]:
    """A worker; what a test leaves queued or registered does not reach the next one."""
    yield SimulatedWorker(connection)
    connection.delete(*(f"rq:queue:{name}" for name in keys.QUEUES.values()))
    connection.delete(*(f"rq:queue:{name}:intermediate" for name in keys.QUEUES.values()))
    connection.delete("rq:workers:thinkq:normal", "rq:worker:simulated")


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own that keeps what it has, at the socket under `tmp_path`."""
    server = RedisServer(load_settings({}, home=str(tmp_path)))
    server.start()
    try:
        wait_until(server.ready)
        yield server
    finally:
        server.kill()
