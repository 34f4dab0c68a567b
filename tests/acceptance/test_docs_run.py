"""The commands and programs of the docs, run as a reader would: in order, with the demo model."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import docs, help_blocks
from support.processes import environment

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "guide.md", ROOT / "docs" / "library.md"]


def run_to_its_end(script: str, folder: Path, variables: dict[str, str], log: Path) -> int:
    """The exit code; whatever the script has started ends with it."""
    with (
        log.open("w") as told,
        subprocess.Popen(
            ["sh", "-c", script],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            process_group=0,
        ) as shell,
    ):
        try:
            return shell.wait(300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            subprocess.run(["thinkq", "daemon", "stop"], env=variables, check=False, stdout=told)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    """In one shell and one folder, with a data directory of its own and what the page starts."""
    command = tmp_path / "bin" / "thinkq"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m thinkq.client "$@"\n')
    command.chmod(0o755)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    log = tmp_path / "log"
    variables = environment(THINKQ_HOME=str(tmp_path / "home"))
    variables["PATH"] = f"{command.parent}:{variables['PATH']}"
    code = run_to_its_end(docs.script(page, sys.executable), tmp_path, variables, log)
    said = log.read_text("utf-8", "replace")
    assert code == 0, said[-4000:]
    assert "Traceback" not in said
    for block in docs.blocks(page):
        assert (f"### {block.place}\n" in said) == block.runs


def test_no_command_stands_outside_of_a_block_that_is_run() -> None:
    """A block in another language, or in none, would be passed over."""
    for page in PAGES:
        found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
        for language, code in found:
            if language not in docs.LANGUAGES:
                assert not re.search(r"^(\$ )?(thinkq|pip|python) ", code, re.M), code


def test_the_help_in_the_docs_is_that_of_the_program() -> None:
    """After a change of the command line: PYTHONPATH=tests python -m support.help_blocks --write"""
    assert help_blocks.PAGE.read_text("utf-8") == help_blocks.page()


def test_the_blocks_are_what_a_terminal_shows() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "thinkq.client", "run", "--help"],
        env=environment(COLUMNS="80"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"```\n{shown}```\n" in help_blocks.page()
