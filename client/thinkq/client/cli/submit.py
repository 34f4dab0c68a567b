"""`thinkq submit`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from thinkq.client.cli.watch import watch_batch
from thinkq.client.client import Batch, Client
from thinkq.client.keys import QUEUES, Priority
from thinkq.client.run import read_checked
from thinkq.client.server import eviction_warning
from thinkq.client.settings import load_settings


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--wait", is_flag=True, help="Show progress until all jobs have ended.")
@click.option("--priority", type=click.Choice(list(QUEUES)), help="Of jobs that state none.")
@click.option("--again", is_flag=True, help="Queue the jobs although they were queued before.")
def submit(file: str, wait: bool, priority: Priority | None, again: bool) -> int:
    """Queue all jobs of a batch file and print the batch's id.

    The whole file is checked first. The same file makes the same batch, which is not run twice.

    \b
    Example:
      thinkq submit jobs.jsonl --priority low
    """
    settings = load_settings()
    defaults = {} if priority is None else {"priority": priority}
    jobs = read_checked(file, settings, defaults, sys.stderr).jobs
    with Client(settings=settings) as client:
        batch = client.submit_lines(jobs, name=Path(file).name, again=again)
        for text in notes(client, batch):
            click.echo(text, err=True)
        click.echo(batch.id)
        return watch_batch(client, batch.id) if wait else 0


def notes(client: Client, batch: Batch) -> Iterator[str]:
    """What whoever submits should know."""
    new, total = batch.new_jobs, len(batch.job_ids)
    if new == 0:
        yield "this batch was there already; nothing was queued (--again runs all its jobs anew)"
    elif new < total:
        yield f"this batch was there already; {new} of its {total} jobs were queued now"
    with client.reaching():
        if warning := eviction_warning(client.connection):
            yield f"warning: {warning}"
