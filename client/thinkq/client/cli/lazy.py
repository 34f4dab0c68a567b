"""A command group that imports a command only when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

import click
from click.shell_completion import CompletionItem

GROUP = "thinkq.commands"
"""Entry-point group of the commands of other layers, which may need what is not installed here."""


class LazyGroup(click.Group):
    """Commands of this layer by module, and those that entry points name.

    `helps` has the line of help of each command: listing them must not import them.
    """

    def __init__(
        self, *, modules: Mapping[str, str], helps: Mapping[str, str], **rest: object
    ) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]  # click checks its own arguments
        self._modules, self._helps = modules, helps

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help, then what else is installed."""
        foreign = {point.name for point in entry_points(group=GROUP)}
        known = [name for name in self._helps if name in self._modules or name in foreign]
        return known + sorted(foreign - set(known))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name in self._modules:
            return _command(getattr(import_module(self._modules[cmd_name]), cmd_name))
        for point in entry_points(group=GROUP, name=cmd_name):
            return _foreign(point)
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, and the options of the group."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self._helps.get(name)) for name in names]
        # The group itself would import every command.
        return commands + super(click.Group, self).shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the lines of help."""
        rows = [(name, self._helps.get(name, "")) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _command(value: object) -> click.Command:
    if not isinstance(value, click.Command):
        raise TypeError(f"{value!r} is no command")
    return value


def _foreign(point: EntryPoint) -> click.Command:
    try:
        return _command(point.load())
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"`thinkq {point.name}` needs the module {error.name}; "
            "install it with: pip install 'thinkq[worker]'"
        ) from None
