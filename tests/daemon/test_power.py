"""Battery and heat: reading what systems say, and the wish that no job is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from thinkq.client import locks, pause
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import power
from thinkq.daemon.power import (
    Power,
    PowerPolicy,
    parse_pmset,
    parse_supplies,
    read_power,
    reason_to_pause,
)

ON_BATTERY = (
    "Now drawing from 'Battery Power'\n"
    " -InternalBattery-0 (id=4522083)\t19%; discharging; 1:02 remaining present: true\n"
)
PLUGGED_IN = (
    "Now drawing from 'AC Power'\n"
    " -InternalBattery-0 (id=4522083)\t85%; charging; 0:48 remaining present: true\n"
)
DESKTOP = "Now drawing from 'AC Power'\n"
COOL = (
    "Note: No thermal warning level has been recorded\n"
    "Note: No performance warning level has been recorded\n"
)
SLOWED = COOL + (
    "2026-01-24 13:10:40 +0100 CPU Power notify\n"
    "\tCPU_Scheduler_Limit \t= 100\n\tCPU_Available_CPUs \t= 8\n\tCPU_Speed_Limit \t= 35\n"
)
LEVEL = "com.apple.system.thermalpressurelevel {}\n"


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ((ON_BATTERY,), Power(on_battery=True, charge=19)),
        ((PLUGGED_IN,), Power(charge=85)),
        ((DESKTOP, COOL), Power()),
        ((DESKTOP, SLOWED), Power(hot=True)),
        ((DESKTOP, SLOWED.replace("35", "100")), Power()),
        ((DESKTOP, COOL, LEVEL.format(0)), Power()),
        ((DESKTOP, COOL, LEVEL.format(1)), Power()),
        ((DESKTOP, COOL, LEVEL.format(2)), Power(hot=True)),
        (("", "", ""), Power()),
        (("something new",), Power()),
    ],
)
def test_what_a_mac_says_is_understood(outputs: tuple[str, ...], expected: Power) -> None:
    """Written after the published forms of the outputs; no Mac was asked."""
    assert parse_pmset(*outputs) == expected


def test_on_a_mac_the_programs_of_the_system_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes: stand-ins of the two programs."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, text in {
        "pmset": f'#!/bin/sh\n[ "$2" = batt ] && printf "{ON_BATTERY.strip()}"\nexit 0\n',
        "notifyutil": f"#!/bin/sh\necho {LEVEL.format(3)}",
    }.items():
        (tmp_path / name).write_text(text.replace("19%", "19%%"))
        (tmp_path / name).chmod(0o755)
    assert read_power("darwin") == Power(on_battery=True, charge=19, hot=True)


def test_a_system_that_tells_nothing_pauses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert read_power("darwin") == Power()


def supply(directory: Path, name: str, **files: str) -> None:
    """A power supply as Linux shows it."""
    for file, text in files.items():
        path = directory / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_what_linux_says_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop with two batteries; a mouse with a low one of its own does not count."""
    supply(tmp_path, "AC", type="Mains", online="0")
    supply(tmp_path, "BAT0", type="Battery", status="Discharging", capacity="41")
    supply(tmp_path, "BAT1", type="Battery", status="Unknown", capacity="77")
    supply(tmp_path, "mouse", type="Battery", scope="Device", status="Discharging", capacity="3")
    assert parse_supplies(tmp_path) == Power(on_battery=True, charge=41)
    supply(tmp_path, "BAT0", status="Charging")
    assert parse_supplies(tmp_path) == Power(on_battery=False, charge=41)
    assert parse_supplies(tmp_path / "none") == Power()
    monkeypatch.setattr(power, "SUPPLIES", tmp_path)
    assert read_power("linux").charge == 41


@pytest.mark.parametrize(
    ("options", "state", "told"),
    [
        ({}, Power(on_battery=True, charge=1, hot=True), None),
        ({"pause_on_battery_below": 30}, Power(on_battery=True, charge=29), "at 29 %, below"),
        ({"pause_on_battery_below": 30}, Power(on_battery=True, charge=30), None),
        ({"pause_on_battery_below": 30}, Power(on_battery=False, charge=5), None),
        ({"pause_on_battery_below": 30}, Power(on_battery=True), None),
        ({"pause_when_hot": True}, Power(hot=True), "hot"),
        ({"pause_when_hot": True}, Power(on_battery=True, charge=1), None),
    ],
)
def test_the_policy_is_off_until_it_is_set(
    tmp_path: Path, options: dict[str, object], state: Power, told: str | None
) -> None:
    reason = reason_to_pause(load_settings({}, home=str(tmp_path), **options), state)
    assert (reason is None) if told is None else (told in (reason or ""))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Settings]:
    """Settings with the policy on; the daemon's lock is held, as while it runs."""
    settings = load_settings({}, home=str(tmp_path), pause_on_battery_below=30)
    lock = locks.take(settings.daemon_lock)
    assert lock
    yield settings
    lock.close()


def test_a_low_battery_pauses_and_power_from_the_wall_resumes(daemon: Settings) -> None:
    state = Power(on_battery=True, charge=20)
    policy = PowerPolicy(daemon, read=lambda: state)
    assert pause.paused(daemon) is None
    policy.tick(0.0)
    assert "20 %" in (pause.paused(daemon) or "")
    state = Power(on_battery=False, charge=20)
    policy.tick(power.LOOK_S - 1)
    assert pause.paused(daemon), "the system is not asked all the time"
    policy.tick(power.LOOK_S)
    assert pause.paused(daemon) is None


def test_the_end_of_the_daemon_ends_the_pause(daemon: Settings) -> None:
    low = Power(on_battery=True, charge=20)
    policy = PowerPolicy(daemon, read=lambda: low)
    policy.tick(0.0)
    policy.close()
    assert pause.paused(daemon) is None


def test_what_a_killed_daemon_left_pauses_nothing(tmp_path: Path) -> None:
    """A worker that is then started by hand must not wait for ever."""
    settings = load_settings({}, home=str(tmp_path))
    lock = locks.take(settings.daemon_lock)
    assert lock
    pause.pause(settings, "an old reason")
    assert pause.paused(settings) == "an old reason"
    lock.close()
    assert pause.paused(settings) is None
    with_lock = locks.take(settings.daemon_lock)
    assert with_lock
    PowerPolicy(settings)
    assert pause.paused(settings) is None
    with_lock.close()


def test_without_a_setting_the_system_is_never_asked(tmp_path: Path) -> None:
    def asked() -> Power:
        raise AssertionError("asked")

    PowerPolicy(load_settings({}, home=str(tmp_path)), read=asked).tick(0.0)


def test_a_disk_that_takes_no_file_does_not_end_the_daemon(daemon: Settings) -> None:
    (daemon.pause_file.with_suffix(".new")).mkdir()
    low = Power(on_battery=True, charge=20)
    PowerPolicy(daemon, read=lambda: low).tick(0.0)
    assert pause.paused(daemon) is None
