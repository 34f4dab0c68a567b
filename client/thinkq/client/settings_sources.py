"""What settings are made from, and how a bad one is told: a TOML file, and variables.

Nothing here knows the settings themselves: `kind` is a struct of settings, and its fields say which
names there are and what their values must be.
"""

from __future__ import annotations

import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import msgspec

from thinkq.client.errors import InvalidJob, SettingsError
from thinkq.client.job import nearest
from thinkq.client.job_checks import Limits, check_number

PREFIX: Final = "THINKQ_"
"""Variables that begin so are settings: THINKQ_MAX_BATCH is `max_batch`."""

DEFAULT: Final = "default"

_EXPECTED: Final = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text in quotes",
}


class Sourced(NamedTuple):
    """A setting's value and where it comes from.

    `source` is `default`, the path of the settings file, or the name of a variable.
    """

    value: Any
    source: str


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables; empty if there is no file.

    Raises SettingsError, for a file that is not TOML with the line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"{path} is not TOML: {error}; correct that line (texts stand in quotes)"
        ) from None


def read_table(
    table: Mapping[str, Any], kind: type[msgspec.Struct], limits: Mapping[str, Limits], where: str
) -> dict[str, Any]:
    """The values of a table of settings, checked. Raises SettingsError, which says where."""
    return {name: check_setting(name, value, kind, limits, where) for name, value in table.items()}


def read_environ(
    environ: Mapping[str, str], kind: type[msgspec.Struct], limits: Mapping[str, Limits]
) -> dict[str, Sourced]:
    """The settings among variables, checked. An empty variable is one that is not set.

    Raises SettingsError, which names the variable.
    """
    values = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or not text:
            continue
        name = variable.removeprefix(PREFIX).lower()
        value = check_setting(name, text, kind, limits, variable, is_text=True)
        values[name] = Sourced(value, variable)
    return values


def check_setting(
    name: str,
    value: Any,
    kind: type[msgspec.Struct],
    limits: Mapping[str, Limits],
    where: str,
    *,
    is_text: bool = False,
) -> Any:
    """The value as the setting's own type; with `is_text` it is read from the text of a variable.

    Raises SettingsError for an unknown name, a wrong type, and a number out of its limits.
    """
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    if name not in known:
        raise SettingsError(f"{where}: unknown setting `{name}`{nearest(name, tuple(known))}")
    try:
        value = msgspec.convert(value, known[name], strict=not is_text)
        if name in limits:
            check_number(name, value, limits[name])
    except msgspec.ValidationError:
        raise SettingsError(
            f"{where}: {name} must be {_expected(known[name])}, not {value!r:.40}"
        ) from None
    except InvalidJob as error:
        raise SettingsError(f"{where}: {error}") from None
    return value


def _expected(kind: Any) -> str:
    first = get_args(kind)[0] if isinstance(kind, types.UnionType) else kind
    return _EXPECTED.get(first, "a table of the settings file")
