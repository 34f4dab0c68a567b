"""`thinkq ps`."""

from __future__ import annotations

import click
import msgspec

from thinkq.client.cli.status import worker_line
from thinkq.client.client import Client
from thinkq.client.render import duration
from thinkq.client.running import RunningJob, running_jobs
from thinkq.client.settings import load_settings
from thinkq.client.workers import workers


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def ps(as_json: bool) -> None:
    """Show the workers, and the jobs that run now.

    \b
    Example:
      thinkq ps --json
    """
    with Client(settings=load_settings()) as client, client.reaching():
        lines = workers(client.connection)
        jobs = running_jobs(client.connection)
    if as_json:
        click.echo(msgspec.json.encode({"workers": lines, "jobs": jobs}))
        return
    for line in lines:
        click.echo(worker_line(line))
    if not lines:
        click.echo("no worker runs; start one with `thinkq daemon start`", err=True)
    for row in _table(jobs):
        click.echo(row)


def _table(jobs: list[RunningJob]) -> list[str]:
    """The jobs, each column as wide as it must be."""
    if not jobs:
        return []
    head = ("JOB", "CUSTOM ID", "PRIORITY", "ATTEMPT", "RUNNING")
    rows = [head, *map(_row, jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _row(job: RunningJob) -> tuple[str, ...]:
    running = "" if job.running_s is None else duration(job.running_s)
    return job.job_id, (job.custom_id or "")[:40], job.priority, str(job.attempt), running
