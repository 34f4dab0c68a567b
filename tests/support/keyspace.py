"""What a server holds, looked through whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

_READ: dict[str, Callable[[redis.Redis, bytes], Any]] = {
    "string": lambda connection, key: connection.get(key),
    "list": lambda connection, key: connection.lrange(key, 0, -1),
    "set": lambda connection, key: connection.smembers(key),
    "zset": lambda connection, key: connection.zrange(key, 0, -1),
    "hash": lambda connection, key: connection.hgetall(key),
    "stream": lambda connection, key: connection.xrange(key),
}


def mentions(connection: redis.Redis, word: str) -> list[str]:
    """The keys that have the word in their name or anywhere in what they hold."""
    found = []
    for key in connection.scan_iter():
        kind: Any = connection.type(key)
        if word.encode() in key or word in repr(_READ[kind.decode()](connection, key)):
            found.append(key.decode())
    return sorted(found)
