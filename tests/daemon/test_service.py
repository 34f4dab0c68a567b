"""The service files, and the exact commands that load and unload them, on any system."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from support.processes import environment
from thinkq.client import launch
from thinkq.client.settings import Settings, load_settings
from thinkq.daemon import service
from thinkq.daemon.launchd import TRIES, UNLOAD_S, LaunchAgent, nothing_loaded
from thinkq.daemon.main import daemon
from thinkq.daemon.service import Outcome, Recorder, ServiceError, Shell
from thinkq.daemon.systemd import UserUnit

DEPLOY = Path(__file__).parents[2] / "deploy"
UID = os.getuid()
LABEL = "dev.thinkq.daemon"
TARGET = f"gui/{UID}/{LABEL}"
ODD = 'é "quoted" \\ 100% $HOME'


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a home directory of the test's own, and no settings in the environment."""
    for name in ("HF_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("THINKQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def dry_run(*arguments: str, **environ: str) -> Any:
    """The plan of an installation."""
    command = ["install", "--dry-run", "--json", *arguments]
    outcome: Result = CliRunner().invoke(daemon, command, env=environ)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.output)


def agent_of(plan: Any) -> Any:
    return plistlib.loads(plan["content"].encode())


def settings_of(home: Path) -> Settings:
    return load_settings({}, home=str(home))


def scripted(*answers: tuple[str, int]) -> Recorder:
    """A launchd that gives each of these answers once, in order, and then says 0."""
    left = list(answers)

    def answer(argv: Sequence[str]) -> int:
        return left.pop(0)[1] if left and left[0][0] == argv[1] else 0

    return Recorder(answer)


