"""What tests of several folders share."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(predicate: Callable[[], object], timeout: float = 10.0) -> None:
    """Return as soon as the predicate holds; fail after `timeout` seconds.

    For what only asking can tell, such as the end of a process that is no child of ours.
    """
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {predicate}")
        time.sleep(0.005)
