"""`thinkq retry`."""

from __future__ import annotations

import click

from thinkq.client.client import Client
from thinkq.client.settings import load_settings


@click.command()
@click.argument("batch")
def retry(batch: str) -> None:
    """Run the jobs of a batch again that failed, were cancelled or came back empty.

    Their old results are dropped. The jobs are taken as they were queued; no file is read.

    \b
    Example:
      thinkq retry b5d41402abc4
    """
    with Client(settings=load_settings()) as client:
        before = client.batch(batch).status()
        again = client.retry(batch)
    click.echo(f"{batch}: {again} jobs queued again", err=True)
    gone = before.failed + before.cancelled + before.empty + before.lost - again
    if gone > 0:
        click.echo(
            f"{gone} jobs without an answer are no longer in Redis; "
            "`thinkq run FILE --retry-failed` runs them again",
            err=True,
        )
