"""One HTML page about a batch: how its jobs ended, what they thought, how fast it went."""

from __future__ import annotations

import redis

from thinkq.client.report.gather import gather
from thinkq.client.report.page import page


def report_page(connection: redis.Redis, batch: str) -> str:
    """The page, which needs no script and no network. Raises NotFound.

    Results are read a chunk at a time; what is kept of them does not grow with their number, but
    for a line number each.
    """
    return page(gather(connection, batch))
