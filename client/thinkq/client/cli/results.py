"""`thinkq results`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from thinkq.client import files
from thinkq.client.cli.options import BATCH, format_option
from thinkq.client.client import Client
from thinkq.client.rows import Format, encode_row, stored_rows
from thinkq.client.settings import load_settings


@click.command()
@click.argument("batch", type=BATCH)
@click.option("-o", "output", metavar="OUT", help="A file; default: stdout.")
@format_option
def results(batch: str, output: str | None, form: Format) -> None:
    """Write the results of a batch that are there, in input order.

    \b
    Example:
      thinkq results b5d41402abc4 --format openai -o answers.jsonl
    """
    with Client(settings=load_settings()) as client:
        ids = client.batch(batch).job_ids
        if output in (None, "-"):
            written = _write(client, ids, form, sys.stdout.buffer.write)
            sys.stdout.buffer.flush()
        else:
            with files.written_anew(Path(os.path.realpath(output))) as file:
                written = _write(client, ids, form, lambda row: files.append(file, row))
    if written < len(ids):
        click.echo(f"{len(ids) - written} of {len(ids)} jobs have not ended yet", err=True)


def _write(client: Client, ids: list[str], form: Format, write: Callable[[bytes], object]) -> int:
    written = 0
    with client.reaching():
        for row in stored_rows(client.connection, ids):
            write(encode_row(row, form))
            written += 1
    return written
