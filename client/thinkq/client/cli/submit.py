"""`thinkq submit`."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from typing import Any

import click

from thinkq.client.cli.options import job_defaults, job_options
from thinkq.client.cli.watch import watch_batch
from thinkq.client.client import Batch, Client
from thinkq.client.errors import InvalidBatch
from thinkq.client.keys import QUEUES, Priority
from thinkq.client.run import read_checked
from thinkq.client.server import eviction_warning
from thinkq.client.settings import load_settings


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--wait", is_flag=True, help="Show progress until all jobs have ended.")
@job_options
@click.option("--priority", type=click.Choice(list(QUEUES)), help="Of jobs that state none.")
@click.option("--name", metavar="NAME", help="What lists call the batch; default: the file's name.")
@click.option("--skip-invalid", is_flag=True, help="Queue the good lines, leave bad ones out.")
@click.option("--again", is_flag=True, help="Queue the jobs although they were queued before.")
def submit(
    file: str,
    wait: bool,
    priority: Priority | None,
    name: str | None,
    skip_invalid: bool,
    again: bool,
    **job: Any,
) -> int:
    """Queue all jobs of a batch file and print the batch's id.

    The whole file is checked first. The same file makes the same batch, which is not run twice.
    Options of jobs are as those of `thinkq run`.

    \b
    Example:
      thinkq submit jobs.jsonl --priority low
    """
    settings = load_settings()
    defaults = job_defaults(**job) | ({} if priority is None else {"priority": priority})
    with (
        read_checked(file, settings, defaults, sys.stderr, skip_invalid) as jobs,
        Client(settings=settings) as client,
    ):
        if not jobs:
            raise InvalidBatch("nothing was queued: no line can run", [])
        id = jobs.batch_id(secrets.token_hex(8) if again else "")
        batch = client.submit_as(id, jobs, name=name or jobs.name)
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
