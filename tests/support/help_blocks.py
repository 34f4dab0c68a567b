"""docs/commands.md, made from the program's own help.

PYTHONPATH=tests python -m support.help_blocks --write
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from thinkq.client.cli import cli

PAGE: Final = Path(__file__).parents[2] / "docs" / "commands.md"

WIDTH: Final = 78
"""What click uses in a terminal of 80 columns."""

HEAD: Final = """# Commands

What every command prints with `--help`; this page is made from it, and a test compares the two.
[guide.md](guide.md) shows the commands at work.

Data goes to stdout, everything else to stderr. Exit codes: 0 all is well; 1 an error; 2 bad usage
or input; 3 jobs that failed, were cancelled or came back empty; 130 interrupted.

| command | what it does |
|---|---|
"""


def commands(
    command: click.Command = cli, name: str = "thinkq", parent: click.Context | None = None
) -> Iterator[click.Context]:
    """The command and all commands below it, as contexts that know their full names."""
    context = click.Context(command, parent, name, terminal_width=WIDTH)
    yield context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            try:
                found = command.get_command(context, child)
            except click.ClickException:
                continue  # Its layer is not installed here.
            if found is not None:
                yield from commands(found, child, context)


def page() -> str:
    """The whole page."""
    contexts = list(commands())
    rows = [
        f"| [`{context.command_path}`](#{context.command_path.replace(' ', '-')}) "
        f"| {context.command.get_short_help_str(200)} |\n"
        for context in contexts[1:]
    ]
    blocks = [
        f"\n## {context.command_path}\n\n```\n{context.command.get_help(context)}\n```\n"
        for context in contexts
    ]
    return HEAD + "".join(rows) + "".join(blocks)


def main() -> None:
    """Write the page, or show it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/commands.md")
    if parser.parse_args().write:
        PAGE.write_text(page(), "utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
