"""The commands' frame: help, lazy loading, exit codes."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import click
import pytest
from click.testing import CliRunner

from thinkq.client.cli import MODULES, cli, lazy, main


@click.command()
def planted() -> None:
    """A command of another layer."""
    raise SystemExit(5)


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two installed commands: one that loads, one whose module needs what is not there."""
    points = EntryPoints(
        [
            EntryPoint("worker", f"{__name__}:planted", lazy.GROUP),
            EntryPoint("extra", "thinkq.no_such_module:extra", lazy.GROUP),
        ]
    )

    def entry_points(**wanted: Any) -> EntryPoints:
        return points.select(**wanted)

    monkeypatch.setattr(lazy, "entry_points", entry_points)
    monkeypatch.setattr(EntryPoint, "load", lambda point: _load(point.name))


def _load(name: str) -> click.Command:
    if name == "extra":
        raise ModuleNotFoundError("No module named 'mlx'", name="mlx")
    return planted


@pytest.mark.parametrize("name", MODULES)
def test_each_command_has_a_help_with_an_example(name: str) -> None:
    shown = CliRunner().invoke(cli, [name, "--help"])
    assert shown.exit_code == 0
    assert f"Example:\n    thinkq {name} " in shown.output


def test_the_help_lists_installed_commands_without_loading_them(foreign: None) -> None:
    """`extra` cannot be loaded at all."""
    shown = CliRunner().invoke(cli, ["--help"])
    assert shown.exit_code == 0
    assert re.search(r"  worker +A worker in the foreground", shown.output)
    assert "  extra" in shown.output


def test_a_command_of_another_layer_runs(foreign: None) -> None:
    assert CliRunner().invoke(cli, ["worker"]).exit_code == 5


def test_a_command_whose_layer_is_not_installed_says_how_to_install_it(
    foreign: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["extra"]) == 1
    assert "`thinkq extra` needs the module mlx; install it with" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["no-such-command"], ["run"], ["run", "x", "--budget", "-2"], ["run", "x", "--effort", "max"]],
)
def test_bad_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Error:" in capsys.readouterr().err


def test_a_bad_setting_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THINKQ_MAX_BACH", "5")
    assert main(["status"]) == 2
    assert "did you mean `max_batch`?" in capsys.readouterr().err


def test_an_error_of_our_own_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise KeyError("a prompt, perhaps")

    monkeypatch.setattr("thinkq.client.cli.status.load_settings", broken)
    assert main(["status"]) == 1
    err = capsys.readouterr().err
    assert "KeyError at test_cli.py:" in err
    assert "prompt" not in err
    assert len(err.splitlines()) == 1
