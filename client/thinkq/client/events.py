"""The entries of a job's stream, typed. On the wire every field is UTF-8 text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

EventType = Literal["start", "delta", "restart", "done"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One stream entry.

    `start` opens an attempt, `restart` says: drop what you have, a new attempt begins, `delta`
    carries text, `done` ends the stream and carries the result as JSON without its long texts.
    """

    type: EventType
    id: str = ""
    """Redis's id of the entry; a reader resumes after it."""
    text: str = ""
    is_reasoning: bool = False
    attempt: int = 1
    result: str = ""

    def fields(self) -> dict[str, str]:
        """What is stored with XADD."""
        fields = {"type": self.type, "attempt": str(self.attempt)}
        if self.type == "delta":
            fields |= {"is_reasoning": "1" if self.is_reasoning else "0", "text": self.text}
        if self.type == "done":
            fields["result"] = self.result
        return fields


def parse_event(entry_id: str, fields: Mapping[str, str]) -> Event:
    """The event of a stream entry as Redis returns it (decoded to str)."""
    return Event(
        type=fields["type"],  # type: ignore[arg-type]  # written by workers only
        id=entry_id,
        text=fields.get("text", ""),
        is_reasoning=fields.get("is_reasoning") == "1",
        attempt=int(fields.get("attempt", "1")),
        result=fields.get("result", ""),
    )
