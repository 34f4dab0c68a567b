"""`thinkq rm`."""

from __future__ import annotations

import re
import time
from typing import Final

import click

from thinkq.client import batches
from thinkq.client.cli.cancel import sentence
from thinkq.client.client import Client
from thinkq.client.errors import NotFinished
from thinkq.client.settings import load_settings

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

PATIENCE_S: Final = 10.0
"""Jobs that were told to stop do so within a second, if their worker lives."""


def _seconds(_: click.Context, __: click.Parameter, age: str | None) -> float | None:
    if age is None:
        return None
    if found := re.fullmatch(r"(\d+)([smhdw])", age):
        return float(found[1]) * UNITS[found[2]]
    raise click.BadParameter(f"{age!r} is no length of time; write 12h, 7d or 4w")


@click.command()
@click.argument("ids", metavar="BATCH...", nargs=-1)
@click.option("--cancel", "first_cancel", is_flag=True, help="Cancel jobs that have not ended.")
@click.option(
    "--older-than",
    callback=_seconds,
    metavar="AGE",
    help="All finished batches of this age, as 7d.",
)
def rm(ids: tuple[str, ...], first_cancel: bool, older_than: float | None) -> None:
    """Remove batches and their results from Redis, for good.

    A batch with jobs that have not ended is refused, unless --cancel cancels them first. Result
    files stay.

    \b
    Example:
      thinkq rm b5d41402abc4
      thinkq rm --older-than 7d
    """
    if bool(ids) == (older_than is not None):
        raise click.UsageError("name the batches to remove, or give --older-than")
    with Client(settings=load_settings()) as client:
        for batch in ids or _finished(client, older_than or 0.0):
            if first_cancel:
                click.echo(sentence(batch, client.cancel(batch)), err=True)
            _remove(client, batch, PATIENCE_S if first_cancel else 0.0)
            click.echo(f"{batch}: removed", err=True)


def _remove(client: Client, batch: str, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return client.remove(batch)
        except NotFinished:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _finished(client: Client, age: float) -> list[str]:
    """The finished batches that were submitted so many seconds ago, or earlier."""
    with client.reaching():
        every = batches.statuses(client.connection, batches.batch_ids(client.connection))
    return [one.batch for one in every if one.finished and one.created <= time.time() - age]
