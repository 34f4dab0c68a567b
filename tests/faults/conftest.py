"""Fixtures of the tests that break things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from thinkq.client.connection import connect
from thinkq.client.settings import Settings


@pytest.fixture
def connection(settings: Settings) -> Iterator[redis.Redis]:
    """The module's server, emptied of the keys of the test before."""
    with connect(settings) as client:
        for key in client.scan_iter():
            client.delete(key)
        yield client
