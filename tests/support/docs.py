"""The code blocks of a page, as one shell script that runs them in their order.

A comment before a block says how it is run:

    <!-- not run: REASON -->    not at all
    <!-- needs: NAME -->        if the program, or the module, is there
    <!-- command: NAME -->      without the part that installs
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("sh", "python")

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>.*?) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A block of shell or Python."""

    place: str
    """File and line."""
    language: str
    code: str
    mark: str = ""

    @property
    def runs(self) -> bool:
        """Whether it can be run here."""
        kind, _, value = self.mark.partition(": ")
        if kind == "needs":
            return bool(shutil.which(value) or importlib.util.find_spec(value))
        return kind != "not run" and not (kind == "command" and "pytest" in self.code)

    def script(self, python: str) -> str:
        """The block in shell."""
        code = re.sub(r"^pip install .* && ", "", self.code)
        if self.language == "python":
            code = f"{shlex.quote(python)} - <<'END_OF_BLOCK'\n{code}END_OF_BLOCK\n"
        return f"echo {shlex.quote(f'### {self.place}')}\n{code}"


def blocks(page: Path) -> Iterator[Block]:
    """The page's blocks of shell and Python."""
    text = page.read_text("utf-8")
    for found in _BLOCK.finditer(text):
        if found["language"] in LANGUAGES:
            line = text.count("\n", 0, found.start("code"))
            yield Block(
                f"{page.name}:{line}", found["language"], found["code"], found["mark"] or ""
            )


def script(page: Path, python: str) -> str:
    """All that can be run of the page; it stops at the first command that fails."""
    return "set -eu\n" + "".join(block.script(python) for block in blocks(page) if block.runs)
