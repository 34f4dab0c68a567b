"""`thinkq cancel`."""

from __future__ import annotations

import click

from thinkq.client.cancel import Cancellation
from thinkq.client.client import Client
from thinkq.client.settings import load_settings


@click.command()
@click.argument("id", metavar="ID")
def cancel(id: str) -> None:
    """Cancel a job, or all jobs of a batch that have not ended.

    Jobs that wait end at once; jobs that run stop within a second, and keep what they have written.
    Results that are there stay. `thinkq retry` runs cancelled jobs again.

    \b
    Example:
      thinkq cancel b5d41402abc4
    """
    with Client(settings=load_settings()) as client:
        click.echo(sentence(id, client.cancel(id)), err=True)


def sentence(id: str, outcome: Cancellation) -> str:
    """What was done, in one line."""
    parts = [f"{outcome.cancelled} cancelled"]
    if outcome.stopping:
        parts.append(f"{outcome.stopping} told to stop")
    if outcome.ended:
        parts.append(f"{outcome.ended} had ended already")
    if outcome.lost:
        parts.append(f"{outcome.lost} lost")
    return f"{id}: {', '.join(parts)}"
