"""Which service manager this machine has."""

from __future__ import annotations

import sys
from typing import Final, Literal

from thinkq.client.settings import Settings
from thinkq.daemon.launchd import LaunchAgent, nothing_loaded
from thinkq.daemon.service import Commands, Recorder, Service, Shell
from thinkq.daemon.systemd import UserUnit

Platform = Literal["darwin", "linux"]

HERE: Final[Platform] = "darwin" if sys.platform == "darwin" else "linux"


def service_for(
    settings: Settings, commands: Commands | None = None, platform: Platform = HERE
) -> Service:
    """The service of a data directory, whether it is installed or not."""
    commands = commands or Shell()
    if platform == "darwin":
        return LaunchAgent(settings, commands)
    return UserUnit(settings, commands)


def recorder(platform: Platform) -> Recorder:
    """A recorder that answers as a machine does where nothing is installed yet."""
    return Recorder(nothing_loaded) if platform == "darwin" else Recorder()