class TestLaunchAgent:
    """The property list, parsed, and what launchctl is told."""

    def test_every_key_that_keeps_the_daemon_alive(self, person: Path) -> None:
        agent = agent_of(dry_run("--platform", "darwin"))
        log = str(person / "Library/Logs/thinkq/daemon.log")
        assert agent.pop("EnvironmentVariables")
        assert agent == {
            "Label": LABEL,
            "ProgramArguments": [sys.executable, "-m", "thinkq.daemon", "run"],
            "WorkingDirectory": str(person / ".local/share/thinkq"),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "ExitTimeOut": 15,
            "ProcessType": "Interactive",
            "StandardOutPath": log,
            "StandardErrorPath": log,
            "Umask": 63,
        }

    def test_qw_18_the_environment_is_complete_and_absolute(self, person: Path) -> None:
        """launchd gives its jobs a bare PATH and expands nothing."""
        plan = dry_run("--platform", "darwin", HF_HOME="~/models")
        variables = agent_of(plan)["EnvironmentVariables"]
        assert "~" not in plan["content"]
        assert "$" not in plan["content"]
        search = variables["PATH"].split(":")
        assert search[0] == os.path.dirname(sys.executable)
        assert {"/opt/homebrew/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"} < set(search)
        assert all(os.path.isabs(path) for path in search)
        assert variables["HF_HOME"] == str(person / "models")
        assert variables["THINKQ_HOME"] == str(person / ".local/share/thinkq")
        assert variables["LANG"] == "en_US.UTF-8"
        assert variables["LAUNCHED_BY"] == "thinkq-launchd"

    def test_the_cache_of_models_is_the_one_that_the_hub_library_uses(self, person: Path) -> None:
        def cache(**environ: str) -> str:
            found = agent_of(dry_run("--platform", "darwin", **environ))["EnvironmentVariables"]
            return str(found["HF_HOME"])

        assert cache() == str(person / ".cache/huggingface")
        assert cache(XDG_CACHE_HOME="/big") == "/big/huggingface"
        assert cache(XDG_CACHE_HOME="/big", HF_HOME="/hf") == "/hf"

    def test_the_sequence_where_nothing_is_loaded_yet(self, person: Path) -> None:
        plan = dry_run("--platform", "darwin")
        assert plan["path"] == str(person / f"Library/LaunchAgents/{LABEL}.plist")
        assert plan["commands"] == [
            ["launchctl", "bootout", TARGET],
            ["launchctl", "print", TARGET],
            ["launchctl", "bootstrap", f"gui/{UID}", plan["path"]],
            ["launchctl", "kickstart", TARGET],
        ]

    def test_loading_waits_for_the_former_service_and_tries_again_when_launchd_is_busy(
        self, person: Path
    ) -> None:
        """`bootout` returns before the service is gone; then `bootstrap` fails with code 5."""
        commands = scripted(
            ("bootout", 0), ("print", 0), ("print", 0), ("print", 113), ("bootstrap", 5)
        )
        LaunchAgent(load_settings({}), commands).load()
        words = [argv[1] for argv in commands.commands]
        assert words == [
            "bootout",
            "print",
            "print",
            "print",
            "bootstrap",
            "bootstrap",
            "kickstart",
        ]

    def test_a_busy_launchd_is_given_up_in_the_end(self) -> None:
        commands = Recorder(lambda argv: 5 if argv[1] == "bootstrap" else nothing_loaded(argv))
        with pytest.raises(ServiceError, match=r"`launchctl bootstrap gui/.*failed with code 5"):
            LaunchAgent(load_settings({}), commands).load()
        assert sum(argv[1] == "bootstrap" for argv in commands.commands) == TRIES

    def test_any_other_failure_is_told_at_once(self) -> None:
        commands = Recorder(lambda argv: 125 if argv[1] == "bootstrap" else nothing_loaded(argv))
        with pytest.raises(ServiceError, match="failed with code 125"):
            LaunchAgent(load_settings({}), commands).load()
        assert [argv[1] for argv in commands.commands] == ["bootout", "print", "bootstrap"]

    def test_a_service_that_does_not_go_away_is_told(self) -> None:
        """It has more time than launchd gives the daemon before it kills it."""
        commands = Recorder()
        with pytest.raises(ServiceError, match=f"still holds {LABEL} after {UNLOAD_S} s"):
            LaunchAgent(load_settings({}), commands).load()
        assert {argv[1] for argv in commands.commands} == {"bootout", "print"}

    def test_unloading_removes_the_file_when_the_service_is_gone(self) -> None:
        agent = LaunchAgent(load_settings({}), commands := scripted(("bootout", 0), ("print", 113)))
        service.write(agent, {})
        agent.unload()
        assert [argv[1] for argv in commands.commands] == ["bootout", "print"]
        assert not agent.path.exists()


