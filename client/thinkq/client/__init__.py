"""The client of thinkq: what anyone may import, without the model's machinery.

    from thinkq.client import AsyncClient, Client, Job, Message

The names load when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thinkq.client.aio import AsyncBatch, AsyncClient
    from thinkq.client.client import Batch, Client
    from thinkq.client.errors import ThinkqError
    from thinkq.client.events import Event
    from thinkq.client.job import Job, Message
    from thinkq.client.result import Result

__all__ = [
    "AsyncBatch",
    "AsyncClient",
    "Batch",
    "Client",
    "Event",
    "Job",
    "Message",
    "Result",
    "ThinkqError",
]

_HOMES = {
    "AsyncBatch": "thinkq.client.aio",
    "AsyncClient": "thinkq.client.aio",
    "Batch": "thinkq.client.client",
    "Client": "thinkq.client.client",
    "Event": "thinkq.client.events",
    "Job": "thinkq.client.job",
    "Message": "thinkq.client.job",
    "Result": "thinkq.client.result",
    "ThinkqError": "thinkq.client.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
