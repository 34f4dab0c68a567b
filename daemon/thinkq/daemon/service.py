"""The daemon as a service of this user: launchd on macOS, systemd on Linux."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from thinkq.client import launch
from thinkq.client.errors import ThinkqError
from thinkq.client.settings import Settings, default_home

STARTED_BY: Final = "LAUNCHED_BY"
"""The variable by which a daemon knows who started it."""

REFUSALS: Final = {"thinkq-launchd": 0, "thinkq-systemd": 78}
"""The exit code that keeps each service manager from trying again what cannot succeed.

launchd leaves only a success alone; our systemd unit names this one, sysexits' EX_CONFIG.
"""

PASSED_ON: Final = ("HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Variables that a service gets from the shell that installs it, beside the settings."""

PASSED_ON_PATHS: Final = ("HF_HUB_CACHE", "PYTHONPATH", "SSL_CERT_FILE")
"""Likewise; they hold paths, which a service needs absolute."""


def refusal_code(environ: Mapping[str, str] = os.environ) -> int:
    """The exit code after an error that a new start would only repeat."""
    return REFUSALS.get(environ.get(STARTED_BY, ""), 1)


class ServiceError(ThinkqError):
    """The service manager refused."""


class Outcome(NamedTuple):
    """What a command said, and its exit code."""

    code: int
    text: str = ""


class Commands(Protocol):
    """Whoever runs the commands of a service manager."""

    def run(self, *argv: str) -> Outcome:
        """Run one to its end."""

    def pause(self, seconds: float) -> None:
        """Wait before the next one."""


class Shell:
    """Runs them."""

    def run(self, *argv: str) -> Outcome:
        """Run one to its end. Raises ServiceError where there is no such program."""
        try:
            ran = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
        except FileNotFoundError:
            raise ServiceError(
                f"`{argv[0]}` was not found; without it use `thinkq daemon start`"
            ) from None
        return Outcome(ran.returncode, ran.stdout.strip())

    def pause(self, seconds: float) -> None:
        """Wait before the next one."""
        time.sleep(seconds)


class Recorder:
    """Runs nothing and notes everything."""

    def __init__(self, answer: Callable[[Sequence[str]], int] = lambda argv: 0) -> None:
        """`answer` gives the exit code of each command."""
        self.commands: list[list[str]] = []
        self._answer = answer

    def run(self, *argv: str) -> Outcome:
        """Note the command."""
        self.commands.append(list(argv))
        return Outcome(self._answer(argv))

    def pause(self, seconds: float) -> None:
        """No time passes."""


class Service(Protocol):
    """One service, which belongs to one data directory."""

    @property
    def path(self) -> Path:
        """The file that makes it a service."""

    @property
    def log(self) -> Path:
        """Where its output goes."""

    def content(self, environ: Mapping[str, str]) -> str:
        """That file; `environ` is the one of the shell that installs it."""

    def load(self) -> None:
        """Start what the file says, or start it anew. Raises ServiceError."""

    def unload(self) -> None:
        """Stop it for good, and remove the file. Raises ServiceError."""


def installed(service: Service) -> bool:
    """Whether it starts at every login."""
    return service.path.exists()


def write(service: Service, environ: Mapping[str, str]) -> None:
    """Write the file, for its owner only: settings may hold a password."""
    service.path.parent.mkdir(parents=True, exist_ok=True)
    service.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = service.path.with_suffix(".new")
    with open(new, "w", encoding="utf-8", opener=launch.private) as file:
        file.write(service.content(environ))
    new.replace(service.path)


def must(commands: Commands, *argv: str) -> None:
    """Run a command. Raises ServiceError if it fails."""
    outcome = commands.run(*argv)
    if outcome.code:
        raise failure(argv, outcome)


def failure(argv: Sequence[str], outcome: Outcome) -> ServiceError:
    """A command's failure as a sentence."""
    return ServiceError(f"`{' '.join(argv)}` failed with code {outcome.code}: {outcome.text}")


def arguments() -> list[str]:
    """The command line of the service."""
    return list(launch.COMMAND)


def suffix(settings: Settings, before: str) -> str:
    """What tells the services of several data directories apart; the usual one needs nothing."""
    if settings.home == str(default_home()):
        return ""
    return before + hashlib.sha256(os.fsencode(settings.home)).hexdigest()[:8]


def environment(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    started_by: str,
    search: Sequence[str],
    lang: str,
) -> dict[str, str]:
    """The service's whole environment: service managers expand neither `~` nor `$HOME`.

    `environ` is that of the shell that installs it; its settings go with the service.
    """
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    kept = {name: environ[name] for name in PASSED_ON if environ.get(name)}
    paths = {name: _absolute(environ[name]) for name in PASSED_ON_PATHS if environ.get(name)}
    own = {name: text for name, text in environ.items() if name.startswith("THINKQ_")}
    if "THINKQ_MODEL" in own:
        own["THINKQ_MODEL"] = absolute_model(own["THINKQ_MODEL"])
    return {
        "PATH": os.pathsep.join((os.path.dirname(sys.executable), *search)),
        "LANG": lang,
        "HF_HOME": _absolute(environ.get("HF_HOME") or f"{cache}/huggingface"),
        **kept,
        **paths,
        **own,
        "THINKQ_HOME": settings.home,
        STARTED_BY: started_by,
    }


def absolute_model(model: str) -> str:
    """A model in a folder by its full path, since a daemon works elsewhere; other names as is."""
    folder = Path(model).expanduser()
    return os.path.abspath(folder) if model != "demo" and folder.is_dir() else model


def _absolute(paths: str) -> str:
    return os.pathsep.join(
        os.path.abspath(os.path.expanduser(path)) for path in paths.split(os.pathsep)
    )