class TestUserUnit:
    """The unit, read as systemd reads it."""

    @pytest.fixture
    def unit(self) -> UserUnit:
        return UserUnit(load_settings({}), Recorder())

    def test_what_keeps_the_daemon_alive(self, person: Path) -> None:
        plan = dry_run("--platform", "linux")
        lines = plan["content"].splitlines()
        home = person / ".local/share/thinkq"
        assert plan["path"] == str(person / ".config/systemd/user/thinkq.service")
        assert f'ExecStart="{sys.executable}" "-m" "thinkq.daemon" "run"' in lines
        for line in (
            "Type=exec",
            "Restart=on-failure",
            "RestartPreventExitStatus=78",
            "KillMode=mixed",
            "TimeoutStopSec=10",
            "UMask=0077",
            f"WorkingDirectory={home}",
            f"StandardError=append:{home}/logs/daemon.log",
            f'Environment="THINKQ_HOME={home}"',
            f'Environment="HF_HOME={person}/.cache/huggingface"',
            'Environment="LAUNCHED_BY=thinkq-systemd"',
            "WantedBy=default.target",
        ):
            assert line in lines
        assert "~" not in plan["content"]
        assert "$" not in plan["content"]

    def test_the_sequences(self, unit: UserUnit) -> None:
        assert dry_run("--platform", "linux")["commands"] == [
            ["systemctl", "--user", "daemon-reload"],
            ["systemctl", "--user", "enable", "thinkq.service"],
            ["systemctl", "--user", "restart", "thinkq.service"],
        ]
        commands = Recorder()
        unit = UserUnit(load_settings({}), commands)
        service.write(unit, {})
        unit.unload()
        assert commands.commands == [
            ["systemctl", "--user", "disable", "--now", "thinkq.service"],
            ["systemctl", "--user", "daemon-reload"],
        ]
        assert not unit.path.exists()

    def test_a_refusal_of_systemd_is_told_with_its_words(self) -> None:
        class Refusing(Recorder):
            def run(self, *argv: str) -> Outcome:
                return Outcome(1, "Failed to connect to bus")

        with pytest.raises(ServiceError, match=r"systemctl --user daemon-reload.*connect to bus"):
            UserUnit(load_settings({}), Refusing()).load()

    @pytest.mark.parametrize("odd", [ODD, "a b", 'x"', "50%h"])
    def test_odd_values_arrive_as_they_are(self, tmp_path: Path, odd: str) -> None:
        """By systemd's rules: quotes and backslashes are escaped, `%` begins a specifier."""
        settings = load_settings({}, home=str(tmp_path / odd))
        content = UserUnit(settings, Recorder()).content({"THINKQ_MODEL": odd})
        quoted = re.search(r'^Environment="THINKQ_MODEL=(.*)"$', content, re.MULTILINE)
        assert quoted
        assert re.sub(r"\\(.)", r"\1", quoted[1]).replace("%%", "%") == odd
        (where,) = re.findall(r"^WorkingDirectory=(.*)$", content, re.MULTILINE)
        assert where.replace("%%", "%") == settings.home
        assert "%" not in content.replace("%%", "")

    @pytest.mark.parametrize("name", ["thinkq home", ODD])
    def test_systemd_itself_finds_no_fault(self, tmp_path: Path, name: str) -> None:
        if not shutil.which("systemd-analyze"):
            pytest.skip("there is no systemd-analyze; the other tests check the unit's text")
        unit = UserUnit(load_settings({}, home=str(tmp_path / name)), Recorder())
        service.write(unit, {"THINKQ_REDIS_URL": f"redis://:{ODD}@localhost"})
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--user", "--man=no", unit.path],
            env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert (verified.returncode, verified.stderr) == (0, "")


BOTH: list[Callable[[Settings, Recorder], LaunchAgent | UserUnit]] = [LaunchAgent, UserUnit]


