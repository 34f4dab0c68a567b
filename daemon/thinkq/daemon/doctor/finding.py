"""What a check finds, and what all checks look at."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec
import redis

from thinkq.client.settings import Settings
from thinkq.daemon import state
from thinkq.daemon.state import DaemonState

if TYPE_CHECKING:
    from thinkq.worker.models import Entry

Level = Literal["ok", "warn", "fail"]


class Verdict(msgspec.Struct, frozen=True):
    """A level, one sentence, and what to do unless all is well."""

    level: Level
    text: str
    remedy: str | None = None


def ok(text: str) -> Verdict:
    """All is well."""
    return Verdict("ok", text)


def warn(text: str, remedy: str) -> Verdict:
    """It works, but not as well or as safely as it could."""
    return Verdict("warn", text, remedy)


def fail(text: str, remedy: str) -> Verdict:
    """It does not work, or data may be lost."""
    return Verdict("fail", text, remedy)


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A check's verdict under its name."""

    name: str
    level: Level
    text: str
    remedy: str | None = None


class Installation:
    """The installation that is looked at."""

    def __init__(
        self,
        settings: Settings,
        read_state: Callable[[Settings], DaemonState | None] = state.read,
    ) -> None:
        self.settings = settings
        self.daemon_state = read_state(settings)

    @cached_property
    def models(self) -> list[Entry]:
        """What `thinkq models` lists. Raises ImportError where MLX is not installed."""
        # Here, because the doctor must be able to say that MLX is missing.
        from thinkq.worker.models import inventory

        return inventory(self.settings)


Check = Callable[[Installation], Verdict | None]
"""Looks at one thing; None: it does not apply here."""

ServerCheck = Callable[[Installation, redis.Redis], Verdict | None]
"""Asks a server that answers."""


def run(name: str, check: Callable[[], Verdict | None]) -> Finding | None:
    """The finding of a check; a check that fails itself is a finding too."""
    try:
        verdict = check()
    except ImportError:
        return None  # what is not installed is told once, by the check of MLX
    except Exception as error:
        reason = str(error).partition("\n")[0][:200]
        verdict = fail(
            f"this could not be checked ({type(error).__name__}: {reason})",
            "see to the other findings first; if there are none, please report this one",
        )
    if verdict is None:
        return None
    return Finding(name=name, level=verdict.level, text=verdict.text, remedy=verdict.remedy)
