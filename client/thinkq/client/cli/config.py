"""`thinkq config`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import click
import msgspec

from thinkq.client.columns import columns
from thinkq.client.settings import find_home, settings_file, sourced_settings
from thinkq.client.settings_sources import Sourced


@click.group()
def config() -> None:
    """Show the settings, and where each value comes from.

    \b
    Example:
      thinkq config show
    """


@config.command()
def path() -> None:
    """Print the path of the settings file, whether it is there or not.

    \b
    Example:
      $EDITOR "$(thinkq config path)"
    """
    click.echo(settings_file(find_home()))


@config.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def show(as_json: bool) -> None:
    """Show every setting, its value, and where it comes from. Passwords are masked.

    \b
    Example:
      thinkq config show
    """
    settings = sourced_settings()
    models = settings.pop("models")
    tables = {"settings": {name: _masked(name, each) for name, each in settings.items()}}
    for model, own in models.value.items():
        table = {name: Sourced(value, models.source) for name, value in own.stated.items()}
        tables[f'models."{model}"'] = table
    click.echo(_json(tables) if as_json else "\n".join(_lines(tables)))


def _masked(name: str, setting: Sourced) -> Sourced:
    if name == "redis_url" and setting.value:
        return setting._replace(value=mask(setting.value))
    return setting


def mask(url: str) -> str:
    """The URL without its password, which stands before the host or in the query."""
    url = re.sub(r"(?<=://)([^:/?#]*):.*@", r"\1:***@", url)
    return re.sub(r"(?<=[?&]password=)[^&#]*", "***", url)


def _json(tables: Mapping[str, Mapping[str, Sourced]]) -> bytes:
    """Each setting as an object with `value` and `source`, in one object a table."""
    return msgspec.json.encode(
        {
            table: {name: setting._asdict() for name, setting in rows.items()}
            for table, rows in tables.items()
        }
    )


def _lines(tables: Mapping[str, Mapping[str, Sourced]]) -> Iterator[str]:
    """The tables in columns, those of the models under the heads that they have in the file."""
    rows = [
        (name, _shown(setting.value), setting.source)
        for table in tables.values()
        for name, setting in table.items()
    ]
    lines = iter(columns(rows))
    for table, settings in tables.items():
        if table != "settings":
            yield f"\n[{table}]"
        yield from islice(lines, len(settings))


def _shown(value: Any) -> str:
    """A value as TOML writes it, and `-` for null, which TOML does not have."""
    return "-" if value is None else msgspec.json.encode(value).decode()
