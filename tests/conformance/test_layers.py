"""client <- worker <- daemon: what a layer may import, and what it costs to import the client."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from support.processes import environment, python

ROOT = Path(__file__).parents[2]

LOADED = """
import sys
{statement}
unwanted = ("mlx", "mlx_lm", "transformers", "pytest", "thinkq.worker", "thinkq.daemon")
print(*[name for name in unwanted if name in sys.modules])
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import thinkq.client",
        "from thinkq.client import Client, Job",
        "from thinkq.client import AsyncClient",
        "from thinkq.client.testing import MemoryClient",
        "import thinkq.client.cli",
        "import thinkq.client.cli as cli; sys.argv = ['thinkq', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit as end: assert not end.code",
    ],
)
def test_the_client_loads_neither_mlx_nor_the_layers_above(statement: str) -> None:
    """`thinkq --help` and a script that submits jobs start at once, on any machine."""
    with python("-c", LOADED.format(statement=statement)) as process:
        shown, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert shown.splitlines()[-1] == ""


def test_the_daemon_supervises_without_loading_mlx() -> None:
    """It runs all day beside the worker, and its memory is the model's."""
    with python("-c", LOADED.format(statement="import thinkq.daemon.main")) as process:
        shown, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert shown.split() == ["thinkq.daemon"]


@pytest.mark.parametrize("layer", ["client", "worker", "daemon"])
def test_the_namespace_stays_open(layer: str) -> None:
    """A `thinkq/__init__.py` in one folder would hide the other two."""
    package = ROOT / layer / "thinkq"
    assert not (package / "__init__.py").exists()
    assert (package / layer / "__init__.py").exists()
    assert (package / layer / "py.typed").exists()


def test_every_import_points_downwards() -> None:
    lint = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert lint.returncode == 0, lint.stdout


def test_the_commands_of_the_upper_layers_can_be_looked_up() -> None:
    """pyproject.toml declares them; the command line finds them by name, without an import."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["project"]["entry-points"]["thinkq.commands"]
    assert set(declared) == {"worker", "daemon", "models", "doctor"}
    for target in declared.values():
        module, _, attribute = target.partition(":")
        with python("-c", f"from {module} import {attribute} as command; command.name") as process:
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    installed = {point.name: point.value for point in entry_points(group="thinkq.commands")}
    assert installed in ({}, declared)
