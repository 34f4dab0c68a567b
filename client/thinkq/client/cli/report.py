"""`thinkq report`."""

from __future__ import annotations

from pathlib import Path

import click

from thinkq.client.cli.options import BATCH
from thinkq.client.client import Client
from thinkq.client.report import report_page
from thinkq.client.settings import load_settings


@click.command()
@click.argument("batch", type=BATCH)
@click.option(
    "-o",
    "output",
    metavar="OUT",
    type=click.Path(allow_dash=True),
    help="A file, or - for stdout; default: BATCH.html.",
)
def report(batch: str, output: str | None) -> None:
    """Write one HTML page about a batch: outcomes, closes, budgets, speed, and its odd jobs.

    The page is one file that needs no network. A batch that still runs is told so far.

    \b
    Example:
      thinkq report b5d41402abc4 -o night.html
    """
    with Client(settings=load_settings()) as client, client.reaching():
        page = report_page(client.connection, batch)
    output = output or f"{batch}.html"
    if output == "-":
        click.echo(page, nl=False)
        return
    Path(output).write_text(page, encoding="utf-8")
    click.echo(f"report: {output}", err=True)
