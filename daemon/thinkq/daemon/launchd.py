"""The LaunchAgent: the daemon as a service of macOS.

Nothing here was run on a Mac; tests check the file and the sequence of commands.
"""

from __future__ import annotations

import os
import plistlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from thinkq.client.settings import Settings
from thinkq.daemon.service import (
    Commands,
    ServiceError,
    arguments,
    environment,
    failure,
    must,
    suffix,
)

SEARCH: Final = (
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "/opt/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
)

EXIT_TIMEOUT_S: Final = 15
"""After this time launchd kills a daemon that was told to stop; it needs 5."""

UNLOAD_S: Final = EXIT_TIMEOUT_S + 5

BUSY: Final = 5
"""launchctl's exit code for "Input/output error": it is not done with the former service yet."""

TRIES: Final = 5


def nothing_loaded(argv: Sequence[str]) -> int:
    """The exit codes on a Mac that has no such service yet."""
    return 1 if argv[1] in ("bootout", "print") else 0


class LaunchAgent:
    """A service of the user who is logged in; it starts at login."""

    def __init__(self, settings: Settings, commands: Commands) -> None:
        self._settings = settings
        self._commands = commands
        self.label = f"dev.thinkq.daemon{suffix(settings, '.')}"
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{self.label}"

    @property
    def path(self) -> Path:
        """The property list."""
        return Path.home() / "Library" / "LaunchAgents" / f"{self.label}.plist"

    @property
    def log(self) -> Path:
        """Where launchd writes what the daemon says."""
        name = f"daemon{suffix(self._settings, '-')}.log"
        return Path.home() / "Library" / "Logs" / "thinkq" / name

    def content(self, environ: Mapping[str, str]) -> str:
        """The property list, as XML."""
        return plistlib.dumps(self._agent(environ), sort_keys=False).decode()

    def _agent(self, environ: Mapping[str, str]) -> dict[str, Any]:
        return {
            "Label": self.label,
            "ProgramArguments": arguments(),
            "EnvironmentVariables": environment(
                self._settings,
                environ,
                started_by="thinkq-launchd",
                search=SEARCH,
                lang="en_US.UTF-8",
            ),
            "WorkingDirectory": self._settings.home,
            "RunAtLoad": True,
            # After a crash only: an end that was asked for, or that says why in the log, is one.
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "ExitTimeOut": EXIT_TIMEOUT_S,
            # As a background process it would decode on the slow cores, at a fraction of the speed.
            "ProcessType": "Interactive",
            "StandardOutPath": str(self.log),
            "StandardErrorPath": str(self.log),
            "Umask": 0o077,
        }

    def load(self) -> None:
        """Start what the file says, or start it anew. Raises ServiceError."""
        self._bootout()
        self._bootstrap()
        must(self._commands, "launchctl", "kickstart", self._target)

    def unload(self) -> None:
        """Stop it for good, and remove the file. Raises ServiceError."""
        self._bootout()
        self.path.unlink(missing_ok=True)

    def _bootout(self) -> None:
        # It fails where nothing is loaded; whether something still is, `print` tells.
        self._commands.run("launchctl", "bootout", self._target)
        for _ in range(UNLOAD_S * 2):
            if self._commands.run("launchctl", "print", self._target).code:
                return
            self._commands.pause(0.5)
        raise ServiceError(f"launchd still holds {self.label} after {UNLOAD_S} s; try again")

    def _bootstrap(self) -> None:
        argv = ("launchctl", "bootstrap", self._domain, str(self.path))
        outcome = self._commands.run(*argv)
        for _ in range(TRIES - 1):
            if outcome.code != BUSY:
                break
            self._commands.pause(1)
            outcome = self._commands.run(*argv)
        if outcome.code:
            raise failure(argv, outcome)