class TestBoth:
    """What holds for either system."""

    @pytest.mark.parametrize("make", BOTH)
    def test_each_data_directory_has_a_service_of_its_own(
        self, tmp_path: Path, make: Callable[[Settings, Recorder], LaunchAgent | UserUnit]
    ) -> None:
        homes = [load_settings({}), settings_of(tmp_path / "a"), settings_of(tmp_path / "b")]
        assert len({make(home, Recorder()).path for home in homes}) == 3
        assert len({make(home, Recorder()).log for home in homes}) == 3

    @pytest.mark.parametrize("make", BOTH)
    def test_nobody_else_can_read_a_file_that_may_hold_a_password(
        self, make: Callable[[Settings, Recorder], LaunchAgent | UserUnit]
    ) -> None:
        ours = make(load_settings({}), Recorder())
        service.write(ours, {"THINKQ_REDIS_URL": "redis://:secret@mac-mini.local"})
        assert "secret" in ours.path.read_text()
        assert ours.path.stat().st_mode & 0o077 == 0
        assert ours.log.parent.is_dir(), "the service manager makes no directories"
        assert len(list(ours.path.parent.iterdir())) == 1

    def test_the_settings_of_the_shell_go_with_the_service(self, person: Path) -> None:
        (person / "model").mkdir()
        plan = dry_run(
            "--platform",
            "darwin",
            THINKQ_MAX_BATCH="4",
            THINKQ_HOME=str(person / "data"),
            THINKQ_MODEL="~/model",
            HTTPS_PROXY="http://proxy:3128",
            AWS_SECRET_ACCESS_KEY="of something else",
        )
        variables = agent_of(plan)["EnvironmentVariables"]
        assert variables["THINKQ_MAX_BATCH"] == "4"
        assert variables["THINKQ_HOME"] == str(person / "data")
        assert variables["THINKQ_MODEL"] == str(person / "model")
        assert variables["HTTPS_PROXY"] == "http://proxy:3128"
        assert "something else" not in plan["content"]

    @pytest.mark.parametrize("model", ["demo", "mlx-community/Qwen3-8B-4bit"])
    def test_a_model_that_is_no_folder_keeps_its_name(self, model: str) -> None:
        assert service.absolute_model(model) == model

    def test_a_dry_run_changes_nothing(self, person: Path) -> None:
        for platform in ("darwin", "linux"):
            dry_run("--platform", platform)
        assert list(person.iterdir()) == []

    def test_for_people_a_dry_run_shows_the_file_and_the_commands(self, person: Path) -> None:
        shown = CliRunner().invoke(daemon, ["install", "--dry-run", "--platform", "darwin"]).output
        assert shown.startswith(f"# {person}/Library/LaunchAgents/{LABEL}.plist\n<?xml")
        assert shown.endswith(f"launchctl kickstart {TARGET}\n")

    @pytest.mark.parametrize("option", ["--json", "--platform=darwin"])
    def test_options_of_a_dry_run_do_not_install(self, person: Path, option: str) -> None:
        if sys.platform == "darwin" and "darwin" in option:
            option = "--platform=linux"
        outcome = CliRunner().invoke(daemon, ["install", option])
        assert outcome.exit_code == 2
        assert list(person.iterdir()) == []

    def test_a_missing_program_is_told_in_a_sentence(self) -> None:
        with pytest.raises(ServiceError, match="`no-such-program` was not found"):
            Shell().run("no-such-program")
        assert Shell().run("/bin/sh", "-c", "echo words; exit 3") == Outcome(3, "words")


@pytest.fixture
def fake_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `systemctl` and a `launchctl` that note what they are told; the file of their notes."""
    notes = tmp_path / "notes"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("systemctl", "launchctl"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {notes}\nexit 1\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return notes


def test_an_installation_that_the_manager_refuses_leaves_nothing(
    fake_manager: Path, tmp_path: Path
) -> None:
    """Else `daemon start` would go on asking a manager that refuses."""
    ran = subprocess.run(
        [sys.executable, "-m", "thinkq.daemon", "install"],
        env=environment(THINKQ_HOME=str(tmp_path / "home")),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert "failed with code 1" in ran.stderr
    assert "`thinkq daemon start` runs it without a service" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert fake_manager.read_text().startswith(("systemctl --user daemon-reload", "launchctl"))
    assert not list(tmp_path.glob("**/*.service"))
    assert not list(tmp_path.glob("**/*.plist"))


@pytest.mark.parametrize(
    ("example", "make", "home"),
    [
        ("dev.thinkq.daemon.plist", LaunchAgent, "/Users/you/Library/Application Support/thinkq"),
        ("thinkq.service", UserUnit, "/home/you/.local/share/thinkq"),
    ],
)
def test_the_examples_are_what_an_installation_writes(
    example: str,
    make: Callable[[Settings, Recorder], LaunchAgent | UserUnit],
    home: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever wants to know what will be written finds it in the repository."""
    person = home.partition("/you/")[0] + "/you"
    python = f"{person}/.venvs/thinkq/bin/python"
    monkeypatch.setenv("HOME", person)
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(launch, "COMMAND", (python, *launch.COMMAND[1:]))
    monkeypatch.setattr(service, "default_home", lambda: Path(home))
    content = make(load_settings({}, home=home), Recorder()).content({})
    assert content == (DEPLOY / example).read_text()
