"""The user unit: the daemon as a service of Linux."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from thinkq.client.launch import daemon_log
from thinkq.client.settings import Settings
from thinkq.daemon.service import REFUSALS, Commands, arguments, environment, must, suffix

SEARCH: Final = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")

STARTED_BY: Final = "thinkq-systemd"

UNIT: Final = """\
[Unit]
Description=thinkq, the queue that always brings an answer back

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={home}
{environment}
Restart=on-failure
RestartSec=10
RestartPreventExitStatus={refusal}
KillMode=mixed
TimeoutStopSec=10
UMask=0077
StandardOutput=append:{log}
StandardError=append:{log}

[Install]
WantedBy=default.target
"""

LINGER: Final = (
    "it runs while you are logged in; `loginctl enable-linger` keeps it running after that"
)


class UserUnit:
    """A service of one user; it starts at login, with lingering at boot."""

    def __init__(self, settings: Settings, commands: Commands) -> None:
        self._settings = settings
        self._commands = commands
        self.name = f"thinkq{suffix(settings, '-')}.service"

    @property
    def path(self) -> Path:
        """The unit file."""
        config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(config) / "systemd" / "user" / self.name

    @property
    def log(self) -> Path:
        """The file beside the logs of Redis and the worker; the daemon keeps it short."""
        return daemon_log(self._settings)

    def content(self, environ: Mapping[str, str]) -> str:
        """The unit file."""
        variables = environment(
            self._settings, environ, started_by=STARTED_BY, search=SEARCH, lang="C.UTF-8"
        )
        return UNIT.format(
            command=" ".join(_quote(word).replace("$", "$$") for word in arguments()),
            home=_plain(self._settings.home),
            environment="\n".join(
                f"Environment={_quote(f'{name}={text}')}" for name, text in variables.items()
            ),
            refusal=REFUSALS[STARTED_BY],
            log=_plain(str(self.log)),
        )

    def load(self) -> None:
        """Start what the file says, or start it anew. Raises ServiceError."""
        for words in (("daemon-reload",), ("enable", self.name), ("restart", self.name)):
            must(self._commands, "systemctl", "--user", *words)

    def unload(self) -> None:
        """Stop it for good, and remove the file. Raises ServiceError."""
        must(self._commands, "systemctl", "--user", "disable", "--now", self.name)
        self.path.unlink(missing_ok=True)
        must(self._commands, "systemctl", "--user", "daemon-reload")


def _quote(text: str) -> str:
    """One word of a unit file: quotes, backslashes and specifiers as plain characters."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_plain(escaped)}"'


def _plain(text: str) -> str:
    """A value that is read to the end of its line."""
    return text.replace("%", "%%")
