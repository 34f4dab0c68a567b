"""`thinkq completion`, and the batch ids that the shell completes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from thinkq.client import batches, keys
from thinkq.client.connection import probe
from thinkq.client.settings import load_settings

SHELLS: Final = ("bash", "zsh", "fish")
NEWEST: Final = 50
"""Batches that are offered."""


class BatchId(click.ParamType[str]):
    """A batch's id. The shell offers the newest batches, and nothing where Redis is away."""

    name = "batch"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The ids that begin so, with the name of their file."""
        # Whatever is wrong, the line that is being typed is no place to tell it.
        with contextlib.suppress(Exception):
            return [
                CompletionItem(id, help=name)
                for id, name in _newest_batches().items()
                if id.startswith(incomplete)
            ]
        return []


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion(shell: str | None) -> None:
    """Print the script that makes a shell complete commands, options and batch ids.

    Without SHELL it is the one in $SHELL. Put the line of the example into ~/.zshrc or ~/.bashrc;
    for fish: thinkq completion fish > ~/.config/fish/completions/thinkq.fish

    \b
    Example:
      thinkq completion zsh    # in ~/.zshrc: eval "$(thinkq completion zsh)"
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise click.UsageError(f"say for which shell: {', '.join(SHELLS)}")
    complete = get_completion_class(shell)
    assert complete is not None
    root = click.get_current_context().find_root().command
    click.echo(complete(root, {}, "thinkq", "_THINKQ_COMPLETE").source())


def _newest_batches() -> dict[str, str]:
    """Id and name, in a second at most."""
    with probe(load_settings()) as connection:
        ids = batches.batch_ids(connection)[:NEWEST]
        with connection.pipeline(transaction=False) as pipe:
            for id in ids:
                pipe.hget(keys.batch(id), "name")
            names = [batches.text(name) for name in pipe.execute()]
    return dict(zip(ids, names, strict=True))
