"""`thinkq watch`."""

from __future__ import annotations

import sys

import click

from thinkq.client import batches, launch
from thinkq.client.client import Client
from thinkq.client.progress import Pace, observing
from thinkq.client.render import JobView, summary
from thinkq.client.run import EXIT_ANSWERED, EXIT_UNANSWERED, Idle, exit_code
from thinkq.client.settings import load_settings


@click.command()
@click.argument("id", metavar="ID")
def watch(id: str) -> int:
    """Follow a job or a batch until it ends.

    A job's thinking goes to stderr, its answer to stdout.

    \b
    Example:
      thinkq watch b5d41402abc4-17
    """
    with Client(settings=load_settings()) as client:
        with client.reaching():
            is_batch = batches.exists(client.connection, id)
        return watch_batch(client, id) if is_batch else watch_job(client, id)


def watch_batch(client: Client, id: str) -> int:
    """Show the progress of a batch until its end, then the summary; the exit code."""
    batch = client.batch(id)
    pace = Pace(len(batch.job_ids))
    with observing(pace, sys.stderr) as observer:
        for result in batch.completed(Idle(client.connection, observer)):
            pace.count(result)
            observer.changed()
    for line in summary(pace.tally, new_tokens=pace.new_tokens, seconds=pace.seconds):
        click.echo(line, err=True)
    return exit_code(pace.tally)


def watch_job(client: Client, id: str, check: launch.Check = launch.nothing) -> int:
    """Show a job's stream to its end; the exit code."""
    result = JobView(sys.stdout, sys.stderr).show(client.follow(id, idle=check))
    result = result or client.result(id)
    if result.error:
        click.echo(f"the job failed: {result.error.message}", err=True)
    elif result.empty:
        click.echo("the answer is empty: raise --max-tokens, or set a --budget", err=True)
    elif result.status == "cancelled":
        click.echo("the job was cancelled", err=True)
    return EXIT_UNANSWERED if batches.unanswered(result) else EXIT_ANSWERED
