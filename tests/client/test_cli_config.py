"""`thinkq config`, as its user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from thinkq.client.cli import cli, main
from thinkq.client.cli.config import mask


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with a settings file."""
    monkeypatch.setenv("THINKQ_HOME", str(tmp_path))
    (tmp_path / "settings.toml").write_text(
        'redis_url = "rediss://me:secret@mac-mini.local:6379/0"\n'
        '[models."a/b"]\nbudget_high = 5\nthinking_transition = "So:\\n"\n'
    )
    return tmp_path


def shown(*arguments: str) -> str:
    """What a command prints."""
    return CliRunner().invoke(cli, ["config", *arguments], catch_exceptions=False).output


def test_show_says_where_each_value_comes_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THINKQ_MAX_BATCH", "3")
    lines = [line.split() for line in shown("show").splitlines()]
    assert ["max_batch", "3", "THINKQ_MAX_BATCH"] in lines
    assert ["max_tokens", "8192", "default"] in lines
    assert ["retention_s", "-", "default"] in lines
    head = lines.index(['[models."a/b"]'])
    assert lines[head + 1 :] == [
        ["budget_high", "5", str(home / "settings.toml")],
        ["thinking_transition", '"So:\\n"', str(home / "settings.toml")],
    ]


def test_show_as_json(home: Path) -> None:
    tables = json.loads(shown("show", "--json"))
    assert tables["settings"]["home"] == {"value": str(home), "source": "THINKQ_HOME"}
    assert tables['models."a/b"']["budget_high"]["value"] == 5


@pytest.mark.parametrize("arguments", [("show",), ("show", "--json")])
def test_a_password_is_never_shown(home: Path, arguments: tuple[str, ...]) -> None:
    output = shown(*arguments)
    assert "secret" not in output
    assert "rediss://me:***@mac-mini.local:6379/0" in output


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://:pass@h:1/0", "redis://:***@h:1/0"),
        ("redis://u:p@ss:w@h", "redis://u:***@h"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://h?db=1&password=pass&x=1", "redis://h?db=1&password=***&x=1"),
        ("unix:///a:b@c/redis.sock?password=pass", "unix:///a:b@c/redis.sock?password=***"),
    ],
)
def test_masking_takes_the_password_and_nothing_else(url: str, masked: str) -> None:
    assert mask(url) == masked


def test_path_is_told_even_when_the_file_is_bad(home: Path) -> None:
    """It is what one needs to correct the file."""
    (home / "settings.toml").write_text("max_bach = 3")
    assert shown("path") == f"{home}/settings.toml\n"
    assert main(["config", "show"]) == 2
