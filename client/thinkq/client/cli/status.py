"""`thinkq status`."""

from __future__ import annotations

import click
import msgspec

from thinkq.client import batches, server
from thinkq.client.batches import BatchStatus
from thinkq.client.client import Client
from thinkq.client.connection import address
from thinkq.client.render import duration
from thinkq.client.settings import load_settings
from thinkq.client.workers import WorkerStatus, tokens_per_s, workers


@click.command()
@click.argument("batch", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def status(batch: str | None, as_json: bool) -> None:
    """Show the counts of one batch, or all batches and workers.

    \b
    Example:
      thinkq status b5d41402abc4 --json
    """
    settings = load_settings()
    with Client(settings=settings) as client, client.reaching():
        connection = client.connection
        if batch is None:
            counts = batches.statuses(connection, batches.batch_ids(connection))
        else:
            counts = [batches.status(connection, batch)]
        lines = workers(connection)
        complaints = server.complaints(connection)
    for complaint in complaints:
        click.echo(complaint, err=True)
    if as_json:
        click.echo(_json(counts, lines, batch))
        return
    if batch is None:
        click.echo(f"Redis at {address(settings)}")
        for line in lines:
            click.echo(worker_line(line))
    for one in counts:
        click.echo(_batch_line(one))


def _json(counts: list[BatchStatus], lines: list[WorkerStatus], batch: str | None) -> bytes:
    rate = tokens_per_s(lines)
    if batch is not None:
        return msgspec.json.encode(msgspec.to_builtins(counts[0]) | {"tokens_per_s": rate})
    return msgspec.json.encode({"batches": counts, "workers": lines, "tokens_per_s": rate})


def worker_line(worker: WorkerStatus) -> str:
    """A worker in one line."""
    if worker.silent_s:
        return f"worker {worker.pid}: not heard of for {duration(worker.silent_s)}"
    return (
        f"worker {worker.pid}: {worker.state}, {worker.model or 'no model yet'}, "
        f"{worker.rows}/{worker.max_batch} rows, {worker.tokens_per_s:,.1f} tokens/s"
    )


def _batch_line(one: BatchStatus) -> str:
    left = (
        "" if one.finished or one.seconds_left is None else f", {duration(one.seconds_left)} left"
    )
    state = "submission incomplete, " if one.state == "submitting" else ""
    lost = f", {one.lost} lost (submit the file again to run those)" if one.lost else ""
    return (
        f"{one.batch}  {one.name}: {state}{one.ended}/{one.total}, {one.queued} queued, "
        f"{one.running} running, {one.done} done, {one.failed} failed, {one.cancelled} cancelled, "
        f"{one.empty} empty{lost}{left}"
    )
