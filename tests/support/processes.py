"""Processes of our own code, run with the interpreter and the import path of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def environment(**variables: str) -> dict[str, str]:
    """This environment without any setting of thinkq, with the tests' import path."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("THINKQ_")}
    return plain | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | variables


@contextmanager
def python(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python with pipes for stdin, stdout and stderr; killed at the end if it still runs."""
    options: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = (sys.executable, *arguments)
    with subprocess.Popen(command, env=environment(**variables), text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def thinkq(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line on a data directory, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "thinkq.client", *arguments],
        env=environment(THINKQ_HOME=str(home), **variables),
        capture_output=True,
        text=True,
        timeout=180,
    )
