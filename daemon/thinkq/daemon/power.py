"""Battery and heat: what the system says of them, and whether jobs may be started."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from thinkq.client import pause
from thinkq.client.settings import Settings

LOOK_S: Final = 30.0
"""How often the system is asked."""

HEAVY: Final = 2
"""macOS's thermal pressure: 0 nominal, 1 moderate, 2 heavy, where it begins to slow down, to 4."""

SUPPLIES: Final = Path("/sys/class/power_supply")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Power:
    """The state of the machine; what the system does not tell is taken to be harmless."""

    on_battery: bool = False
    charge: int | None = None
    """Percent; None: there is no battery."""
    hot: bool = False
    """The system slows itself down because of heat."""


def run(argv: Sequence[str]) -> str:
    """A command's output; empty if it is not there, fails, or takes longer than 2 s."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=2).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def read_power(platform: str = sys.platform) -> Power:
    """The state now."""
    if platform != "darwin":
        return parse_supplies(SUPPLIES)
    level = run(["notifyutil", "-g", "com.apple.system.thermalpressurelevel"])
    return parse_pmset(run(["pmset", "-g", "batt"]), run(["pmset", "-g", "therm"]), level)


def parse_pmset(batt: str, therm: str = "", level: str = "") -> Power:
    """From the output of `pmset -g batt`, `pmset -g therm`, and notifyutil's pressure level.

    Intel Macs tell heat by a speed limit below 100, Macs with Apple's chips by the level alone.
    """
    source = re.search(r"drawing from '(.+?)'", batt)
    charge = re.search(r"(\d+)%", batt)
    limit = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", therm)
    pressure = re.search(r"(\d+)\s*$", level)
    return Power(
        on_battery=source is not None and source[1] != "AC Power",
        charge=int(charge[1]) if charge else None,
        hot=(limit is not None and int(limit[1]) < 100)
        or (pressure is not None and int(pressure[1]) >= HEAVY),
    )


def parse_supplies(directory: Path) -> Power:
    """From Linux's files; a battery of a mouse or a keyboard is none of the machine's."""
    batteries = [
        supply
        for supply in sorted(directory.glob("*"))
        if _read(supply / "type") == "Battery" and _read(supply / "scope") != "Device"
    ]
    charges = [int(text) for each in batteries if (text := _read(each / "capacity")).isdigit()]
    return Power(
        on_battery=any(_read(battery / "status") == "Discharging" for battery in batteries),
        charge=min(charges, default=None),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def reason_to_pause(settings: Settings, power: Power) -> str | None:
    """Why no job should be started, in a few words; None: nothing is in the way."""
    least = settings.pause_on_battery_below
    low = power.charge is not None and least is not None and power.charge < least
    if power.on_battery and low:
        return f"the battery is at {power.charge} %, below pause_on_battery_below = {least}"
    if settings.pause_when_hot and power.hot:
        return "the machine is hot and slows itself down (pause_when_hot)"
    return None


class PowerPolicy:
    """Pauses this machine's worker by the settings. Off by default, and then nothing is asked."""

    def __init__(self, settings: Settings, read: Callable[[], Power] = read_power) -> None:
        self._settings, self._read = settings, read
        self._active = settings.pause_when_hot or settings.pause_on_battery_below is not None
        self._look_at = 0.0
        self._reason: str | None = None
        pause.resume(settings)  # whatever a former daemon had found

    def tick(self, now: float) -> None:
        """Look every LOOK_S seconds. `now` is in seconds and never runs backwards."""
        if not self._active or now < self._look_at:
            return
        self._look_at = now + LOOK_S
        reason = reason_to_pause(self._settings, self._read())
        try:
            self._tell(reason)
        except OSError as error:
            _log.warning("the pause file cannot be written: %s", error.strerror)

    def _tell(self, reason: str | None) -> None:
        if reason:
            pause.pause(self._settings, reason)
        elif self._reason:
            pause.resume(self._settings)
        if reason and not self._reason:
            _log.info("no jobs are started: %s", reason)
        elif self._reason and not reason:
            _log.info("jobs are started again")
        self._reason = reason

    def close(self) -> None:
        """Leave no wish behind."""
        pause.resume(self._settings)
