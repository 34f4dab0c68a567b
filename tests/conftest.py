"""Fixtures for every test: a real Redis server, and settings that use it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from support import wait_until
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon.redis_server import RedisServer

# A shell starts what it puts into the background with interrupts ignored, and children inherit
# that; but tests send interrupts to children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no deadline: a busy machine is no fault.
hypothesis_settings.register_profile("thinkq", derandomize=True, deadline=None, max_examples=100)
hypothesis_settings.load_profile("thinkq")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The length of the long form of the chaos test."""
    parser.addoption("--seeds", type=int, default=10, help="storms of `-m chaos` (10)")


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real server for the tests of one module, without an append-only file."""
    settings = load_settings({}, home=str(tmp_path_factory.mktemp("redis")))
    server = RedisServer(settings, options=("--appendonly", "no"))
    server.start()
    try:
        wait_until(server.ready)
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def redis_url(redis_server: RedisServer) -> str:
    """The URL of the module's server."""
    return redis_server.url


@pytest.fixture
def settings(tmp_path: Path, redis_url: str) -> Settings:
    """Settings with a data directory of the test's own and the module's server."""
    return load_settings({}, home=str(tmp_path), redis_url=redis_url)
