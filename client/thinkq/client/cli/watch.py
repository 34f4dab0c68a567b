"""`thinkq watch`."""

from __future__ import annotations

import sys

import click

from thinkq.client import batches, launch, live
from thinkq.client.cli.options import BATCH, interruptible
from thinkq.client.client import Client
from thinkq.client.progress import Pace, observing
from thinkq.client.render import JobView, summary
from thinkq.client.run import EXIT_ANSWERED, EXIT_UNANSWERED, Idle, exit_code
from thinkq.client.settings import load_settings


@click.command()
@click.argument("id", metavar="ID", type=BATCH)
def watch(id: str) -> int:
    """Follow a job or a batch until it ends.

    A job's thinking goes to stderr, its answer to stdout. Of a batch it shows the progress, and on
    a terminal what its jobs are writing.

    \b
    Example:
      thinkq watch b5d41402abc4-17
    """
    with Client(settings=load_settings()) as client:
        with client.reaching():
            is_batch = batches.exists(client.connection, id)
        if is_batch:
            return watch_batch(client, id)
        with interruptible(f"the job goes on; `thinkq watch {id}` shows it again"):
            return watch_job(client, id)


def watch_batch(client: Client, id: str) -> int:
    """Show the progress of a batch until its end, then the summary; the exit code."""
    batch = client.batch(id)
    pace = Pace(len(batch.job_ids))
    pace.speed = live.speed(client.connection)
    ended_before = batch.status().ended
    with (
        interruptible(f"the jobs go on; `thinkq watch {id}` shows them again"),
        observing(pace, sys.stderr, live.tails(client.connection, id)) as observer,
    ):
        for result in batch.completed(Idle(client.connection, observer)):
            pace.count(result)
            if pace.ended == ended_before:
                pace.start()
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
